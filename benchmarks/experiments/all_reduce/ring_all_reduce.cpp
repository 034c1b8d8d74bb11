// The student's ring compared with the given butterfly, with as many elements as ranks, and with the
// backend's own all-reduce, with more.
//
// Source: two published tables, column for column (figures/reference/ring_all_reduce.*.csv). As there,
// each repeat of each variant forks its ranks anew, on the CPU, connects them, and measures the first
// call of their lives:
//
//     time    seconds from before the rank draws its input until the call returns, so with all
//             that a process does once: no rank waits for the others before; the maximum over ranks
//     maxrss  getrusage()'s ru_maxrss, in KiB, when the call has ended; the maximum over ranks
//     diff    the sum of the squared errors of rank 0's result against the mean in float32, of
//             the same input in every repeat
//
// Published ranks were spawned, with an interpreter each, which is in their time and memory; ours are
// forked. What one of many calls costs: see collectives.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <sys/resource.h>

#include <map>

#include "experiments/all_reduce/all_reduce.h"
#include "measuring/interleaved.h"
#include "measuring/resumable_rows.h"

namespace ddp {
namespace {

// As published, by world size.
const std::map<int, std::int64_t> kElementsBesideAllReduce = {
    {1, 1024}, {2, 2048}, {4, 4096}, {8, 16384}, {16, 131072}};

AllReduceSettings first_call_defaults(const std::string& preset) {
  AllReduceSettings settings;
  settings.worlds = {1, 2, 4, 8, 16, 32};
  settings.repetitions = preset == "full" || preset == "paper" ? 10 : 3;
  return settings;
}

void add_first_call_flags(CLI::App& line, AllReduceSettings& settings) {
  for (const char* flag : {"--device", "--trace"}) {
    line.remove_option(line.get_option(flag));  // ranks live for one call, on the CPU
  }
  add_number(line, "--repetitions", settings.repetitions, "How often each variant is measured");
  add_resume_flag(line, settings);
}

// What one pool of ranks measures.
struct Call {
  std::string baseline, variant;
  std::int64_t world, elements;
  std::size_t number;  // of the repeat

  Parameters labels() const {
    return {{"baseline", baseline},
            {"world_size", world},
            {"tensor_size", elements},
            {"variant", variant}};
  }
};

// The ring and its baseline are interleaved.
std::vector<Call> calls_of(const AllReduceSettings& settings) {
  std::vector<Call> calls;
  for (const int world : settings.worlds) {
    std::vector<std::pair<std::string, std::int64_t>> baselines = {{"butterfly", world}};
    if (const auto found = kElementsBesideAllReduce.find(world);
        found != kElementsBesideAllReduce.end()) {
      baselines.emplace_back("all_reduce", found->second);
    }
    for (const auto& [baseline, elements] : baselines) {
      for (int number = 0; number < settings.repetitions; ++number) {
        for (const std::string& variant : {std::string(kRing), baseline}) {
          calls.push_back({baseline, variant, world, elements, static_cast<std::size_t>(number)});
        }
      }
    }
  }
  return calls;
}

// Rank 0's answer on all ranks. It goes by the store: the first message is yet to be measured.
bool is_saved(const Call& call, const ResumableRows& rows, const RankContext& context) {
  const StorePtr store = store_for_next_backend(context);
  const std::string key = "saved";
  if (context.rank == 0) {
    const bool saved = rows.repetitions_of(call.labels()) > call.number;
    store->set(key, std::vector<std::uint8_t>{saved});
  }
  return store->get(key).at(0) != 0;
}

// The input is random float32, the same in every run with the same seed. `books` is a group besides
// the one that is measured.
std::vector<Series> call_once(const AllReduceSettings& settings, const Call& call,
                              const DeviceContext& ranks, const DeviceContext& books) {
  const Stopwatch watch;
  at::Generator generator = at::detail::createCPUGenerator(settings.seed + ranks.group->getRank());
  const at::Tensor input = at::randn({call.elements}, generator).to(ranks.device);
  const at::Tensor output = input.clone();
  all_reduce_named(call.variant).run(output, ranks.group, ReduceOp::kAverage);
  const double seconds = watch.seconds();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  usable_all_reduces({call.variant}, books.device, books.group);
  const at::Tensor largest = largest_of_ranks(
      at::tensor({seconds, static_cast<double>(usage.ru_maxrss)}, at::kDouble), books);
  const at::Tensor mean = all_gather(input, books.group).mean(0);
  const double diff = (output - mean).square().sum().item<double>();
  return {
      {.labels = {{"quantity", "time"}}, .unit = "s", .values = {largest[0].item<double>()}},
      {.labels = {{"quantity", "maxrss"}}, .unit = "KiB", .values = {largest[1].item<double>()}},
      {.labels = {{"quantity", "diff"}}, .unit = "1", .values = {diff}}};
}

void run_first_call(const RankContext& context, const AllReduceSettings& settings, const Call& call,
                    bool last) {
  TORCH_CHECK(context.forked,
              "each call is the first of new ranks, which launchers do not fork: "
              "start it without, or see the experiment collectives");
  const DeviceContext books = make_device_context(settings, context);
  const Result header =
      header_of_worlds(settings.worlds, to_run(settings, "ring_all_reduce", books.group),
                       {{"dtype", "float32"},
                        {"rate_gbit", settings.rate_gbit},
                        {"latency_us", settings.latency_us},
                        {"repetitions", settings.repetitions}});
  ResumableRows rows(settings, header, books);
  if (!is_saved(call, rows, context)) {
    rows.add(call.labels(),
             call_once(settings, call, make_device_context(settings, context), books));
  }
  if (last) {
    rows.finish();
  }
}

int measure_first_calls(AllReduceSettings settings) {
  const std::vector<Call> calls = calls_of(settings);
  Progress progress("ring_all_reduce, first calls", static_cast<int>(calls.size()));
  for (const Call& call : calls) {
    const auto body = [&](RankContext& context) {
      run_first_call(context, settings, call, &call == &calls.back());
    };
    if (const int code = run_ranks(settings, static_cast<int>(call.world), body)) {
      return code;
    }
    progress.advance();
  }
  return 0;
}

}  // namespace

AllReduceExperiment ring_all_reduce_table() {
  return {.name = "ring_all_reduce",
          .about =
              "First calls of new processes over world sizes, as two published tables have "
              "them",
          .presets = {.quick = "the published 6 rows beside the butterfly, of 1 to 32 ranks, and 5 "
                               "beside the backend's all_reduce, of 1 to 16, with 3 repeats each",
                      .full = "the same with the published 10 repeats",
                      .paper = "as full: what is published ran on the CPU, so no GPU is needed"},
          .gpus = 0,
          .defaults = first_call_defaults,
          .add_flags = add_first_call_flags,
          .run = measure_first_calls};
}

}  // namespace ddp
