#include "models/profiles/profiled_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace ddp {
namespace {

std::int64_t time_of(const cluster::Device& device, const Work& work, double efficiency) {
  const std::int64_t at_best = cluster::operator_ns(device, static_cast<double>(work.flops),
                                                    static_cast<double>(work.bytes));
  return std::llround(static_cast<double>(at_best) / efficiency);
}

}  // namespace

ProfiledModel::ProfiledModel(ModelProfile profile) : profile_(std::move(profile)) {
  for (const auto& [name, sizes] : profile_.parameters) {
    parameters_.push_back({name, cluster::make_parameter(sizes)});
  }
}

std::vector<cluster::TimedLayer> ProfiledModel::timed_layers(const cluster::Device& device,
                                                             const Pace& pace) const {
  const auto [forward, backward, least_ns] = pace;
  TORCH_CHECK_VALUE(forward > 0 && backward > 0, "the efficiencies of a GPU are above 0, not ",
                    forward, " and ", backward);
  std::vector<cluster::TimedLayer> layers;
  layers.reserve(profile_.layers.size());
  for (const ProfiledLayer& layer : profile_.layers) {
    cluster::TimedLayer& timed = layers.emplace_back();
    timed.name = layer.name;
    timed.forward_ns = std::max(time_of(device, layer.forward, forward), least_ns);
    timed.backward_ns = std::max(time_of(device, layer.backward, backward), 2 * least_ns);
    for (const std::size_t parameter : layer.parameters) {
      timed.parameters.push_back(parameters_.at(parameter).tensor);
    }
  }
  return layers;
}

at::Tensor ProfiledModel::forward(const at::Tensor&) {
  TORCH_CHECK(false, profile_.name,
              " is a profile here, with shapes and no values: it takes time, "
              "and computes nothing");
}

}  // namespace ddp
