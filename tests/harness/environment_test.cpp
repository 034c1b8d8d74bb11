#include "ddp/ranks/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "ddp/ranks/addresses.h"
#include "harness/error_of.h"

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

TEST(Environment, ReadsTorchrun) {
  const auto environment = launched(kTorchrun).value();
  EXPECT_EQ(environment.rank, 5);
  EXPECT_EQ(environment.world_size, 8);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.master_addr, "node0");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_FALSE(environment.store_is_served);
  EXPECT_TRUE(
      launched(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}))->store_is_served);
}

TEST(Environment, ReadsOpenMpi) {
  const auto environment = launched({{"OMPI_COMM_WORLD_RANK", "1"},
                                     {"OMPI_COMM_WORLD_SIZE", "2"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", "1234"}});
  EXPECT_EQ(environment.value().rank, 1);
  EXPECT_EQ(environment->world_size, 2);
  EXPECT_EQ(environment->local_rank, 0);
}

TEST(Environment, ReadsPmiAndTakesTheRankForAMissingLocalRank) {
  const auto environment = launched({{"PMI_RANK", "1"},
                                     {"PMI_SIZE", "2"},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", "1234"}});
  EXPECT_EQ(environment.value().rank, 1);
  EXPECT_EQ(environment->world_size, 2);
  EXPECT_EQ(environment->local_rank, 1);
}

TEST(Environment, ReadsSlurmWithoutMasterVariables) {
  const auto environment = launched(kSlurm).value();
  EXPECT_EQ(environment.rank, 3);
  EXPECT_EQ(environment.world_size, 4);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.master_addr, "gpu03-ib");
  EXPECT_EQ(environment.master_port, 20000 + (200505 * 16 + 2) % 12000);
}

TEST(Environment, MasterVariablesGoBeforeWhatSlurmSays) {
  const auto environment =
      launched(with(kSlurm, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "4000"}})).value();
  EXPECT_EQ(environment.master_addr, "10.0.0.1");
  EXPECT_EQ(environment.master_port, 4000);
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

TEST(Environment, TorchrunInsideOfASlurmTaskIsTorchrun) {
  EXPECT_EQ(launched(with(kSlurm, kTorchrun))->rank, 5);
}

TEST(Environment, NamesTheVariableThatIsMissing) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    Variables variables = kTorchrun;
    variables.erase(name);
    EXPECT_NE(error_of(variables).find(std::string("no ") + name), std::string::npos)
        << error_of(variables);
  }
}

TEST(Environment, NamesTheVariableThatMakesNoSense) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"RANK", "one"},          {"WORLD_SIZE", "8x"}, {"LOCAL_RANK", "-1"},   {"RANK", "8"},
      {"MASTER_PORT", "70000"}, {"WORLD_SIZE", "0"},  {"MASTER_PORT", "http"}};
  for (const auto& [name, value] : wrong) {
    const std::string error = error_of(with(kTorchrun, {{name, value}}));
    EXPECT_NE(error.find(name + "="), std::string::npos) << value << ": " << error;
    EXPECT_NE(error.find(value), std::string::npos) << value << ": " << error;
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
