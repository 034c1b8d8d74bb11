#include "ddp/storage.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

namespace ddp {

void empty_storage(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  storage.set_nbytes(0);
}

void fill_storage(const at::Tensor& tensor) {
  if (has_storage(tensor)) {
    return;
  }
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  TORCH_CHECK(storage.allocator() != nullptr, "this tensor's memory is not libtorch's own");
  TORCH_CHECK(tensor.storage_offset() == 0 && tensor.is_contiguous(),
              "fill_storage() needs a tensor that spans its storage, not a view of a part");
  storage.set_data_ptr_noswap(storage.allocator()->allocate(tensor.nbytes()));
  storage.set_nbytes(tensor.nbytes());
}

bool has_storage(const at::Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().nbytes() > 0;
}

}  // namespace ddp
