// Stage 05: the student's ring compared with the given butterfly, with as many elements as ranks,
// and with the backend's own all-reduce, with more: the two published tables, column for column, by
// the published procedure (first_calls.h), and, as the second, by warm calls (warm_calls.h).
//
// Published is the mean over 10 repeats of the maximum over ranks.
#include <map>

#include "experiments/ring_all_reduce/first_calls.h"
#include "experiments/ring_all_reduce/warm_calls.h"
#include "harness/command_line.h"
#include "harness/presets.h"
#include "harness/worlds.h"

namespace {

using namespace ddp;

const std::vector<int> kWorlds = {1, 2, 4, 8, 16, 32};

using Presets = std::map<std::string, Repetitions>;

constexpr Repetitions kAsPublished = {.measured = 10, .warmup = 0};
const Presets kFirstCalls = {
    {"quick", {.measured = 3, .warmup = 0}}, {"full", kAsPublished}, {"paper", kAsPublished}};
constexpr Repetitions kMany = {.measured = 10'000, .warmup = 10};
const Presets kWarmCalls = {
    {"quick", {.measured = 10, .warmup = 2}}, {"full", kMany}, {"paper", kMany}};
const PresetsInWords kInWords = {
    .quick =
        "the published 6 rows beside the butterfly, of 1 to 32 ranks, and 5 beside the "
        "backend's all_reduce, of 1 to 16, with 3 repeats each; --procedure warm: 10 calls after 2",
    .full =
        "the same with the published 10 repeats; --procedure warm: 10,000 calls after 10, which "
        "nobody has published",
    .paper = "as full: what is published ran on the CPU, so no GPU is needed",
};

// What the flags ask for and the procedure cannot give; empty: nothing.
std::string mistake_in(const CLI::App& line, const RingOptions& settings) {
  if (settings.procedure == kWarmProcedure) {
    return "";
  }
  const std::string instead = "; give --procedure warm";
  if (settings.device != "cpu") {
    return "the published procedure is on the CPU, not --device " + settings.device + instead;
  }
  if (line.count("--warmup") > 0) {
    return "the published procedure measures first calls, without --warmup" + instead;
  }
  if (!settings.trace.empty()) {
    return "--trace draws ranks that stay, and the published procedure forks new ones for each "
           "call" +
           instead;
  }
  return "";
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line(
      "Ring against butterfly, and against the backend's own all-reduce, over world sizes");
  RingOptions settings;
  add_flags(line, settings, argc, argv);
  line.add_option("--procedure", settings.procedure,
                  "published: new processes for each call; warm: calls one after the other")
      ->check(CLI::IsMember({kPublishedProcedure, kWarmProcedure}))
      ->capture_default_str();
  describe_worlds(line, kWorlds);
  add_flags(line, settings.repetitions);
  add_resume_flag(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv)) {
    return *code;
  }
  if (const std::string mistake = mistake_in(line, settings); !mistake.empty()) {
    return refuse(line, mistake);
  }
  const bool warm = settings.procedure == kWarmProcedure;
  apply_preset(settings.repetitions, (warm ? kWarmCalls : kFirstCalls).at(settings.preset));
  settings.worlds = choose_worlds(line, settings, kWorlds);
  return warm ? measure_warm_calls(settings) : measure_first_calls(settings);
}
