#pragma once

#include <ATen/core/Tensor.h>

namespace ddp {

// A tensor's memory can go and come back under it: whoever holds the tensor, a view of it, or a graph
// that has saved either, keeps shape, dtype and place, and sees the new memory. Fill it through
// `tensor.variable_data()`, which shares the memory and not the version, so that autograd takes no
// saved tensor for one that was modified.

/// Lets go of the memory under `tensor`, of all its views and of whatever it is a view of. Until
/// fill_storage() none of them may be read or written. Nothing if it has none.
void empty_storage(const at::Tensor& tensor);

/// Gives back memory of as many bytes, with any values in it. Nothing if it has some. `tensor` must
/// span its whole storage.
void fill_storage(const at::Tensor& tensor);

/// Whether there is memory under `tensor`, or it has no elements.
bool has_storage(const at::Tensor& tensor);

}  // namespace ddp
