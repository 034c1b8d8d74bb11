#include <ATen/ATen.h>

#include <functional>
#include <sstream>
#include <string_view>

#include "ring_data.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/grading.h"

// Bad arguments are reported before anything is sent.

namespace ddp::testing {

namespace {

// A stub's own error, not ATen's for an operator that a dtype lacks.
bool is_stub(const c10::Error& error) {
  return std::string_view(error.what()).find("TODO(student)") != std::string_view::npos;
}

// `provoke` must throw c10::Error before this rank has communicated anything.
void expect_error(Rank& rank, const std::string& what, const std::function<void()>& provoke) {
  rank.recorder().clear();
  try {
    provoke();
    ADD_FAILURE() << what << " should throw c10::Error; nothing was thrown";
  } catch (const c10::Error& error) {
    if (is_stub(error)) {
      throw;
    }
    expect_silence(rank, what + ": before the error this rank");
  } catch (const std::exception& error) {
    ADD_FAILURE() << what << " should throw c10::Error; it threw something else: " << error.what();
  }
}

using Call = std::function<void(const at::Tensor&, const ProcessGroupPtr&)>;

void expect_errors_of_tensors(Rank& rank, const std::string& name, const Call& call) {
  const at::TensorOptions options(settings().device);
  expect_error(rank, name + " of an undefined tensor", [&] { call(at::Tensor(), rank.group()); });
  expect_error(rank, name + " with a null group",
               [&] { call(at::ones({6}, options), ProcessGroupPtr()); });
  for (const at::ScalarType dtype :
       {at::kBool, at::kComplexFloat, at::kComplexDouble, at::kFloat8_e4m3fn}) {
    for (const std::int64_t size : {8, 0}) {
      expect_error(rank,
                   name + " of " + std::to_string(size) + " elements of " +
                       c10::getDtypeNames(dtype).first + ", a dtype that the header does not list,",
                   [&] { call(at::zeros({size}, options.dtype(dtype)), rank.group()); });
    }
  }
}

void expect_errors_of_ops(Rank& rank, const std::string& name,
                          const std::function<void(const at::Tensor&, ReduceOp)>& call) {
  const at::TensorOptions options(settings().device);
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    expect_error(rank, name + " with " + (op == ReduceOp::kMin ? "kMin" : "kMax"),
                 [&] { call(at::ones({6}, options), op); });
  }
  for (const at::ScalarType dtype : {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte}) {
    for (const std::int64_t size : {8, 0}) {
      expect_error(rank,
                   name + ": the average of " + std::to_string(size) + " elements of " +
                       c10::getDtypeNames(dtype).first + ", of which integers have none,",
                   [&] { call(at::ones({size}, options.dtype(dtype)), ReduceOp::kAverage); });
    }
  }
}

// An error does not affect later calls.
void expect_all_reduce(Rank& rank) {
  const RingCase one{.elements = 10, .op = ReduceOp::kAverage};
  const at::Tensor tensor = whole_values(one, rank.rank(), rank.world_size());
  ring_all_reduce(tensor, rank.group(), one.op);
  EXPECT_TRUE(
      is_close({describe(one) + ", called after arguments that were refused,", rank.world_size()},
               tensor, combined_whole_values(one, rank.world_size()), tolerance_of(one)));
}

const GradedTest kErrors{
    {.name = "bad_arguments_are_refused_before_any_message",
     .points = 1,
     .hint =
         "TORCH_CHECK() what the header lists, at the very beginning of each function, also "
         "for one rank and for no elements: a rank that has sent already leaves others waiting."},
    [] {
      run_worlds({1, 2, 3}, [](Rank& rank) {
        expect_errors_of_tensors(rank, "ring_reduce_scatter()",
                                 [](const auto& t, const auto& g) { ring_reduce_scatter(t, g); });
        expect_errors_of_tensors(rank, "ring_all_gather()",
                                 [](const auto& t, const auto& g) { ring_all_gather(t, g); });
        expect_errors_of_tensors(rank, "ring_all_reduce()",
                                 [](const auto& t, const auto& g) { ring_all_reduce(t, g); });
        expect_errors_of_ops(rank, "ring_reduce_scatter()", [&](const auto& t, ReduceOp op) {
          ring_reduce_scatter(t, rank.group(), op);
        });
        expect_errors_of_ops(rank, "ring_all_reduce()", [&](const auto& t, ReduceOp op) {
          ring_all_reduce(t, rank.group(), op);
        });
        std::ostringstream out;
        expect_error(rank, "print_in_rank_order() with a null group",
                     [&] { print_in_rank_order("hello", out, ProcessGroupPtr()); });
        expect_all_reduce(rank);
      });
    }};

}  // namespace

}  // namespace ddp::testing
