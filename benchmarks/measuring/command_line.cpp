#include "measuring/command_line.h"

#include <c10/util/StringUtil.h>

#include <cstdio>

#include "ddp/backends/cuda.h"
#include "measuring/result.h"

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

int run_experiment(const std::string& about, const std::vector<Experiment>& experiments, int argc,
                   char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  for (const Experiment& experiment : experiments) {
    if (experiment.name == name) {
      std::string command = std::string(argv[0]) + " " + name;
      argv[1] = command.data();  // what help and results call the program
      return experiment.run(argc - 1, argv + 1);
    }
  }
  const bool asked = name == "--help" || name == "-h";
  std::FILE* const stream = asked ? stdout : stderr;
  if (!asked) {
    std::fprintf(stderr, "%s; name one of those below\n\n",
                 name.empty() ? "no experiment is named"
                              : ("there is no experiment \"" + name + "\"").c_str());
  }
  std::fprintf(stream,
               "%s\n\nUsage: %s EXPERIMENT [OPTIONS]; EXPERIMENT --help has its options\n\n",
               about.c_str(), argv[0]);
  for (const Experiment& experiment : experiments) {
    std::fprintf(stream, "  %-23s%s\n", experiment.name.c_str(), experiment.about.c_str());
  }
  return asked ? 0 : kMisused;
}

std::optional<int> parse(CLI::App& line, int argc, char** argv) {
  std::vector<CLI::App*> all = line.get_subcommands([](const CLI::App*) { return true; });
  all.push_back(&line);
  for (CLI::App* one : all) {
    for (CLI::Option* option : one->get_options(
             [](const CLI::Option* option) { return option->get_items_expected_max() > 1; })) {
      option->delimiter(',');
    }
  }
  try {
    line.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return line.exit(error) == 0 ? 0 : kMisused;
  }
  for (const CLI::App* subcommand : line.get_subcommands()) {
    for (const CLI::Option* before : line.parse_order()) {
      return refuse(line, before->get_name() + ": the flags of " + subcommand->get_name() +
                              " follow its name");
    }
  }
  return std::nullopt;
}

int refuse(const CLI::App& line, const std::string& mistake) {
  line.exit(CLI::ValidationError(mistake));
  return kMisused;
}

CLI::Option* add_choice(CLI::App& line, const char* flag, std::string& value,
                        const std::string& what, const std::vector<std::string>& choices) {
  return line.add_option(flag, value, what)->check(CLI::IsMember(choices))->capture_default_str();
}

void add_flags(CLI::App& line, LinkLimit& limit) {
  line.add_option("--rate-gbit", limit.rate_gbit, "Limits the link, in Gbit/s; 0: as it is")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  line.add_option("--latency-us", limit.latency_us,
                  "Slows each message of the link down, by microseconds; 0: as it is")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

std::string preset_in(int argc, char** argv) {
  const std::string flag = "--preset";
  std::string preset;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with(flag + "=")) {
      preset = argument.substr(flag.size() + 1);
    } else if (argument == flag && i + 1 < argc) {
      preset = argv[i + 1];
    }
  }
  return preset;
}

void add_computing_flags(CLI::App& line, BenchmarkOptions& options, int argc, char** argv) {
  options.command_line = c10::Join(" ", std::vector<std::string>(argv, argv + argc));
  add_choice(line, "--impl", options.implementation, "Whose code runs",
             {"assignments", "solutions"});
  line.add_option("--output", options.output,
                  "Result file; default: figures/data/<program>.<impl>.<preset>.json");
}

void add_flags(CLI::App& line, BenchmarkOptions& options, int argc, char** argv) {
  add_computing_flags(line, options, argc, argv);
  add_choice(line, "--preset", options.preset, "How much is measured; single flags go before it",
             {"quick", "full", "paper"});
  add_choice(line, "--device", options.device, "Where the tensors are", {"cpu", "cuda"});
  add_choice(line, "--backend", options.backend,
             "What moves tensors; default: nccl where each rank has a GPU, else gloo",
             {kGlooBackend, kNcclBackend});
  add_number(line, "--world-size", options.world_size, "Number of ranks; a launcher overrides it",
             1, 32);
  add_flags(line, static_cast<LinkLimit&>(options));
  line.add_option("--seed", options.seed, "Of weights and data")->capture_default_str();
  line.add_option("--trace", options.trace,
                  "Also writes what each rank did and when, a Chrome trace for ui.perfetto.dev");
}

void describe_presets(CLI::App& line, const PresetsInWords& words) {
  line.formatter(std::make_shared<HelpWithPresets>("\nPresets:\n  quick  " + words.quick +
                                                   "\n  full   " + words.full + "\n  paper  " +
                                                   words.paper + "\n"));
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
  return code == 0 ? std::nullopt : std::optional(code);
}

}  // namespace ddp
