#include <numeric>

#include "forms.h"
#include "support/communication_checks.h"
#include "support/gradient_checks.h"
#include "support/grading.h"

// What is communicated, and when.

namespace ddp::testing {

namespace {

// A step communicates `expected` (bytes, sorted) in finish(), and nothing before it. A single rank
// may communicate nothing.
void expect_payloads(Rank& rank, Trainee& trainee, const std::vector<std::int64_t>& expected,
                     const std::string& what) {
  rank.recorder().clear();
  trainee.backward(0);
  expect_silence(rank, "forward or backward (" + what + ")");
  trainee.synchronizer->finish();
  const auto operations = rank.recorder().operations();
  if (rank.world_size() > 1 || !operations.empty()) {
    EXPECT_EQ(sorted(payloads(all_reduces(operations))), expected)
        << "these are the bytes of each all-reduce (" << what
        << "); finish() did:" << list_of(operations);
  }
  expect_same_order_everywhere(rank, operations);
}

void expect_silent_no_sync(Rank& rank, Trainee& trainee) {
  clear_gradients(trainee.parameters, /*to_none=*/true);
  rank.recorder().clear();
  const NoSync scope(*trainee.synchronizer);
  trainee.backward(0);
  trainee.synchronizer->finish();
  expect_silence(rank, "a step inside a NoSync scope");
}

const GradedTest kOneEach{
    {.name = "one_all_reduce_per_parameter",
     .points = 2,
     .hint = "finish() makes one all-reduce for each trainable parameter, of exactly its bytes: "
             "none for frozen ones, one for a tied weight, none in forward, backward or NoSync."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          Trainee trainee(rank, kind, toy_options(rank, at::kFloat),
                          make_form(Form::kPerParameter));
          expect_payloads(rank, trainee, sorted(gradient_bytes(trainee.parameters)),
                          "model: " + to_string(kind));
          expect_silent_no_sync(rank, trainee);
        }
      });
    }};

void expect_flat_step(Rank& rank, ToyKind kind, at::ScalarType dtype) {
  Trainee trainee(rank, kind, toy_options(rank, dtype), make_form(Form::kFlat));
  Oracle oracle(kind, trainee.options, rank.world_size());
  const auto each = gradient_bytes(trainee.parameters);
  const std::int64_t total = std::accumulate(each.begin(), each.end(), std::int64_t{0});
  expect_payloads(rank, trainee, {total}, "flat form, model: " + to_string(kind));
  expect_mean_gradients(trainee, oracle, rank.world_size());
  expect_silent_no_sync(rank, trainee);
}

const GradedTest kFlat{
    {.name = "flat_form_is_one_all_reduce",
     .points = 1,
     .hint = "make_flat_ddp: put all gradients one after another into one tensor, zeros for "
             "missing ones, reduce it once, and copy every piece back to its gradient."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          expect_flat_step(rank, kind, at::kDouble);
          expect_flat_step(rank, kind, at::kFloat);
        }
      });
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_buffer_in_flight",
     .points = 1,
     .hint = "Between the launch of an all-reduce and its wait() the buffer belongs to the "
             "network: neither write it (dividing it) nor read it (a norm for a log)."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "buffers in flight are watched on the CPU only";
      }
      RankOptions options;
      options.watch_accesses = true;
      run_worlds(
          {2, 3},
          [](Rank& rank) {
            for (const Form form : {Form::kPerParameter, Form::kFlat}) {
              Trainee trainee(rank, ToyKind::kMlp, toy_options(rank, at::kFloat), make_form(form));
              rank.recorder().clear();
              trainee.backward(0);
              trainee.synchronizer->finish();
              EXPECT_FALSE(all_reduces(rank.recorder().operations()).empty())
                  << "finish() made no all-reduce, so there was nothing to watch";
            }
          },
          options);
    }};

}  // namespace

}  // namespace ddp::testing
