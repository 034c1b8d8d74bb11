#pragma once

#include <c10/util/Exception.h>

#include <memory>
#include <vector>

#include "ddp/backends/backend_decorator.h"
#include "ddp/shm/shared_memory.h"

namespace ddp {

/// This rank's part of an operation, which moves on without ever waiting.
class Transfer {
 public:
  Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  virtual ~Transfer() = default;

  /// Moves what can be moved now; true if that was anything. Throws c10::Error if the other end
  /// wants something else.
  virtual bool advance() = 0;
  virtual bool done() const = 0;
  /// True if others may have to wait for what is left, so that it must be moved even if nobody here
  /// waits.
  virtual bool owes() const = 0;
  /// True if there is nothing to move before this rank has done something.
  virtual bool waits_for(int rank) const = 0;
};

/// The only tensor of a list. Throws c10::Error if there are more, or it is not dense and on the CPU.
inline at::Tensor the_tensor(const std::vector<at::Tensor>& tensors, const Operation& operation) {
  TORCH_CHECK(tensors.size() == 1, "shared memory takes one tensor for each ",
              operation_name(operation.type), ", not ", tensors.size());
  const at::Tensor& tensor = tensors.front();
  TORCH_CHECK(tensor.is_cpu() && tensor.is_non_overlapping_and_dense(),
              "shared memory moves dense CPU tensors, not ", tensor.toString(), " of strides ",
              tensor.strides());
  return tensor;
}

inline char* bytes_of(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

/// The transfer of a send or recv. Throws c10::Error for a tag beyond SharedMemory::kTags.
std::unique_ptr<Transfer> make_message(const Operation& operation, SharedMemory& memory);

/// The transfer of a collective. Throws c10::Error for one that shared memory does not have.
std::unique_ptr<Transfer> make_collective(const Operation& operation, SharedMemory& memory);

}  // namespace ddp
