#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "bodies.h"
#include "support/settings.h"

// The numbers that a use computes with.

namespace ddp::testing {

namespace {

at::Tensor laid_out(const at::Tensor& values, const MemoryLayout& layout) {
  return layout ? layout(values) : values;
}

}  // namespace

at::Tensor random_numbers(at::IntArrayRef shape, std::uint64_t salt) {
  const at::Generator generator = at::detail::createCPUGenerator(settings().seed * 65536 + salt);
  return at::randn(shape, generator, at::TensorOptions(at::kDouble)).to(settings().device);
}

std::vector<std::int64_t> without_channels(const at::Tensor& input) {
  std::vector<std::int64_t> dims(input.dim() - 1);
  std::iota(dims.begin(), dims.end(), 1);
  dims[0] = 0;
  return dims;
}

at::Tensor along_channels(const at::Tensor& of_channels, const at::Tensor& input) {
  std::vector<std::int64_t> shape(input.dim(), 1);
  shape[1] = of_channels.numel();
  return of_channels.reshape(shape);
}

void Use::make_tensors() {
  if (module_ != nullptr) {
    tensors = {module_->weight, module_->bias, module_->running_mean, module_->running_var};
    batches = module_->num_batches_tracked;
    return;
  }
  const std::int64_t channels = options_.shape[1];
  const auto numbers = [&](std::uint64_t which, at::ScalarType dtype) {
    return random_numbers({channels}, salt(-1) + which)
        .to(dtype == at::ScalarType::Undefined ? options_.dtype : dtype);
  };
  if (options_.weight) {
    tensors.weight = numbers(1, options_.of_weight) * 0.3 + 1;
    tensors.weight.set_requires_grad(options_.wants & kWeight);
  }
  if (options_.bias) {
    tensors.bias = numbers(2, options_.of_bias).set_requires_grad(options_.wants & kBias);
  }
  if (options_.running) {
    tensors.running_mean = numbers(3, options_.of_bias) * 0.5;
    tensors.running_var = numbers(4, options_.of_weight).abs() + 0.5;
  }
}

// Values differ between ranks, channels and samples: local statistics are far from the global ones.
void Use::make_input(const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> shape = options_.shape;
  shape[0] = rows[member_];
  const auto numbers = random_numbers(shape, salt(member_));
  const auto first = std::accumulate(rows.begin(), rows.begin() + member_, std::int64_t{0});
  const auto total = std::accumulate(rows.begin(), rows.end(), 1.0);
  std::vector<std::int64_t> one_a_row(shape.size(), 1);
  one_a_row[0] = shape[0];
  const at::Tensor of_rows = (at::arange(shape[0], numbers.options()) + first) * (3 / total);
  const at::Tensor channel = at::arange(shape[1], numbers.options());
  const at::Tensor sign = channel.remainder(3) - 1;  // -1, 0, 1
  const at::Tensor of_channels = channel.remainder(7) / 4 + sign.roll(-1) * options_.mean;
  const at::Tensor values =
      numbers + along_channels(of_channels, numbers) + of_rows.view(one_a_row);
  if (options_.nan && member_ == 0) {
    values.select(1, 1)[0].fill_(std::numeric_limits<double>::quiet_NaN());
  }
  input = laid_out(values.to(options_.dtype), options_.of_input);
  input.set_requires_grad(options_.wants & kInput);
}

void Use::make_upstream(const std::vector<std::int64_t>& rows) {
  const std::int64_t mine = rows[member_];
  const auto first = std::accumulate(rows.begin(), rows.begin() + member_, std::int64_t{0});
  const auto half = std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) / 2;
  // Of its dtype from the beginning, since a conversion gives strides of 0 up.
  at::Tensor values = (random_numbers(input.sizes(), salt(member_) + 1) + 0.25).to(options_.dtype);
  switch (options_.upstream) {
    case Upstream::kRandom:
      break;
    case Upstream::kExpanded:
      values = values.narrow(-1, 0, 1).expand_as(input);
      break;
    case Upstream::kSameRows:
      values = values.narrow(0, 0, 1).expand_as(input);
      break;
    case Upstream::kOfChannels:
      values = along_channels(values.mean(without_channels(input)), input).expand_as(input);
      break;
    case Upstream::kFirstHalf:
      values.zero_().narrow(0, 0, std::clamp<std::int64_t>(half - first, 0, mine)).fill_(1);
      break;
    case Upstream::kBlocks:
      values.fill_(1).narrow(0, mine / 4, mine / 2).fill_(-1);
      break;
    case Upstream::kUndefinedOnOdd:
      values = member_ % 2 == 1 ? at::zeros_like(values) : values;
  }
  upstream = laid_out(values, options_.of_upstream);
}

}  // namespace ddp::testing
