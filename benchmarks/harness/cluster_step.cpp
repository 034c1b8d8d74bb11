#include "harness/cluster_step.h"

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

}  // namespace

cluster::StepTimes simulate_step(const std::string& variant, cluster::Cluster& cluster,
                                 cluster::TimedModel& model, VariantOptions options) {
  options.rebuilt_from_the_start = true;
  std::unique_ptr<Variant> made;
  cluster.run([&] { made = make_variant(variant, model.parameters(), cluster.group(), options); });
  const cluster::StepParts parts = {.before_forward = [&] { made->before_forward(); },
                                    .before_backward = [&] { made->before_backward(); },
                                    .finish = [&] { made->finish(); }};
  model.step(parts);
  return model.step(parts);
}

std::vector<std::string> variants_on_cluster(const std::vector<std::string>& names,
                                             const std::string& implementation) {
  return keep_usable(names, implementation, /*tells=*/true,
                     [&](const std::string& name) { return problem_of(name, implementation); });
}

}  // namespace ddp
