// Stage 05: the student's ring compared with the given butterfly, with as many elements as ranks,
// and with the backend's own all-reduce, with more: the two published tables, column for column, by
// the published procedure. What one of many calls costs, ranks that stay measure: see collectives.
//
// Each repeat of each variant forks its ranks anew, on the CPU, connects them, and measures the first
// call of their lives. Measured are, as published,
//
//     time    seconds from before the rank draws its input until the call returns, so with all
//             that a process does once: no rank waits for the others before; the maximum over ranks
//     maxrss  getrusage()'s ru_maxrss, in KiB, when the call has ended; the maximum over ranks
//     diff    the sum of the squared errors of rank 0's result against the mean in float32, of
//             the same input in every repeat
//
// Published is the mean over 10 repeats. Published ranks were spawned, with an interpreter each, which
// is in their time and memory; ours are forked.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <map>

#include "baselines/all_reduces.h"
#include "ddp/meters/statistics.h"
#include "measuring/command_line.h"
#include "measuring/interleaved.h"
#include "measuring/resumable_rows.h"

namespace {

using namespace ddp;

const std::vector<int> kWorlds = {1, 2, 4, 8, 16, 32};
// As published, by world size.
const std::map<std::int64_t, std::int64_t> kElementsBesideAllReduce = {
    {1, 1024}, {2, 2048}, {4, 4096}, {8, 16384}, {16, 131072}};

const std::map<std::string, int> kPresets = {{"quick", 3}, {"full", 10}, {"paper", 10}};
const PresetsInWords kInWords = {
    .quick =
        "the published 6 rows beside the butterfly, of 1 to 32 ranks, and 5 beside the "
        "backend's all_reduce, of 1 to 16, with 3 repeats each",
    .full = "the same with the published 10 repeats",
    .paper = "as full: what is published ran on the CPU, so no GPU is needed",
};

struct Quantity {
  const char* name;
  const char* unit;
};
constexpr std::array kQuantities = {Quantity{"time", "s"}, Quantity{"maxrss", "KiB"},
                                    Quantity{"diff", "1"}};

struct Settings : BenchmarkOptions {
  std::vector<int> worlds;
  int repetitions = 0;
};

// The ring and a baseline, in one world: a row of a published table.
struct Pair {
  std::string baseline;
  std::int64_t world, elements;

  std::array<std::string, 2> variants() const { return {kRing, baseline}; }
  Parameters labels() const {
    return {{"baseline", baseline}, {"world_size", world}, {"tensor_size", elements}};
  }
};

std::vector<Pair> pairs_of(int world) {
  std::vector<Pair> pairs = {{"butterfly", world, world}};
  if (const auto found = kElementsBesideAllReduce.find(world);
      found != kElementsBesideAllReduce.end()) {
    pairs.push_back({"all_reduce", world, found->second});
  }
  return pairs;
}

// What one pool of ranks measures.
struct Repeat {
  Pair pair;
  std::string variant;
  std::size_t number;
  bool last;  // of the run

  Parameters labels() const { return joined(pair.labels(), {{"variant", variant}}); }
};

// The variants are interleaved.
std::vector<Repeat> repeats_of(const Settings& settings) {
  std::vector<Repeat> repeats;
  for (const int world : settings.worlds) {
    for (const Pair& pair : pairs_of(world)) {
      for (int number = 0; number < settings.repetitions; ++number) {
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

// A rank's tensor: random float32, the same in every run with the same `seed`.
at::Tensor draw_input(const Pair& pair, std::uint64_t seed, const at::Device& device) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn({pair.elements}, generator).to(device);
}

double peak_memory_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss);
}

FirstCall call_once(const Settings& settings, const Repeat& repeat,
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

Result header(const Settings& settings, const ProcessGroupPtr& group) {
  return header_of_worlds(settings.worlds, to_run(settings, "ring_all_reduce", group),
                          {{"dtype", "float32"},
                           {"rate_gbit", settings.rate_gbit},
                           {"latency_us", settings.latency_us},
                           {"repetitions", std::int64_t{settings.repetitions}}});
}

// The means, a line for each row and variant.
void print_table(const Result& result) {
  std::printf("%-13s%7s%12s  %-12s", "beside", "ranks", "elements", "means of");
  for (const auto& [name, unit] : kQuantities) {
    std::printf("%20s", (std::string(name) + " [" + unit + "]").c_str());
  }
  for (std::size_t i = 0; i < result.series.size(); i += kQuantities.size()) {
    const Parameters& labels = result.series[i].labels;
    std::printf("\n%-13s%7lld%12lld  %-12s", std::get<std::string>(labels[0].second).c_str(),
                static_cast<long long>(std::get<std::int64_t>(labels[1].second)),
                static_cast<long long>(std::get<std::int64_t>(labels[2].second)),
                std::get<std::string>(labels[3].second).c_str());
    for (std::size_t quantity = 0; quantity < kQuantities.size(); ++quantity) {
      std::printf("%20.5g", summarize(result.series[i + quantity].values).mean);
    }
  }
  std::printf("\n");
}

void run_rank(const RankContext& context, const Settings& settings, const Repeat& repeat) {
  TORCH_CHECK(context.forked,
              "each call is the first of new ranks, which launchers do not fork: "
              "start it without, or see the program collectives");
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
      print_table(result);
    }
  }
}

int measure(Settings settings) {
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

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line(
      "Ring against butterfly, and against the backend's own all-reduce, over world sizes");
  Settings settings;
  settings.repetitions = chosen(kPresets, argc, argv);
  add_flags(line, settings, argc, argv);
  for (const char* flag : {"--device", "--trace"}) {
    line.remove_option(line.get_option(flag));  // ranks live for one call, on the CPU
  }
  describe_worlds(line, kWorlds);
  add_number(line, "--repetitions", settings.repetitions, "How often each variant is measured");
  add_resume_flag(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  settings.worlds = choose_worlds(line, settings, kWorlds);
  return measure(std::move(settings));
}
