// Stage 05: the student's ring beside the given butterfly, with as many elements as ranks, and
// beside the backend's own all-reduce, with more: the two published tables, column for column.
//
// Both take turns, call by call, on equal input: random float32, averaged over the ranks. Published
// is the mean over 10 repeats of the maximum over ranks; what a repeat contained beside the call,
// such as the start of processes, is not known. Here
//
//     time       seconds of the call alone, which all ranks begin together, after a warm-up
//     maxrss     getrusage()'s ru_maxrss, in KiB, when the call has ended: the most memory that the
//                process ever had, or, where Linux can forget that, had since the call began
//     allocated  the most bytes that the call had allocated at once, beyond the tensor: of tensors
//                only, so not what the backend keeps for itself
//     diff       the squared errors of the result's elements, added up: against the mean in float64
//
// each of them the largest of all ranks.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <map>

#include "command_line.h"
#include "ddp/benchmark.h"
#include "ddp/device_timer.h"
#include "support/all_reduces.h"
#include "support/peak_memory.h"
#include "support/turns.h"
#include "support/worlds.h"

namespace {

using namespace ddp;

struct Quantity {
  const char* name;
  const char* unit;
};
constexpr std::array kQuantities = {Quantity{"time", "s"}, Quantity{"maxrss", "KiB"},
                                    Quantity{"allocated", "bytes"}, Quantity{"diff", "1"}};

// The ring beside a peer, in one world.
struct Cell {
  std::string peer;
  int world;
  std::int64_t elements;

  std::array<std::string, 2> variants() const { return {kRing, peer}; }
};

const std::vector<int> kWorlds = {1, 2, 4, 8, 16, 32};
const std::map<int, std::int64_t> kElementsBesideAllReduce = {
    {1, 1024}, {2, 2048}, {4, 4096}, {8, 16384}, {16, 131072}};

const std::map<std::string, Rounds> kPresets = {
    {"quick", {.measured = 10, .warmup = 2}},
    {"full", {.measured = 10'000, .warmup = 10}},
    {"paper", {.measured = 10, .warmup = 2}},
};

struct Settings : BenchmarkOptions {
  std::vector<int> worlds;
  Rounds rounds;
};

std::vector<Cell> cells_of(int world) {
  std::vector<Cell> cells = {{"butterfly", world, world}};
  if (const auto found = kElementsBesideAllReduce.find(world);
      found != kElementsBesideAllReduce.end()) {
    cells.push_back({"all_reduce", world, found->second});
  }
  return cells;
}

// From here on the most memory that the process has had is what it has now. Only Linux knows how,
// and not in every container; elsewhere the most ever counts on.
void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

double peak_memory_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss);
}

// What a rank measures in one cell.
class Measurement {
 public:
  Measurement(const Settings& settings, const Cell& cell, const Workplace& workplace)
      : settings_(settings), cell_(cell), workplace_(workplace) {}

  // kQuantities of one call: of its memory in tensors, of one more.
  std::vector<double> measure(const AllReduce& variant, int round) {
    const at::Tensor input = make_input(round);
    const at::Tensor tensor = input.clone();
    forget_peak_memory();
    barrier(workplace_.group);
    timer_->start();
    variant.run(tensor, workplace_.group, ReduceOp::kAverage);
    timer_->stop();
    const double seconds = timer_->seconds();
    const double kib = peak_memory_kib();
    const at::Tensor mean = input.to(at::kDouble);
    all_reduce(mean, workplace_.group, ReduceOp::kAverage);
    const double diff = (tensor - mean).square().sum().item<double>();
    const std::int64_t allocated = peak_bytes(
        workplace_.device, [&] { variant.run(input, workplace_.group, ReduceOp::kAverage); });
    return {seconds, kib, static_cast<double>(allocated), diff};
  }

 private:
  at::Tensor make_input(int round) const {
    const int ranks = workplace_.group->getSize();
    at::Generator generator = at::detail::createCPUGenerator(settings_.seed + round * ranks +
                                                             workplace_.group->getRank());
    return at::randn({cell_.elements}, generator).to(workplace_.device);
  }

  const Settings& settings_;
  const Cell& cell_;
  const Workplace& workplace_;
  std::unique_ptr<DeviceTimer> timer_ = make_device_timer(workplace_.device);
};

// [rounds, variants, quantities]
at::Tensor measure_cell(const Settings& settings, const Cell& cell, const Workplace& workplace,
                        std::optional<Progress>& progress) {
  const auto [ring, peer] = cell.variants();
  const auto variants = usable_all_reduces({ring, peer}, workplace.device, workplace.group);
  Measurement measurement(settings, cell, workplace);
  int calls = 0;
  const at::Tensor values = take_turns(
      settings.rounds, variants.size(),
      [&](std::size_t variant) {
        return measurement.measure(variants[variant], calls++ / static_cast<int>(variants.size()));
      },
      progress);
  return largest_of_ranks(values, workplace);
}

std::size_t numbers_of(const Settings& settings) {
  std::size_t cells = 0;
  for (const int world : settings.worlds) {
    cells += cells_of(world).size();
  }
  return cells * settings.rounds.measured * 2 * kQuantities.size();
}

// `measured` keeps every cell's [rounds, variants, quantities], one after the other.
Result to_result(const Settings& settings, const ProcessGroupPtr& group,
                 const SharedNumbers& measured) {
  Result result = {.run = to_run(settings, "ring_all_reduce", group),
                   .parameters = {{"dtype", "float32"},
                                  {"rate_gbit", settings.rate_gbit},
                                  {"rounds", std::int64_t{settings.rounds.measured}},
                                  {"warmup", std::int64_t{settings.rounds.warmup}}},
                   .series = {}};
  const at::Tensor all =
      at::tensor(at::ArrayRef<double>(measured.all().data(), measured.all().size()), at::kDouble)
          .view({-1, settings.rounds.measured, 2, static_cast<std::int64_t>(kQuantities.size())});
  std::int64_t number = 0;
  for (const int world : settings.worlds) {
    for (const Cell& cell : cells_of(world)) {
      for (std::size_t variant = 0; variant < cell.variants().size(); ++variant) {
        for (std::size_t quantity = 0; quantity < kQuantities.size(); ++quantity) {
          result.series.push_back(series_of(all[number], variant, quantity,
                                            {{"peer", cell.peer},
                                             {"world_size", std::int64_t{cell.world}},
                                             {"tensor_size", cell.elements},
                                             {"variant", cell.variants()[variant]},
                                             {"quantity", kQuantities[quantity].name}}));
          result.series.back().unit = kQuantities[quantity].unit;
        }
      }
      ++number;
    }
  }
  return result;
}

void print_table(const Result& result) {
  std::printf("%-13s%7s%12s  %-12s%12s%14s%18s%12s\n", "beside", "ranks", "elements", "means of",
              "time [s]", "maxrss [KiB]", "allocated [bytes]", "diff");
  for (std::size_t i = 0; i < result.series.size(); i += kQuantities.size()) {
    const Parameters& labels = result.series[i].labels;
    const auto mean = [&](std::size_t quantity) {
      return summarize(result.series[i + quantity].values).mean;
    };
    std::printf("%-13s%7lld%12lld  %-12s%12.6f%14.1f%18.0f%12.4e\n",
                std::get<std::string>(labels[0].second).c_str(),
                static_cast<long long>(std::get<std::int64_t>(labels[1].second)),
                static_cast<long long>(std::get<std::int64_t>(labels[2].second)),
                std::get<std::string>(labels[3].second).c_str(), mean(0), mean(1), mean(2),
                mean(3));
  }
}

void run_rank(const RankContext& context, const Settings& settings, SharedNumbers& measured) {
  const Workplace workplace = make_workplace(settings, context);
  const std::vector<Cell> cells = cells_of(context.world_size);
  std::optional<Progress> progress;
  if (context.rank == 0) {
    const int rounds = settings.rounds.warmup + settings.rounds.measured;
    progress.emplace("ring_all_reduce, rounds of " + std::to_string(context.world_size) + " ranks",
                     static_cast<int>(cells.size()) * rounds);
  }
  for (const Cell& cell : cells) {
    const at::Tensor values = measure_cell(settings, cell, workplace, progress);
    if (context.rank == 0) {
      measured.append({values.const_data_ptr<double>(), static_cast<std::size_t>(values.numel())});
    }
  }
  if (context.rank == 0 && context.world_size == settings.worlds.back()) {
    const Result result = to_result(settings, workplace.group, measured);
    save_result(settings, result);
    print_table(result);
  }
  save_trace(settings, context, workplace);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App app(
      "Ring against butterfly, and against the backend's own all-reduce, over world sizes");
  Settings settings;
  add_flags(app, settings, argc, argv);
  describe_worlds(app, kWorlds);
  add_flags(app, settings.rounds);
  CLI11_PARSE(app, argc, argv);
  apply_preset(settings.rounds, kPresets.at(settings.preset));
  settings.worlds = choose_worlds(app, settings, kWorlds);
  SharedNumbers measured(numbers_of(settings));
  return run_worlds(settings, settings.worlds, kRingStage,
                    [&](RankContext& context) { run_rank(context, settings, measured); });
}
