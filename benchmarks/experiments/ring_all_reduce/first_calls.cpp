#include <ATen/ATen.h>

#include "ddp/meters/statistics.h"
#include "experiments/ring_all_reduce/ring_all_reduce.h"

namespace ddp {
namespace {

constexpr std::array kQuantities = {Quantity{"time", "s"}, Quantity{"maxrss", "KiB"},
                                    Quantity{"diff", "1"}};

// What one pool of ranks measures.
struct Repeat {
  Pair pair;
  std::string variant;
  std::size_t number;
  bool last;  // of the run

  Parameters labels() const { return joined(pair.labels(), {{"variant", variant}}); }
};

// The variants are interleaved.
std::vector<Repeat> repeats_of(const RingOptions& settings) {
  std::vector<Repeat> repeats;
  for (const int world : settings.worlds) {
    for (const Pair& pair : pairs_of(world)) {
      for (int number = 0; number < settings.repetitions.measured; ++number) {
        for (const std::string& variant : pair.variants()) {
          repeats.push_back({.pair = pair,
                             .variant = variant,
                             .number = static_cast<std::size_t>(number),
                             .last = false});
        }
      }
    }
  }
  repeats.back().last = true;
  return repeats;
}

// Rank 0's answer on all ranks. It goes by the store: the first message is yet to be measured.
bool is_saved(const Repeat& repeat, const ResumableRows& rows, const RankContext& context) {
  const StorePtr store = store_for_next_backend(context);
  const std::string key = "saved";
  if (context.rank == 0) {
    const bool saved = rows.repetitions_of(repeat.labels()) > repeat.number;
    store->set(key, std::vector<std::uint8_t>{saved});
  }
  return store->get(key).at(0) != 0;
}

struct FirstCall {
  at::Tensor input, output;
  double seconds, kib;
};

FirstCall call_once(const RingOptions& settings, const Repeat& repeat,
                    const DeviceContext& device_context) {
  const Stopwatch watch;
  const at::Tensor input = draw_input(repeat.pair, settings.seed + device_context.group->getRank(),
                                      device_context.device);
  const at::Tensor output = input.clone();
  all_reduce_named(repeat.variant).run(output, device_context.group, ReduceOp::kAverage);
  return {.input = input, .output = output, .seconds = watch.seconds(), .kib = peak_memory_kib()};
}

std::vector<Series> series_of_ranks(const FirstCall& call, const DeviceContext& device_context) {
  const at::Tensor largest =
      largest_of_ranks(at::tensor({call.seconds, call.kib}, at::kDouble), device_context);
  const at::Tensor mean = all_gather(call.input, device_context.group).mean(0);
  const double diff = (call.output - mean).square().sum().item<double>();
  const std::array values = {largest[0].item<double>(), largest[1].item<double>(), diff};
  std::vector<Series> series;
  for (std::size_t i = 0; i < kQuantities.size(); ++i) {
    series.push_back({.labels = {{"quantity", kQuantities[i].name}},
                      .unit = kQuantities[i].unit,
                      .values = {values[i]}});
  }
  return series;
}

void run_rank(const RankContext& context, const RingOptions& settings, const Repeat& repeat) {
  TORCH_CHECK(context.forked,
              "the published procedure forks new ranks for each call, which torchrun, mpirun and "
              "srun do not; give --procedure warm");
  // Besides the group that is measured, one that keeps the books.
  const DeviceContext books = make_device_context(settings, context);
  ResumableRows rows(settings, header(settings, books.group), books);
  if (!is_saved(repeat, rows, context)) {
    const FirstCall call = call_once(settings, repeat, make_device_context(settings, context));
    usable_all_reduces({repeat.variant}, books.device, books.group);
    rows.add(repeat.labels(), series_of_ranks(call, books));
  }
  if (repeat.last) {
    const Result result = rows.finish();
    if (context.rank == 0) {
      print_table(result, kQuantities);
    }
  }
}

}  // namespace

int measure_first_calls(RingOptions settings) {
  const std::vector<Repeat> repeats = repeats_of(settings);
  Progress progress("ring_all_reduce, first calls", static_cast<int>(repeats.size()));
  for (const Repeat& repeat : repeats) {
    settings.world_size = static_cast<int>(repeat.pair.world);
    const int code = run_benchmark(
        settings, kRingStage, [&](RankContext& context) { run_rank(context, settings, repeat); });
    if (code != 0) {
      return code;
    }
    settings.later_world = true;
    progress.advance();
  }
  return 0;
}

}  // namespace ddp
