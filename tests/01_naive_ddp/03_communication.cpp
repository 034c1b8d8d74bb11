#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "support/compare.h"
#include "support/grading.h"
#include "support/oracle.h"
#include "trainee.h"

// What is communicated, and when.

namespace ddp::testing {

namespace {

// A barrier has no data, and so no dtype.
std::string dtype_of(const RecordedOperation& operation) {
  return operation.dtype == at::ScalarType::Undefined ? "nothing"
                                                      : c10::getDtypeNames(operation.dtype).first;
}

std::string list_of(const std::vector<RecordedOperation>& operations) {
  std::ostringstream out;
  for (const RecordedOperation& operation : operations) {
    out << "\n    " << operation_name(operation.type) << " of " << operation.name << ", "
        << operation.bytes << " bytes of " << dtype_of(operation);
  }
  return operations.empty() ? " nothing" : out.str();
}

// The payloads of the all-reduces, sorted. Anything else that carries data is a failure; a barrier
// carries none.
std::vector<std::int64_t> payloads(const std::vector<RecordedOperation>& operations) {
  std::vector<std::int64_t> bytes;
  for (const RecordedOperation& operation : operations) {
    if (operation.is_all_reduce()) {
      bytes.push_back(operation.bytes);
    } else {
      EXPECT_EQ(operation.bytes, 0)
          << "finish() should communicate by all-reduce only; it did:" << list_of(operations);
    }
  }
  std::sort(bytes.begin(), bytes.end());
  return bytes;
}

std::vector<std::int64_t> gradient_bytes(const Trainee& trainee) {
  std::vector<std::int64_t> bytes;
  for (const NamedTensor& parameter : trainee.parameters) {
    bytes.push_back(static_cast<std::int64_t>(parameter.tensor.nbytes()));
  }
  std::sort(bytes.begin(), bytes.end());
  return bytes;
}

void expect_silence(Rank& rank, const std::string& when) {
  const auto operations = rank.recorder().operations();
  EXPECT_TRUE(operations.empty()) << when << " communicated:" << list_of(operations);
}

// By payload and dtype, not by name: a temporary on one rank may stand for a gradient on another.
void expect_same_order_everywhere(Rank& rank, const std::vector<RecordedOperation>& operations) {
  std::ostringstream order;
  for (const RecordedOperation& operation : operations) {
    order << operation_name(operation.type) << " " << operation.bytes << " " << dtype_of(operation)
          << ", ";
  }
  const at::Tensor mine = at::scalar_tensor(
      static_cast<std::int64_t>(std::hash<std::string>{}(order.str())), at::kLong);
  const at::Tensor all = all_gather(mine.to(settings().device), rank.group());
  EXPECT_TRUE(all.eq(all[0]).all().item<bool>())
      << "the order of the all-reduces is not the same on all ranks; here it was:"
      << list_of(operations);
}

// A step communicates `expected` in finish(), and nothing before it. On one rank it may communicate
// nothing.
void expect_payloads(Rank& rank, Trainee& trainee, const std::vector<std::int64_t>& expected,
                     const std::string& what) {
  rank.recorder().clear();
  trainee.backward(0);
  expect_silence(rank, "forward or backward (" + what + ")");
  trainee.synchronizer->finish();
  const auto operations = rank.recorder().operations();
  if (rank.world_size() > 1 || !operations.empty()) {
    EXPECT_EQ(payloads(operations), expected) << "these are the bytes of each all-reduce (" << what
                                              << "); finish() did:" << list_of(operations);
  }
  expect_same_order_everywhere(rank, operations);
}

void expect_silent_no_sync(Rank& rank, Trainee& trainee) {
  trainee.clear_gradients(/*to_none=*/true);
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
          Trainee trainee(rank, kind, toy_options(rank, at::kFloat));
          expect_payloads(rank, trainee, gradient_bytes(trainee), "model: " + to_string(kind));
          expect_silent_no_sync(rank, trainee);
        }
      });
    }};

void expect_flat_step(Rank& rank, ToyKind kind, at::ScalarType dtype) {
  Trainee trainee(rank, kind, toy_options(rank, dtype), Form::kFlat);
  Oracle oracle(kind, trainee.options, rank.world_size());
  const auto each = gradient_bytes(trainee);
  std::int64_t total = 0;
  for (const std::int64_t bytes : each) {
    total += bytes;
  }
  expect_payloads(rank, trainee, {total}, "flat form, model: " + to_string(kind));
  const auto expected = oracle.gradients(0, rank.rank());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].mean.defined()) {
      const auto& [name, parameter] = trainee.parameters[i];
      EXPECT_TRUE(is_close(
          {"flat form: " + gradient_name(name, kind, dtype), rank.world_size(), expected[i].local},
          parameter.grad(), expected[i].mean, gradient_tolerance(expected[i], rank.world_size())));
    }
  }
  expect_silent_no_sync(rank, trainee);
}

const GradedTest kFlat{
    {.name = "flat_form_is_one_all_reduce",
     .points = 1,
     .hint = "make_flat_ddp: put all gradients one after the other into one tensor, zeros for "
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
              Trainee trainee(rank, ToyKind::kMlp, toy_options(rank, at::kFloat), form);
              rank.recorder().clear();
              trainee.backward(0);
              trainee.synchronizer->finish();
              EXPECT_FALSE(payloads(rank.recorder().operations()).empty())
                  << "finish() made no all-reduce, so there was nothing to watch";
            }
          },
          options);
    }};

}  // namespace

}  // namespace ddp::testing
