// An experiment at its published scale, on the simulated cluster: the same rows and ways, in virtual
// time. All ranks and steps take the same, so each time is one value.
#include <algorithm>

#include "experiments/step/step.h"

namespace ddp {

void simulate(const StepExperiment& experiment, StepSettings settings) {
  settings.variants = variants_on_cluster(settings.variants, settings.implementation);
  const std::vector<Comparison> rows = experiment.rows(settings, {});
  Result result;
  std::int64_t most = 0;
  for (const Comparison& row : rows) {
    const Simulated simulated = experiment.simulated(settings, row);
    const ProfiledModel model(simulated.profile);
    if (result.series.empty()) {
      result.parameters =
          joined(joined(experiment.parameters(settings, rows), describe(simulated.hardware)),
                 simulated.parameters);
    }
    most = std::max(most, simulated.gpus);
    for (const Way& way : row.ways) {
      const std::vector<double> seconds = simulated.seconds(
          way, simulate_step(way.variant, model, simulated.hardware, simulated.gpus, way.options));
      for (std::size_t part = 0; part < seconds.size(); ++part) {
        result.series.push_back(exact_time(
            joined(row.labels, labels_of(settings, way, part, /*rank=*/0)), seconds[part]));
      }
    }
  }
  result.run = to_cluster_run(settings, experiment.name, most);
  if (experiment.complete) {
    experiment.complete(settings, nullptr, result);
  }
  save_result(settings, result);
}

}  // namespace ddp
