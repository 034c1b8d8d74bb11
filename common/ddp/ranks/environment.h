#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace ddp {

/// What a launcher tells each process that it starts.
struct LaunchEnvironment {
  int rank = 0;
  int world_size = 1;
  /// This rank's number among those of its machine: which GPU is its own.
  int local_rank = 0;
  /// Where rank 0, or the launcher, keeps the store by which the ranks find each other.
  std::string master_addr;
  int master_port = 0;
  /// True under torchrun, whose agent keeps that store itself; otherwise rank 0 does.
  bool store_is_served = false;
};

/// Looks a variable up, as std::getenv does: null where it is not set.
using GetVariable = std::function<const char*(const char*)>;

/// Reads the variables of, in this order,
///
///   torchrun          RANK WORLD_SIZE LOCAL_RANK
///   mpirun, Open MPI  OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK
///   srun              SLURM_PROCID SLURM_NTASKS SLURM_LOCALID
///   mpirun, others    PMI_RANK PMI_SIZE MPI_LOCALRANKID
///
/// and MASTER_ADDR and MASTER_PORT, which only srun's job can do without: then they are its first
/// host and a port that follows from its job and step. Variables that are empty count as not set.
///
/// Returns none where no launcher's variables are set, also in the shell of a Slurm allocation.
/// Throws c10::ValueError that names the variable where one is missing or makes no sense.
std::optional<LaunchEnvironment> read_launch_environment(
    const GetVariable& get_variable = [](const char* name) { return std::getenv(name); });

}  // namespace ddp
