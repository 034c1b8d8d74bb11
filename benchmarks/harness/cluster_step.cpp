#include "harness/cluster_step.h"

#include <ATen/ATen.h>
#include <torch/optim/adamw.h>

#include "ddp/cluster/meta_memory.h"
#include "ddp/ranks/stage_library.h"

namespace ddp {
namespace {

// Two ranks and two layers: enough for every variant to do all that it does.
void try_step(const std::string& variant) {
  cluster::Cluster cluster(
      {.world_size = 2, .device = {.name = "any", .flops_per_second = 1, .bytes_per_second = 1}});
  cluster::TimedModel model(cluster, {{.parameters = {cluster::make_parameter({2, 2})}},
                                      {.parameters = {cluster::make_parameter({2})}}});
  simulate_step(variant, cluster, model);
}

std::string problem_of(const std::string& variant, const std::string& implementation) {
  try {
    load_stage_library(stage_library(implementation, stage_of(variant)));
    try_step(variant);
    return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

class CountedAdamW : public torch::optim::AdamW {
 public:
  using AdamW::AdamW;
  at::Tensor step(LossClosure closure = nullptr) override {
    const cluster::MemoryScope scope(cluster::MemoryKind::kOptimizer, "update");
    return AdamW::step(std::move(closure));
  }
};

// "layers.12" of "layers.12.attn.q_proj".
std::string unit_of(const std::string& layer) {
  const std::string prefix = "layers.";
  return layer.starts_with(prefix) ? layer.substr(0, layer.find('.', prefix.size())) : "";
}

}  // namespace

std::vector<ModelUnit> units_of(const cluster::TimedModel& model) {
  const std::vector<cluster::TimedLayer>& layers = model.layers();
  std::vector<ModelUnit> units;
  for (std::size_t first = 0, last = 0; first < layers.size(); first = last) {
    ModelUnit unit;
    for (; last < layers.size() && unit_of(layers[last].name) == unit_of(layers[first].name);
         ++last) {
      unit.parameters.insert(unit.parameters.end(), layers[last].parameters.begin(),
                             layers[last].parameters.end());
    }
    unit.function = [&model, first, last](const at::Tensor& x, const std::vector<at::Tensor>& own) {
      const at::Tensor y = model.forward(first, last, x, own);
      return y.view_as(y);  // a hook on it comes before the last layer's backward
    };
    units.push_back(std::move(unit));
  }
  return units;
}

cluster::StepTimes simulate_step(const std::string& variant, cluster::Cluster& cluster,
                                 cluster::TimedModel& model, VariantOptions options,
                                 const std::function<void()>& at_its_end) {
  options.rebuilt_from_the_start = true;
  if (options.units.empty()) {
    options.units = units_of(model);
  }
  std::unique_ptr<Variant> made;
  cluster.run([&] { made = make_variant(variant, model.parameters(), cluster.group(), options); });
  const auto by_units = [&](const at::Tensor& x) { return through(options.units, x); };
  const cluster::StepParts parts = {
      .before_forward = [&] { made->before_forward(); },
      .forward = [&](const at::Tensor& x) { return made->forward(by_units, x); },
      .before_backward = [&] { made->before_backward(); },
      .finish = [&] { made->finish(); }};
  model.step(parts);
  const cluster::StepTimes times = model.step(parts);
  if (at_its_end) {
    at_its_end();
  }
  return times;
}

std::unique_ptr<torch::optim::Optimizer> counted_adamw(std::vector<at::Tensor> parameters) {
  return std::make_unique<CountedAdamW>(std::move(parameters));
}

std::vector<std::string> variants_on_cluster(const std::vector<std::string>& names,
                                             const std::string& implementation) {
  return keep_usable(names, implementation, /*tells=*/true,
                     [&](const std::string& name) { return problem_of(name, implementation); });
}

}  // namespace ddp
