#pragma once

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
at::Tensor the_tensor(const std::vector<at::Tensor>& tensors, const Operation& operation);

inline char* bytes_of(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

}  // namespace ddp
