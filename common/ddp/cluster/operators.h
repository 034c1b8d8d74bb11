#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <functional>

namespace ddp::cluster {

/// An operator that moved data of tensors on the meta device.
struct DataMovement {
  const char* name = "";   // "aten::copy_"
  std::int64_t bytes = 0;  // read and written
};

using DataListener = std::function<void(const DataMovement&)>;

/// While it lives, this thread's operators on meta tensors are told to the listener, each once,
/// after it has run: one that is made of others is one. What moves no data is not told: views,
/// allocations, and whatever is done with CPU tensors alone. An operator that is given a tensor to
/// write counts as reading it too, unless it only overwrites. Operators that autograd calls on this
/// thread count too. One at a time on a thread.
///
/// An operator that needs values, such as item(), throws c10::Error, which names it; so does writing
/// to the memory of a tensor that an operator has made meanwhile, see forbid_memory().
class OperatorWatch {
 public:
  explicit OperatorWatch(DataListener listener);
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;
  ~OperatorWatch();

 private:
  const DataListener listener_;
  c10::impl::IncludeDispatchKeyGuard included_;
};

/// From now on data_ptr() of the tensor, which has no memory, throws c10::Error, as data_ptr<float>()
/// does in any case. (Not const_data_ptr(): libtorch's own kernels for meta tensors look at that.)
void forbid_memory(const at::Tensor& meta);

/// True for that error, whose words are libtorch's and about something else.
bool is_memory_error(const c10::Error& error);

/// What the cluster does not have, and what not to do therefore.
inline constexpr const char* kNoValues =
    "on the simulated cluster tensors have shapes and no values, so nothing may depend on values "
    "or "
    "use a tensor's memory: no item(), no condition on a tensor, no data_ptr(), no printing";

/// Lets c10d's operations take tensors on the meta device, in this process from now on. They are
/// given to a group's CPU backend, which must not look for values.
void allow_meta_collectives();

}  // namespace ddp::cluster
