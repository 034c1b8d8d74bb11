#include "support/surroundings.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>

#include <cfenv>
#include <cstring>
#include <utility>

#include "support/claim_tools.h"
#include "support/training_evidence.h"

namespace ddp::testing {

namespace {

constexpr const char* kLeftChanged = "left changed: ";

// A number that is another one after a draw or a seed.
std::uint64_t state_of_random_numbers() {
  const at::mt19937_data_pod state =
      at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator())
          ->engine()
          .data();
  return state.seed_ * 1'000'003 + static_cast<std::uint64_t>(state.left_) * 65'537 +
         state.state_[0];
}

bool flushes_subnormals() {
  const volatile float subnormal = 1e-40F;
  return subnormal * 1.0F == 0;
}

}  // namespace

KeptSurroundings::State KeptSurroundings::now() {
  const at::Context& context = at::globalContext();
  return {.autograd = at::GradMode::is_enabled(),
          .default_dtype = c10::get_default_dtype_as_scalartype(),
          .threads = at::get_num_threads(),
          .random = state_of_random_numbers(),
          .rounding = std::fegetround(),
          .flushes_subnormals = flushes_subnormals(),
          .deterministic = context.deterministicAlgorithms(),
          .warns_only = context.deterministicAlgorithmsWarnOnly()};
}

KeptSurroundings::KeptSurroundings(Client& client, std::string call)
    : client_(client), call_(std::move(call)) {}

KeptSurroundings::~KeptSurroundings() {
  const State after = now();
  const auto tell = [&](bool changed, const char* what) {
    if (changed) {
      client_.fact(std::string(kLeftChanged) + what + " after " + call_, 1);
    }
  };
  tell(after.autograd != before_.autograd, "whether autograd is switched on");
  tell(after.default_dtype != before_.default_dtype, "the default dtype");
  tell(after.threads != before_.threads, "the number of threads");
  tell(after.random != before_.random, "the state of random numbers");
  tell(after.rounding != before_.rounding, "the rounding of arithmetic");
  tell(after.flushes_subnormals != before_.flushes_subnormals, "whether tiny numbers become zero");
  tell(after.deterministic != before_.deterministic || after.warns_only != before_.warns_only,
       "whether algorithms are deterministic");
  at::GradMode::set_enabled(before_.autograd);
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(before_.default_dtype));
}

void choose_rare_modes() {
  at::globalContext().setFlushDenormal(true);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::set_num_threads(at::get_num_threads() + 1);
}

std::string surroundings_are_left_alone(const Evidence& evidence) {
  return first_event(evidence, EventKind::kFact, [](const Seen& fact, int rank) -> std::string {
    return fact.text.starts_with(kLeftChanged)
               ? where(fact, rank) + ": " + fact.text.substr(std::strlen(kLeftChanged)) +
                     " is not as it was before, and belongs to the caller: set it back, where an "
                     "exception leaves, too (guards such as at::NoGradGuard do)"
               : "";
  });
}

}  // namespace ddp::testing
