#include "harness/presets.h"

#include <cstdio>

#include "ddp/backends/cuda.h"
#include "harness/command_line.h"
#include "harness/machine.h"

namespace ddp {
namespace {

std::string in_words(const Hardware& hardware) {
  const std::string model = hardware.model.empty() ? "" : " named \"" + hardware.model + "\"";
  return std::to_string(hardware.gpus) + " GPU" + (hardware.gpus == 1 ? "" : "s") + model;
}

// The hardware this machine has instead; empty if it has enough.
std::string gap(const BenchmarkOptions& options, const Hardware& published) {
  if (options.device != "cuda") {
    return "--device " + options.device + " was asked for";
  }
  if (std::string reason = why_no_gpu(); !reason.empty()) {
    return reason;
  }
  if (const int gpus = visible_gpus(); gpus < published.gpus) {
    return "there are " + std::to_string(gpus);
  }
  const std::string names = gpu_names();
  return names.find(published.model) == std::string::npos ? "there are " + names : "";
}

/// CLI11's help, and then the presets, a line each: CLI11 2.5 and later make one paragraph of a footer.
class HelpWithPresets : public CLI::Formatter {
 public:
  explicit HelpWithPresets(std::string presets) : presets_(std::move(presets)) {}

  std::string make_help(const CLI::App* line, std::string name,
                        CLI::AppFormatMode mode) const override {
    return CLI::Formatter::make_help(line, std::move(name), mode) + presets_;
  }

 private:
  std::string presets_;
};

}  // namespace

void describe_presets(CLI::App& line, const PresetsInWords& words) {
  line.formatter(std::make_shared<HelpWithPresets>(
      "\nPresets:\n  quick  " + words.quick + "\n  full   " + words.full + "\n  paper  " +
      words.paper + (words.published.empty() ? "" : "\n  published  " + words.published) + "\n"));
}

int check_preset(const CLI::App& line, BenchmarkOptions& options, const Hardware& published) {
  if (options.preset != "paper") {
    return 0;
  }
  if (line.count("--device") == 0) {
    options.device = "cuda";
  }
  const std::string problem = gap(options, published);
  if (problem.empty()) {
    return 0;
  }
  std::fprintf(stderr,
               "--preset paper repeats the published experiment on its own hardware, %s: %s. "
               "--preset full measures the same anywhere\n",
               in_words(published).c_str(), problem.c_str());
  return kRefused;
}

std::optional<int> parse(CLI::App& line, int argc, char** argv, BenchmarkOptions& options,
                         const Hardware& published) {
  if (const auto code = parse(line, argc, argv)) {
    return code;
  }
  const int code = check_preset(line, options, published);
  return code == 0 ? std::nullopt : std::optional<int>(code);
}

}  // namespace ddp
