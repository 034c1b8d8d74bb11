#include "ddp/flat_layout.h"

#include <ATen/ATen.h>

#include <map>

namespace ddp {

FlatLayout::FlatLayout(const std::vector<at::Tensor>& tensors, std::int64_t chunks,
                       const std::string& list) {
  TORCH_CHECK(!tensors.empty(), list, " has no tensors");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(tensors[i].defined(), "tensor ", i, " of ", list, " is undefined");
    TORCH_CHECK(
        tensors[i].dtype() == tensors[0].dtype() && tensors[i].device() == tensors[0].device(),
        "tensor ", i, " of ", list, " has another dtype or device than the first");
  }
  options_ = tensors[0].options().requires_grad(false);
  std::map<const c10::TensorImpl*, std::size_t> known;
  for (const at::Tensor& tensor : tensors) {
    const auto [place, is_new] = known.emplace(tensor.unsafeGetTensorImpl(), pieces_.size());
    if (is_new) {
      pieces_.push_back(tensor.numel());
      elements_ += tensor.numel();
    }
    shapes_.push_back(tensor.sizes().vec());
    piece_.push_back(place->second);
  }
  TORCH_CHECK(elements_ > 0, list, " has no elements");
  pieces_.push_back((chunks - elements_ % chunks) % chunks);
}

std::vector<at::Tensor> FlatLayout::views_of(const at::Tensor& flat) const {
  const std::vector<at::Tensor> parts = flat.split_with_sizes(pieces_);
  std::vector<at::Tensor> views;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    views.push_back(parts[piece_[i]].view(shapes_[i]));
  }
  return views;
}

at::Tensor FlatLayout::flatten(const std::vector<at::Tensor>& list, std::size_t first) const {
  const at::NoGradGuard no_grad;
  at::Tensor flat = at::zeros({padded_elements()}, options_);
  const std::vector<at::Tensor> views = views_of(flat);
  for (std::size_t i = views.size(); i-- > 0;) {
    const std::size_t index = first + i;
    TORCH_CHECK(index < list.size() && list[index].defined() &&
                    list[index].sizes() == views[i].sizes() &&
                    list[index].dtype() == views[i].dtype(),
                "tensor ", index, " should be there, with dtype ", views[i].dtype(), " and shape ",
                views[i].sizes());
    views[i].copy_(list[index]);
  }
  return flat;
}

}  // namespace ddp
