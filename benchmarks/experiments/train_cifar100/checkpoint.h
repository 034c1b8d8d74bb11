#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "harness/benchmark.h"

namespace ddp {

/// Where a training stands, in a file of its own: a text that says whose it is, then the tensors,
/// as torch::pickle_save() writes them, all under a checksum.
class CifarCheckpoint {
 public:
  /// <result>.<name>.checkpoint. `identity` is everything that two runs must have in common for one
  /// to go on where the other stopped; to it are added host, version of libtorch, and commit.
  CifarCheckpoint(const std::filesystem::path& result, const std::string& name,
                  const Parameters& identity);

  const std::filesystem::path& file() const { return file_; }

  /// Replaces what was saved before. Killed at any moment, it leaves the one or the other. Throws
  /// std::runtime_error, which names the file, where it cannot be written.
  void save(const std::vector<at::Tensor>& tensors) const;

  /// What was saved last; none if nothing was. Throws c10::ValueError, which names the file and
  /// says what to do, where that is truncated, corrupt, or another training's.
  std::optional<std::vector<at::Tensor>> load() const;

  /// Also what a writer that was killed has left behind.
  void remove() const;

 private:
  std::filesystem::path file_;
  std::string identity_;  // a line for each field
};

/// Rank 0's tensors, on the CPU of every rank; undefined ones and lists of other lengths may be
/// there. Collective.
std::vector<at::Tensor> broadcast_tensors(const std::vector<at::Tensor>& tensors,
                                          const DeviceContext& device_context);

}  // namespace ddp
