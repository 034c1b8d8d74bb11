#include "ddp/shm/transfers.h"

#include <c10/util/Exception.h>

namespace ddp {

at::Tensor the_tensor(const std::vector<at::Tensor>& tensors, const Operation& operation) {
  TORCH_CHECK(tensors.size() == 1, "shared memory takes one tensor for each ",
              operation_name(operation.type), ", not ", tensors.size());
  const at::Tensor& tensor = tensors.front();
  TORCH_CHECK(tensor.is_cpu() && tensor.is_non_overlapping_and_dense(),
              "shared memory moves dense CPU tensors, not ", tensor.toString(), " of strides ",
              tensor.strides());
  return tensor;
}

}  // namespace ddp
