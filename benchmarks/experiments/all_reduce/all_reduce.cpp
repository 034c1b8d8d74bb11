// Times of all-reduces: one program for all experiments about them, which are a table (all_reduce.h).
#include "experiments/all_reduce/all_reduce.h"

#include "measuring/resumable_rows.h"

namespace ddp {

std::vector<std::int64_t> sizes_between(std::int64_t smallest, std::int64_t largest, int factor) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = smallest; bytes <= largest; bytes *= factor) {
    sizes.push_back(bytes);
  }
  return sizes;
}

int run_ranks(AllReduceSettings& settings, int world, const RankFunction& body) {
  settings.world_size = world;
  const int code = run_benchmark(settings, kRingStage, body);
  settings.later_world = true;
  return code;
}

namespace {

int run(const AllReduceExperiment& experiment, int argc, char** argv) {
  CLI::App line(experiment.about);
  AllReduceSettings settings = experiment.defaults(preset_in(argc, argv));
  add_flags(line, settings, argc, argv);
  describe_worlds(line, settings.worlds);
  experiment.add_flags(line, settings);
  describe_presets(line, experiment.presets);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (experiment.gpus > 0) {
    if (const int code = check_preset(line, settings, {.gpus = experiment.gpus})) {
      return code;
    }
  }
  settings.worlds = choose_worlds(line, settings, settings.worlds);
  if (settings.worlds.size() > 1 && !settings.trace.empty()) {
    return refuse(line, "--trace draws one world of ranks: choose it with --world-size");
  }
  if (line.count("--world-size") > 0) {
    settings.on_cluster.clear();
  }
  return experiment.run(std::move(settings));
}

}  // namespace
}  // namespace ddp

int ddp_main(int argc, char** argv) {
  std::vector<ddp::Experiment> table;
  for (const ddp::AllReduceExperiment& each :
       {ddp::collectives(), ddp::ring_all_reduce_table(), ddp::all_reduce_algorithms()}) {
    table.push_back(
        {.name = each.name, .about = each.about, .run = [each](int count, char** words) {
           return ddp::run(each, count, words);
         }});
  }
  return ddp::run_experiment("How long all-reduces take: stage 05's ring, and others", table, argc,
                             argv);
}
