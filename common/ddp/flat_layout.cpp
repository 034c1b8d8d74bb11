#include "ddp/flat_layout.h"

#include <ATen/ATen.h>

#include <map>

namespace ddp {

FlatLayout::FlatLayout(const std::vector<at::Tensor>& tensors, std::int64_t chunks) {
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

at::Tensor FlatLayout::flatten(const at::Tensor* first) const {
  const at::NoGradGuard no_grad;
  at::Tensor flat = at::zeros({padded_elements()}, first->options().requires_grad(false));
  const std::vector<at::Tensor> views = views_of(flat);
  for (std::size_t i = views.size(); i-- > 0;) {
    views[i].copy_(first[i]);
  }
  return flat;
}

}  // namespace ddp
