#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "harness/benchmark.h"

namespace ddp {

/// The state of a training in a file of its own: a text that identifies the training, then the
/// tensors as written by torch::pickle_save(), all under a checksum.
class CifarCheckpoint {
 public:
  /// <result>.<name>.checkpoint. `identity` is everything that must agree for one run to continue
  /// where another stopped; host, version of libtorch, and commit are added to it.
  CifarCheckpoint(const std::filesystem::path& result, const std::string& name,
                  const Parameters& identity);

  const std::filesystem::path& file() const { return file_; }

  /// Replaces the previous checkpoint. If the process is killed at any moment, the file is either
  /// the old or the new one. Throws std::runtime_error, which names the file, if it cannot be
  /// written.
  void save(const std::vector<at::Tensor>& tensors) const;

  /// The tensors saved last; none if there are none. Throws c10::ValueError, which names the file
  /// and says what to do, if it is truncated, corrupt, or from another training.
  std::optional<std::vector<at::Tensor>> load() const;

  /// Also removes the temporary files of a writer that was killed.
  void remove() const;

 private:
  std::filesystem::path file_;
  std::string identity_;  // one line per field
};

/// Rank 0's tensors, on the CPU of every rank. On other ranks `tensors` may be undefined or a list
/// of another length. Collective.
std::vector<at::Tensor> broadcast_tensors(const std::vector<at::Tensor>& tensors,
                                          const DeviceContext& device_context);

}  // namespace ddp
