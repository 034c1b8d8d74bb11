#include "harness/command_line.h"

#include <CLI/CLI.hpp>
#include <array>
#include <set>
#include <utility>

namespace ddp {

Flag& Flag::in_range(std::int64_t least, std::int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Flag& Flag::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Flag& Flag::non_negative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

Flag& Flag::one_of(std::vector<std::string> values) {
  option_->check(CLI::IsMember(std::move(values)));
  return *this;
}

Flag& Flag::needs(const std::string& other) {
  option_->needs(other);
  return *this;
}

Flag& Flag::show_default() {
  option_->capture_default_str();
  return *this;
}

Flag& Flag::show_default(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Flag& Flag::describe(const std::string& help) {
  option_->description(help);
  return *this;
}

CommandLine::CommandLine(const std::string& description)
    : app_(std::make_unique<CLI::App>(description)) {}

CommandLine::~CommandLine() = default;

template <FlagValue Value>
Flag CommandLine::add(const std::string& name, Value& value, const std::string& help) {
  CLI::Option* option = app_->add_option(name, value, help);
  if constexpr (CLI::detail::is_mutable_container<Value>::value) {
    option->delimiter(',');
  }
  return Flag(option);
}

template Flag CommandLine::add(const std::string&, int&, const std::string&);
template Flag CommandLine::add(const std::string&, std::int64_t&, const std::string&);
template Flag CommandLine::add(const std::string&, std::uint64_t&, const std::string&);
template Flag CommandLine::add(const std::string&, double&, const std::string&);
template Flag CommandLine::add(const std::string&, std::string&, const std::string&);
template Flag CommandLine::add(const std::string&, std::vector<int>&, const std::string&);
template Flag CommandLine::add(const std::string&, std::vector<std::int64_t>&, const std::string&);
template Flag CommandLine::add(const std::string&, std::vector<std::string>&, const std::string&);
template Flag CommandLine::add(const std::string&, std::set<int>&, const std::string&);
template Flag CommandLine::add(const std::string&, std::set<std::int64_t>&, const std::string&);
template Flag CommandLine::add(const std::string&, std::array<double, 5>&, const std::string&);

void CommandLine::add_switch(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

Flag CommandLine::find(const std::string& name) { return Flag(app_->get_option(name)); }

void CommandLine::remove(const std::string& name) { app_->remove_option(app_->get_option(name)); }

void CommandLine::set_footer(const std::string& text) { app_->footer(text); }

std::optional<int> CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error);
  }
  return std::nullopt;
}

bool CommandLine::given(const std::string& name) const { return app_->count(name) > 0; }

int CommandLine::refuse(const std::string& mistake) const {
  return app_->exit(CLI::ValidationError(mistake));
}

void add_flags(CommandLine& line, LinkLimit& limit) {
  line.add("--rate-gbit", limit.rate_gbit, "Limits the link, in Gbit/s; 0: as it is")
      .non_negative()
      .show_default();
  line.add("--latency-us", limit.latency_us,
           "Slows each message of the link down, by microseconds; 0: as it is")
      .non_negative()
      .show_default();
}

void add_flags(CommandLine& line, BenchmarkOptions& options, int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    options.command_line += (i == 0 ? "" : " ") + std::string(argv[i]);
  }
  line.add("--impl", options.implementation, "Whose code is measured")
      .one_of({"assignments", "solutions"})
      .show_default();
  line.add("--preset", options.preset, "How much is measured; single flags go before it")
      .one_of({"quick", "full", "paper"})
      .show_default();
  line.add("--device", options.device, "Where the tensors are")
      .one_of({"cpu", "cuda"})
      .show_default();
  line.add("--backend", options.backend,
           "What moves tensors; default: nccl where each rank has a GPU, else gloo. shm: shared "
           "memory, of ranks on one machine")
      .one_of({kGlooBackend, kNcclBackend, kShmBackend});
  line.add("--world-size", options.world_size,
           "Number of ranks; torchrun, mpirun or srun overrides it")
      .in_range(1, 32)
      .show_default();
  add_flags(line, static_cast<LinkLimit&>(options));
  line.add("--seed", options.seed, "Of weights and data").show_default();
  line.add("--output", options.output,
           "Result file; default: figures/data/<program>.<impl>.<preset>.json");
  line.add("--trace", options.trace,
           "Also writes what each rank did and when, a Chrome trace for ui.perfetto.dev");
}

}  // namespace ddp
