#include "models/mlp.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <string>

namespace ddp {
namespace {

class Mlp : public Model {
 public:
  Mlp(const std::vector<std::int64_t>& widths, std::uint64_t seed, at::Device device) {
    TORCH_CHECK_VALUE(widths.size() >= 2,
                      "an MLP needs at least 2 widths, its input's and its "
                      "output's, not ",
                      widths.size());
    at::Generator generator = at::detail::createCPUGenerator(seed);
    for (std::size_t layer = 0; layer + 1 < widths.size(); ++layer) {
      TORCH_CHECK_VALUE(widths[layer] > 0 && widths[layer + 1] > 0,
                        "the widths of an MLP are positive, not ", widths);
      const double bound = 1 / std::sqrt(static_cast<double>(widths[layer]));
      const auto random = [&](at::IntArrayRef shape) {
        const at::Tensor values = at::empty(shape).uniform_(-bound, bound, generator);
        return values.to(device).set_requires_grad(true);
      };
      layers_.push_back({random({widths[layer + 1], widths[layer]}), random({widths[layer + 1]})});
    }
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = at::linear(input, layers_[0].weight, layers_[0].bias);
    for (std::size_t layer = 1; layer < layers_.size(); ++layer) {
      x = at::linear(x.relu_(), layers_[layer].weight, layers_[layer].bias);
    }
    return x;
  }

  std::vector<NamedTensor> named_parameters() const override {
    std::vector<NamedTensor> parameters;
    for (const Linear& layer : layers_) {
      const std::string name = "layer" + std::to_string(parameters.size() / 2 + 1);
      parameters.push_back({name + ".weight", layer.weight});
      parameters.push_back({name + ".bias", layer.bias});
    }
    return parameters;
  }
  std::vector<NamedTensor> named_buffers() const override { return {}; }
  void train(bool) override {}

 private:
  struct Linear {
    at::Tensor weight, bias;
  };
  std::vector<Linear> layers_;
};

}  // namespace

std::unique_ptr<Model> make_mlp(const std::vector<std::int64_t>& widths, std::uint64_t seed,
                                at::Device device) {
  return std::make_unique<Mlp>(widths, seed, device);
}

}  // namespace ddp
