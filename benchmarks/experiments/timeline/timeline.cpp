// Stages 01 to 03: what happens within a training step of each variant, compared with libtorch's
// own c10d::Reducer. It replaces the screenshots of a profiler.
//
// With the virtual clock everything follows from the costs given by flags, and is the same in every
// run: computation from the costs of the layers, communication from the alpha-beta model of the
// simulated network. With the real clock the network is Gloo, optionally limited by --rate-gbit.
//
// A step begins on all ranks together and ends when all gradients are averages. The variants are
// interleaved; for each, the step of median length after the warm-up is drawn. All are in one
// Chrome trace, each starting at time zero.
#include <ATen/ATen.h>

#include <cstdio>
#include <filesystem>
#include <map>

#include "ddp/meters/statistics.h"
#include "ddp/simulation/simulated_network.h"
#include "ddp/simulation/timeline_backend.h"
#include "experiments/timeline/layered_model.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/presets.h"
#include "harness/result_file.h"
#include "harness/trainer.h"
#include "harness/variants.h"
#include "harness/workload.h"

namespace {

using namespace ddp;
namespace fs = std::filesystem;

constexpr const char* kProgram = "timeline";
constexpr const char* kVirtual = "virtual";
constexpr const char* kStepEnd = "step end";

const std::map<std::string, Size> kPresets = {
    {"quick", {.batch = 8, .image = 32, .steps = 5, .warmup = 3}},
    {"full", {.batch = 16, .image = 32, .steps = 15, .warmup = 3}},
    {"paper", {.batch = 32, .image = 32, .steps = 51, .warmup = 3}},
};
const PresetsInWords kInWords = {
    .quick = "3 steps to warm up, 5 measured, on 8 images of 32x32 a rank",
    .full = "3 and 15 steps, on 16 images",
    .paper = "3 and 51 steps, on 32 images",
};

struct Settings : BenchmarkOptions {
  std::string clock = kVirtual;
  NetworkModel network{.alpha_ns = 150'000, .beta_ns_per_byte = 1.0, .launch_overhead_ns = 100'000};
  LayerCosts costs;
  double slower = 0.1;
  Workload workload{.model = "layered"};
  TrainerOptions trainer{{.cap_bytes = std::int64_t{1} << 20}};
};

// Where steps run, and by which clock.
struct Place {
  ProcessGroupPtr group;
  std::shared_ptr<Timeline> timeline;
  std::shared_ptr<VirtualClock> clock;  // null: real time
  std::function<std::int64_t()> begin_step, end_step;
};

Place make_virtual_place(const Settings& settings, const RankContext& context) {
  TORCH_CHECK_VALUE(context.board != nullptr,
                    "the virtual clock needs ranks that share memory: start this without torchrun, "
                    "mpirun or srun, with --world-size, or choose --clock real");
  Place place;
  place.timeline = std::make_shared<Timeline>();
  place.clock = std::make_shared<VirtualClock>();
  const auto network =
      c10::make_intrusive<SimulatedNetwork>(make_gloo_backend(context, std::chrono::minutes(5)),
                                            place.clock, settings.network, *context.board);
  place.clock->draw_on(place.timeline);
  network->draw_on(place.timeline);
  place.group = make_process_group(network, store_for_next_backend(context));
  place.begin_step = [network] { return network->start_step(); };
  place.end_step = [network] { return network->step_end(); };
  return place;
}

Place make_real_place(const DeviceContext& device_context, const RankContext& context) {
  const bool one_machine = placement_of(context).one_machine;
  return {.group = device_context.group,
          .timeline = device_context.timeline,
          .clock = nullptr,
          .begin_step = [group = device_context.group,
                         one_machine] { return agree_on_origin(group, one_machine); },
          .end_step = steady_ns};
}

LayerCosts costs_of_rank(const Settings& settings, int rank) {
  LayerCosts costs = settings.costs;
  for (auto* of_layers : {&costs.forward_us, &costs.backward_us}) {
    for (double& microseconds : *of_layers) {
      microseconds *= 1 + settings.slower * rank;
    }
  }
  return costs;
}

std::vector<Trainer> make_trainers(const Settings& settings, const Place& place,
                                   const std::vector<std::string>& variants) {
  TrainerOptions options = settings.trainer;
  options.timeline = place.timeline;
  options.clock = place.clock;
  const LayeredModelOptions model = {.seed = settings.seed,
                                     .clock = place.clock,
                                     .costs = costs_of_rank(settings, place.group->getRank()),
                                     .timeline = place.timeline};
  std::vector<Trainer> trainers;
  trainers.reserve(variants.size());
  for (const std::string& variant : variants) {
    trainers.emplace_back(variant, make_layered_model(model), place.group, options);
  }
  return trainers;
}

// A step as one rank observed it.
struct DrawnStep {
  double seconds = 0;
  std::vector<Span> spans;
};

DrawnStep draw_step(const Place& place, Trainer& trainer, const LabelledBatch& batch) {
  const std::int64_t begin = place.begin_step();
  place.timeline->take_spans();  // discards earlier spans
  place.timeline->set_origin(begin);
  trainer.backward(trainer.forward(batch));
  trainer.finish();
  const std::int64_t end = place.end_step();
  place.timeline->settle();
  place.timeline->add(SpanKind::kInstant, kStepEnd, end, end);
  DrawnStep step = {.seconds = 1e-9 * static_cast<double>(end - begin),
                    .spans = place.timeline->take_spans()};
  trainer.update();
  return step;
}

struct Measured {
  at::Tensor seconds;       // [variants, steps]: of the slowest rank
  std::vector<Span> spans;  // of this rank, in the median step of each variant
};

Measured measure(const Settings& settings, const DeviceContext& device_context, const Place& place,
                 std::vector<Trainer>& trainers) {
  const LabelledBatch batch = make_batch(settings.workload, settings.seed, device_context);
  const auto [unused_batch, unused_image, steps, warmup] = settings.workload.size;
  const auto variants = static_cast<std::int64_t>(trainers.size());
  at::Tensor seconds = at::empty({variants, steps}, at::kDouble);
  std::vector<std::vector<DrawnStep>> drawn(variants);
  for (int repetition = -warmup; repetition < steps; ++repetition) {
    for (std::int64_t variant = 0; variant < variants; ++variant) {
      DrawnStep step = draw_step(place, trainers[variant], batch);
      if (repetition >= 0) {
        seconds[variant][repetition] = step.seconds;
        drawn[variant].push_back(std::move(step));
      }
    }
  }
  all_reduce(seconds, device_context.group, ReduceOp::kMax);

  Measured measured = {.seconds = seconds, .spans = {}};
  const at::Tensor median = seconds.argsort(/*stable=*/true, /*dim=*/1).select(1, (steps - 1) / 2);
  for (std::int64_t variant = 0; variant < variants; ++variant) {
    const std::vector<Span>& spans = drawn[variant][median[variant].item<std::int64_t>()].spans;
    measured.spans.insert(measured.spans.end(), spans.begin(), spans.end());
  }
  return measured;
}

// The path of the trace, relative to the result.
std::string path_of_trace(const Settings& settings) {
  return fs::absolute(settings.trace)
      .lexically_proximate(fs::absolute(settings.output).parent_path());
}

Result to_result(const Settings& settings, const Run& run, const Measured& measured,
                 const std::vector<std::string>& variants, const Trainer& trainer) {
  Result result = {
      .run = run, .parameters = describe(settings.workload, trainer.parameters()), .series = {}};
  result.parameters.insert(result.parameters.end(),
                           {{"clock", settings.clock},
                            {"trace", path_of_trace(settings)},
                            {"cap_bytes", settings.trainer.cap_bytes},
                            {"first_bucket_bytes", settings.trainer.first_bucket_bytes},
                            {"rate_gbit", settings.rate_gbit}});
  if (settings.clock == kVirtual) {
    result.parameters.insert(result.parameters.end(),
                             {{"alpha_ns", settings.network.alpha_ns},
                              {"beta_ns_per_byte", settings.network.beta_ns_per_byte},
                              {"launch_overhead_ns", settings.network.launch_overhead_ns},
                              {"slower", settings.slower}});
  }
  for (std::size_t variant = 0; variant < variants.size(); ++variant) {
    const at::Tensor row = measured.seconds[static_cast<std::int64_t>(variant)];
    const auto* values = row.const_data_ptr<double>();
    result.series.push_back({.labels = {{"variant", variants[variant]}},
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

void run_rank(const RankContext& context, const Settings& settings) {
  const DeviceContext device_context = make_device_context(settings, context);
  const Place place = settings.clock == kVirtual ? make_virtual_place(settings, context)
                                                 : make_real_place(device_context, context);
  const std::vector<std::string> variants =
      usable_variants({"naive", "flat", "overlapped", "bucketed", "Reducer"},
                      settings.implementation, device_context);
  std::vector<Trainer> trainers = make_trainers(settings, place, variants);
  const Measured measured = measure(settings, device_context, place, trainers);
  if (context.rank == 0) {
    const Run run = to_run(settings, kProgram, place.group);
    const Result result = to_result(settings, run, measured, variants, trainers.front());
    save_result(settings, result);
    print_table(result);
  }
  save_trace(settings, context, measured.spans);
}

void add_flags(CommandLine& line, Settings& settings) {
  line.add("--clock", settings.clock, "Whose time is drawn")
      .one_of({kVirtual, "real"})
      .show_default();
  const auto number = [&](const char* flag, auto& value, const char* what) {
    line.add(flag, value, what).non_negative().show_default();
  };
  number("--alpha-ns", settings.network.alpha_ns, "Virtual: latency of a message");
  number("--beta-ns-per-byte", settings.network.beta_ns_per_byte, "Virtual: time of a byte");
  number("--launch-overhead-ns", settings.network.launch_overhead_ns,
         "Virtual: what a launch costs the caller");
  number("--forward-us", settings.costs.forward_us, "Virtual: of conv1, conv2, conv3, fc1, fc2");
  number("--backward-us", settings.costs.backward_us, "Virtual: of the same");
  number("--slower", settings.slower,
         "Virtual: the part by which each rank computes longer than the one before it");
  const auto positive = [&](const char* flag, auto& value, const char* what) {
    line.add(flag, value, what).positive();
  };
  positive("--batch-size", settings.workload.size.batch, "Images of a rank; default: the preset's");
  positive("--steps", settings.workload.size.steps, "Measured steps; default: the preset's");
  positive("--cap-bytes", settings.trainer.cap_bytes, "A bucket's: bucketed and Reducer");
  positive("--first-bucket-bytes", settings.trainer.first_bucket_bytes,
           "The Reducer's first bucket");
}

// The files' default places: results and traces refer to each other.
void choose_files(Settings& settings) {
  Run run;
  run.program = kProgram;
  run.implementation = settings.implementation;
  run.preset = settings.preset;
  if (settings.output.empty()) {
    settings.output = default_result_path(run);
  }
  if (settings.trace.empty()) {
    settings.trace = fs::path(settings.output).replace_extension(".trace.json");
  }
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CommandLine line("What happens within a step, with each way of averaging gradients");
  Settings settings;
  ddp::add_flags(line, settings, argc, argv);
  add_flags(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = line.parse(argc, argv)) {
    return *code;
  }
  apply_preset(settings.workload.size, kPresets.at(settings.preset));
  choose_files(settings);
  return run_benchmark(settings,
                       [&settings](RankContext& context) { run_rank(context, settings); });
}
