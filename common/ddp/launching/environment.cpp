#include "ddp/launching/environment.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace ddp {

namespace {

// The names that a launcher uses for the same three numbers.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* how_to_set;
};

constexpr Launcher kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                             "start the program by torchrun, or set it for every rank"};
constexpr Launcher kOpenMpi{
    "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "mpirun -x MASTER_ADDR=<host of rank 0> -x MASTER_PORT=<free port> ..."};
constexpr Launcher kSlurm{"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
                          "export it before srun"};
constexpr Launcher kPmi{
    "mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
    "mpirun -genv MASTER_ADDR <host of rank 0> -genv MASTER_PORT <free port> ..."};

class Variables {
 public:
  explicit Variables(const GetVariable& get_variable) : get_variable_(get_variable) {}

  std::optional<std::string> text(const char* name) const {
    const char* value = get_variable_(name);
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
  }

  bool has(const char* name) const { return text(name).has_value(); }

  std::optional<int> number(const char* name) const {
    const auto value = text(name);
    if (!value) {
      return std::nullopt;
    }
    int result = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, result);
    TORCH_CHECK_VALUE(error == std::errc() && stop == end && result >= 0, name, "=\"", *value,
                      "\" in the environment is not a number from 0 on");
    return result;
  }

 private:
  const GetVariable& get_variable_;
};

[[noreturn]] void report_missing(const Launcher& launcher, const char* there, const char* missing) {
  C10_THROW_ERROR(ValueError, std::string("the environment has ") + there + ", so it looks like " +
                                  launcher.name + ", but no " + missing + ": " +
                                  launcher.how_to_set + ", or unset " + there);
}

int required_number(const Variables& variables, const Launcher& launcher, const char* name) {
  const auto value = variables.number(name);
  if (!value) {
    report_missing(launcher, name == launcher.rank ? launcher.world_size : launcher.rank, name);
  }
  return *value;
}

// "gpu[03-05,9]-ib,login" -> "gpu03-ib"
std::string first_host(std::string_view list) {
  const auto bracket = list.find('[');
  if (bracket > list.find(',')) {
    return std::string(list.substr(0, list.find(',')));
  }
  if (bracket == std::string_view::npos) {
    return std::string(list);
  }
  const auto close = list.find(']', bracket);
  TORCH_CHECK_VALUE(close != std::string_view::npos, "no ] in the host list \"", list, "\"");
  const auto numbers = list.substr(bracket + 1, close - bracket - 1);
  const auto rest = list.substr(close + 1);
  return std::string(list.substr(0, bracket))
      .append(numbers.substr(0, numbers.find_first_of("-,")))
      .append(rest.substr(0, rest.find(',')));
}

// All tasks of a job step must compute the same port, and steps that run side by side should get
// different ones. 20000 to 31999 lies below the ports that systems assign by themselves.
std::optional<int> port_of_slurm_step(const Variables& variables) {
  const auto job = variables.number("SLURM_JOB_ID");
  if (!job) {
    return std::nullopt;
  }
  const std::int64_t step = variables.number("SLURM_STEP_ID").value_or(0);
  return static_cast<int>(20000 + (*job * std::int64_t{16} + step) % 12000);
}

void read_master(const Variables& variables, const Launcher& launcher, LaunchEnvironment& result) {
  auto address = variables.text("MASTER_ADDR");
  auto port = variables.number("MASTER_PORT");
  if (&launcher == &kSlurm) {
    for (const char* list : {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}) {
      if (!address && variables.has(list)) {
        address = first_host(*variables.text(list));
      }
    }
    if (!port) {
      port = port_of_slurm_step(variables);
    }
  }
  if (!address) {
    report_missing(launcher, launcher.rank, "MASTER_ADDR");
  }
  if (!port) {
    report_missing(launcher, launcher.rank, "MASTER_PORT");
  }
  TORCH_CHECK_VALUE(*port >= 1 && *port <= 65535, "MASTER_PORT=", *port,
                    " in the environment is not a port: 1 to 65535");
  result.master_addr = *address;
  result.master_port = *port;
}

// The launcher whose variables are set. A batch script and the shell of salloc belong to a Slurm
// job and have SLURM_NTASKS and perhaps SLURM_PROCID=0, but they are not one of several tasks: they
// belong to none of the job's steps.
const Launcher* find_launcher(const Variables& variables) {
  for (const Launcher* launcher : {&kTorchrun, &kOpenMpi}) {
    if (variables.has(launcher->rank) || variables.has(launcher->world_size)) {
      return launcher;
    }
  }
  const bool is_job_shell = variables.has("SLURM_JOB_ID") && !variables.has("SLURM_STEP_ID");
  if (variables.has(kSlurm.rank) && !is_job_shell) {
    return &kSlurm;
  }
  return variables.has(kPmi.rank) || variables.has(kPmi.world_size) ? &kPmi : nullptr;
}

}  // namespace

std::optional<LaunchEnvironment> read_launch_environment(const GetVariable& get_variable) {
  const Variables variables(get_variable);
  const Launcher* launcher = find_launcher(variables);
  if (launcher == nullptr) {
    return std::nullopt;
  }
  LaunchEnvironment result;
  result.rank = required_number(variables, *launcher, launcher->rank);
  result.world_size = required_number(variables, *launcher, launcher->world_size);
  TORCH_CHECK_VALUE(result.rank < result.world_size, launcher->rank, "=", result.rank,
                    " in the environment must be less than ", launcher->world_size, "=",
                    result.world_size);
  // Other launchers may not set it; on a single machine it equals the rank.
  result.local_rank = variables.number(launcher->local_rank).value_or(result.rank);
  read_master(variables, *launcher, result);
  result.store_is_served = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return result;
}

std::chrono::milliseconds longest_wait(std::chrono::milliseconds usual,
                                       const GetVariable& get_variable) {
  const auto given = Variables(get_variable).number("DDP_LAB_TIMEOUT_S");
  TORCH_CHECK_VALUE(given != 0, "DDP_LAB_TIMEOUT_S=0 in the environment: nothing is done at once");
  return given ? std::min<std::chrono::milliseconds>(usual, std::chrono::seconds(*given)) : usual;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace ddp
