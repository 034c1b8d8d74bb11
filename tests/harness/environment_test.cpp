#include "ddp/ranks/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "ddp/ranks/meeting.h"
#include "harness/checks.h"

namespace ddp {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<LaunchEnvironment> launched(const Variables& variables) {
  return read_launch_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// The message of the error caused by reading these variables.
std::string error_of(const Variables& variables) {
  return testing::error_of<c10::ValueError>([&] { launched(variables); });
}

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    variables[name] = value;
  }
  return variables;
}

const Variables kMaster{{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1234"}};
const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "29500"}};
const Variables kSlurm{{"SLURM_PROCID", "3"},  {"SLURM_NTASKS", "4"},
                       {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "200505"},
                       {"SLURM_STEP_ID", "2"}, {"SLURM_NODELIST", "gpu[03-05,9]-ib"}};

TEST(Environment, NothingSetIsNoLauncher) {
  EXPECT_FALSE(launched({}).has_value());
  EXPECT_FALSE(launched({{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}}).has_value());
  EXPECT_FALSE(launched({{"RANK", ""}, {"WORLD_SIZE", ""}}).has_value());
}

TEST(Environment, ReadsWhatEachLauncherSets) {
  struct Case {
    Variables variables;
    int rank, world_size, local_rank;
    std::string master_addr;
    int master_port;
  };
  const int port_of_step = 20000 + (200505 * 16 + 2) % 12000;
  const std::vector<Case> cases = {
      {kTorchrun, 5, 8, 1, "node0", 29500},
      {with(kSlurm, kTorchrun), 5, 8, 1, "node0", 29500},  // torchrun inside of a Slurm task
      {with(kMaster, {{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
       1, 2, 0, "127.0.0.1", 1234},
      // The rank in the place of a missing local rank.
      {with(kMaster, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), 1, 2, 1, "127.0.0.1", 1234},
      {kSlurm, 3, 4, 1, "gpu03-ib", port_of_step},
      {with(kSlurm, kMaster), 3, 4, 1, "127.0.0.1", 1234},
  };
  for (const Case& expected : cases) {
    const auto environment = launched(expected.variables).value();
    EXPECT_EQ(environment.rank, expected.rank);
    EXPECT_EQ(environment.world_size, expected.world_size);
    EXPECT_EQ(environment.local_rank, expected.local_rank);
    EXPECT_EQ(environment.master_addr, expected.master_addr);
    EXPECT_EQ(environment.master_port, expected.master_port);
    EXPECT_FALSE(environment.store_is_served);
  }
  EXPECT_TRUE(
      launched(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}))->store_is_served);
}

TEST(Environment, TakesTheFirstOfSlurmsHosts) {
  const std::map<std::string, std::string> first_of{
      {"a", "a"},     {"a,b", "a"},      {"n[1-4]", "n1"},          {"n[07,9]", "n07"},
      {"n[2]", "n2"}, {"a,n[1-4]", "a"}, {"r1n[3-4]-x,b", "r1n3-x"}};
  for (const auto& [list, host] : first_of) {
    EXPECT_EQ(launched(with(kSlurm, {{"SLURM_NODELIST", list}}))->master_addr, host) << list;
  }
}

TEST(Environment, TheShellOfASlurmJobIsNoTask) {
  EXPECT_FALSE(launched({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}}).has_value()) << "salloc";
  Variables batch_script = kSlurm;
  batch_script.erase("SLURM_STEP_ID");
  batch_script["SLURM_PROCID"] = "0";
  EXPECT_FALSE(launched(batch_script).has_value()) << "sbatch";
}

TEST(Environment, NamesTheVariableThatIsMissing) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    Variables variables = kTorchrun;
    variables.erase(name);
    testing::expect_contains(error_of(variables), std::string("no ") + name);
  }
}

TEST(Environment, NamesTheVariableThatMakesNoSense) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"RANK", "one"},          {"WORLD_SIZE", "8x"}, {"LOCAL_RANK", "-1"},   {"RANK", "8"},
      {"MASTER_PORT", "70000"}, {"WORLD_SIZE", "0"},  {"MASTER_PORT", "http"}};
  for (const auto& [name, value] : wrong) {
    const std::string error = error_of(with(kTorchrun, {{name, value}}));
    testing::expect_contains(error, name + "=");
    testing::expect_contains(error, value);
  }
}

std::chrono::milliseconds wait_with(const char* given) {
  return longest_wait(std::chrono::minutes(2), [&](const char* name) {
    return std::string(name) == "DDP_LAB_TIMEOUT_S" ? given : nullptr;
  });
}

TEST(Environment, TheLongestWaitCanBeShortened) {
  EXPECT_EQ(wait_with(nullptr), std::chrono::minutes(2));
  EXPECT_EQ(wait_with("5"), std::chrono::seconds(5));
  EXPECT_EQ(wait_with("500"), std::chrono::minutes(2));
  EXPECT_THROW(wait_with("0"), c10::ValueError);
  EXPECT_THROW(wait_with("long"), c10::ValueError);
}

TEST(Addresses, OfThisMachine) {
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  EXPECT_EQ(route_to("127.0.0.1", 1).here, "127.0.0.1");
  EXPECT_EQ(route_to("no-such-host.invalid", 1).here, "");
  for (const char* own : {"127.0.0.1", "127.0.1.1", "::1", "localhost"}) {
    EXPECT_TRUE(is_loopback(own)) << own;
  }
  EXPECT_FALSE(is_loopback("10.0.0.1"));
}

}  // namespace
}  // namespace ddp
