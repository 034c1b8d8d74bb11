#include "experiments/timeline/steps.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <cstdio>
#include <filesystem>

#include "ddp/meters/statistics.h"
#include "experiments/timeline/layered_model.h"
#include "harness/result_file.h"
#include "models/profiles/transformer_profile.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// The path of the trace, relative to the result.
std::string path_of_trace(const TimelineSettings& settings) {
  return fs::absolute(settings.trace)
      .lexically_proximate(fs::absolute(settings.output).parent_path());
}

Result to_result(const TimelineSettings& settings, const Run& run, const MeasuredSteps& measured) {
  const std::vector<NamedTensor> trained = settings.clock == kCluster
                                               ? model_on_cluster(settings).named_parameters()
                                               : make_layered_model({})->named_parameters();
  Result result = {.run = run, .parameters = describe(settings.workload, trained), .series = {}};
  result.parameters.insert(result.parameters.end(),
                           {{"clock", settings.clock},
                            {"trace", path_of_trace(settings)},
                            {"variants", c10::Join(", ", settings.variants)},
                            {"cap_bytes", settings.trainer.cap_bytes},
                            {"first_bucket_bytes", settings.trainer.first_bucket_bytes},
                            {"rate_gbit", settings.rate_gbit},
                            {"latency_us", settings.latency_us}});
  if (settings.clock == "virtual") {
    result.parameters.insert(result.parameters.end(),
                             {{"alpha_ns", settings.network.alpha_ns},
                              {"beta_ns_per_byte", settings.network.beta_ns_per_byte},
                              {"launch_overhead_ns", settings.network.launch_overhead_ns},
                              {"slower", settings.slower}});
  } else if (settings.clock == kCluster) {
    result.parameters.insert(result.parameters.end(),
                             {{"gpu", settings.gpu},
                              {"link", settings.link},
                              {"sequence_length", settings.sequence_length}});
  }
  for (std::size_t variant = 0; variant < measured.variants.size(); ++variant) {
    const at::Tensor row = measured.seconds[static_cast<std::int64_t>(variant)];
    const auto* values = row.const_data_ptr<double>();
    result.series.push_back({.labels = {{"variant", measured.variants[variant]}},
                             .unit = "s",
                             .values = {values, values + row.numel()}});
  }
  return result;
}

void print_table(const Result& result) {
  std::printf("%-12s%12s\n", "a step [ms]", "median");
  for (const Series& variant : result.series) {
    std::printf("%-12s%12.3f\n", std::get<std::string>(variant.labels[0].second).c_str(),
                1e3 * percentile(variant.values, 50));
  }
}

}  // namespace

at::Tensor median_steps(const MeasuredSteps& measured) {
  const std::int64_t middle = (measured.seconds.size(1) - 1) / 2;
  return measured.seconds.argsort(/*stable=*/true, /*dim=*/1).select(1, middle);
}

ProfiledModel model_on_cluster(const TimelineSettings& settings) {
  return ProfiledModel(transformer_profile(
      settings.model, transformer_shape(settings.model),
      {.batch = settings.workload.size.batch, .length = settings.sequence_length}));
}

void save_steps(const TimelineSettings& settings, const Run& run, const MeasuredSteps& measured) {
  const Result result = to_result(settings, run, measured);
  save_result(settings, result);
  print_table(result);
}

}  // namespace ddp
