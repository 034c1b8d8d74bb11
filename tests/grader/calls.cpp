#include "grader/calls.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>

#include <cfenv>
#include <filesystem>
#include <iterator>
#include <utility>

#include "ddp/ranks/exceptions.h"
#include "grader/training_evidence.h"

namespace ddp::testing {

namespace {

const std::string kLeftChanged = "left changed: ";

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

void attempt(Client& client, const std::string& what, const std::function<void()>& call) {
  const bool must_fail = what.starts_with(kMustFail);
  const KeptSurroundings kept(client, must_fail ? what.substr(kMustFail.size()) : what);
  client.fact(kAttempt, 1);
  try {
    call();
  } catch (const c10::Error& error) {
    if (is_stub_error(error)) {
      throw;
    }
    client.threw(what, std::string("c10::Error: ") + error.what_without_backtrace());
    return;
  } catch (const std::exception& error) {
    client.threw(what, std::string("std::exception: ") + error.what());
    return;
  } catch (...) {
    client.threw(what, what_was_thrown());
    return;
  }
  client.threw(what, "");
}

void expect_failure(Client& client, const std::string& what, const std::function<void()>& call) {
  attempt(client, kMustFail + what, call);
}

void expect_lost_connection(Client& client, const std::string& what,
                            const std::function<void()>& call) {
  expect_failure(client, what, [&] {
    call();
    TORCH_CHECK(client.has_failed(), "the operation that fails was not launched");
  });
}

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
      client_.fact(kLeftChanged + call_ + " changed " + what, 1);
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

void choose_unusual_modes() {
  at::globalContext().setFlushDenormal(true);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::set_num_threads(at::get_num_threads() + 1);
}

Finding surroundings_are_left_alone(const Evidence& evidence) {
  return first_event(evidence, EventKind::kFact, [](const Seen& fact, int rank) -> Finding {
    const auto what = rest_of(fact.text, kLeftChanged);
    return what ? where(fact, rank) + ": " + *what +
                      " and left it so: restore the caller's setting, also where an exception "
                      "leaves (guards such as at::NoGradGuard do)"
                : "";
  });
}

void HeldMeter::count(Client& client) const {
  client.settle();
  std::int64_t references = 0;
  for (const at::Tensor& parameter : parameters_) {
    references += static_cast<std::int64_t>(parameter.grad().use_count());
  }
  client.fact("held: handles of operations", client.live_handles());
  client.fact("held: references to gradients", references);
  client.fact("held: bytes of tensors", meter_.live_bytes());
  client.fact("held: bytes of the heap", heap_bytes());
  client.fact("held: threads", std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                                             std::filesystem::directory_iterator()));
}

}  // namespace ddp::testing
