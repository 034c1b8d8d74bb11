// The time of a training step: one program for all experiments about it, which are a table (step.h).
#include "experiments/step/step.h"

#include <algorithm>

#include "measuring/resumable_rows.h"

namespace ddp {

bool StepSettings::has(const std::string& variant) const {
  return std::ranges::count(variants, variant) > 0;
}

Parameters labels_of(const StepSettings& settings, const Way& way, std::size_t part,
                     std::int64_t rank) {
  Parameters labels = way.labels;
  if (const std::string& name = settings.timed[part].name; !name.empty()) {
    labels.emplace_back(settings.part_label, name);
  }
  if (settings.times_of == TimesOf::kEach) {
    labels.emplace_back("rank", rank);
  }
  return labels;
}

namespace {

// Sets what follows from other flags; the exit code if the program should end now.
int settle(const StepExperiment& experiment, const CLI::App& line, StepSettings& settings) {
  std::string mistake = experiment.settle ? experiment.settle(line, settings) : "";
  for (const std::int64_t size : settings.sizes) {
    if (std::ranges::count(settings.sizes, size) > 1) {
      mistake = "the size of buckets " + std::to_string(size) + " is given twice; name it once";
    }
  }
  return mistake.empty() ? 0 : refuse(line, mistake);
}

int run_on_ranks(const StepExperiment& experiment, const CLI::App& line, StepSettings& settings) {
  if (const int code = check_preset(line, settings, experiment.published)) {
    return code;
  }
  if (const int code = settle(experiment, line, settings)) {
    return code;
  }
  if (experiment.trained) {
    if (const int code = check_memory(settings, experiment.trained(settings))) {
      return code;
    }
  }
  return run_benchmark(settings,
                       [&](RankContext& context) { measure(experiment, settings, context); });
}

int run(const StepExperiment& experiment, int argc, char** argv) {
  CLI::App line(experiment.about);
  StepSettings settings = experiment.defaults(preset_in(argc, argv)),
               computed = experiment.defaults(kPublishedPreset);
  add_flags(line, settings, argc, argv);
  add_resume_flag(line, settings);
  experiment.add_flags(line, settings);
  const CLI::App* published = nullptr;
  if (experiment.simulated) {
    CLI::App& added = add_published(line, computed, computed.cluster, argc, argv);
    experiment.add_flags(added, computed);
    published = &added;
  }
  describe_presets(line, experiment.presets);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  return run_and_report([&] {
    if (!published || !published->parsed()) {
      return run_on_ranks(experiment, line, settings);
    }
    const int code = settle(experiment, *published, computed);
    return code != 0 ? code : run_on_cluster([&] { simulate(experiment, computed); });
  });
}

}  // namespace
}  // namespace ddp

int ddp_main(int argc, char** argv) {
  std::vector<ddp::Experiment> table;
  for (const ddp::StepExperiment& each : {ddp::compare_ddp(), ddp::ddp_suite(), ddp::bucketed_ddp(),
                                          ddp::step_time(), ddp::bucket_overhead()}) {
    table.push_back(
        {.name = each.name, .about = each.about, .run = [each](int count, char** words) {
           return ddp::run(each, count, words);
         }});
  }
  return ddp::run_experiment("How long a training step takes", table, argc, argv);
}
