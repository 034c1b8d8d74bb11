#include <ATen/ATen.h>

#include <sstream>

#include "bodies.h"
#include "ddp/libtorch_versions.h"
#include "ddp/referee/client.h"
#include "support/calls.h"
#include "support/run_output.h"
#include "support/settings.h"
#include "support/training.h"

// Bodies that call with wrong arguments, many times, or with one tensor.

namespace ddp::testing {

namespace {

constexpr const char* kErrorsTest = "bad_arguments_are_refused_before_any_message";

using CallOfTensor = std::function<void(const at::Tensor&, const ProcessGroupPtr&)>;

void refuse_tensors(Client& client, const ProcessGroupPtr& group, const std::string& name,
                    const CallOfTensor& call) {
  const at::TensorOptions options(settings().device);
  attempt(client, name + " of an undefined tensor", [&] { call(at::Tensor(), group); });
  attempt(client, name + " of an undefined tensor with a null group",
          [&] { call(at::Tensor(), nullptr); });
  attempt(client, name + " with a null group", [&] { call(at::ones({6}, options), nullptr); });
  for (const at::ScalarType dtype :
       {at::kBool, at::kComplexHalf, at::kComplexFloat, at::kComplexDouble, at::kFloat8_e4m3fn,
        at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz}) {
    for (const std::int64_t size : {8, 0}) {
      attempt(client,
              name + " of " + std::to_string(size) + " elements of " + dtype_name(dtype) +
                  ", a dtype that the header does not list,",
              [&] { call(at::zeros({size}, options.dtype(dtype)), group); });
    }
  }
}

void refuse_ops(Client& client, const std::string& name,
                const std::function<void(const at::Tensor&, ReduceOp)>& call) {
  const at::TensorOptions options(settings().device);
  const std::pair<const char*, ReduceOp> others[] = {
      {"kMin", ReduceOp::kMin}, {"kMax", ReduceOp::kMax}, {"an op 7", static_cast<ReduceOp>(7)}};
  for (const auto& [op_name, op] : others) {
    for (const at::ScalarType dtype : {at::kFloat, at::kLong}) {
      attempt(client, name + " with " + op_name + " of " + dtype_name(dtype),
              [&, op = op] { call(at::ones({6}, options.dtype(dtype)), op); });
    }
  }
  for (const at::ScalarType dtype : {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte}) {
    const at::Tensor eight = at::ones({8}, options.dtype(dtype));
    call(eight, ReduceOp::kSum);  // right; so one that follows is not
    for (const at::Tensor& tensor : {eight, eight.narrow(0, 0, 0)}) {
      attempt(client,
              name + ": the average of " + std::to_string(tensor.numel()) + " elements of " +
                  dtype_name(dtype) + ", of which integers have none,",
              [&] { call(tensor, ReduceOp::kAverage); });
    }
  }
}

// An error does not affect later calls.
Body misuse(int ranks) {
  return {"wrong arguments, " + on_ranks(ranks),
          {.ranks = ranks},
          [](Client& client) {
            RingCaller caller(client);
            const ProcessGroupPtr group = caller.group(0);
            caller.call({.elements = 10, .op = ReduceOp::kAverage});
            const EachWarningOnce warnings("ComplexHalf");
            refuse_tensors(client, group, "ring_reduce_scatter()",
                           [](const auto& t, const auto& g) { ring_reduce_scatter(t, g); });
            refuse_tensors(client, group, "ring_all_gather()",
                           [](const auto& t, const auto& g) { ring_all_gather(t, g); });
            refuse_tensors(client, group, "ring_all_reduce()",
                           [](const auto& t, const auto& g) { ring_all_reduce(t, g); });
            refuse_ops(client, "ring_reduce_scatter()",
                       [&](const auto& t, ReduceOp op) { ring_reduce_scatter(t, group, op); });
            refuse_ops(client, "ring_all_reduce()",
                       [&](const auto& t, ReduceOp op) { ring_all_reduce(t, group, op); });
            std::ostringstream out;
            attempt(client, "print_in_rank_order() with a null group",
                    [&] { print_in_rank_order("hello", out, nullptr); });
            client.fact("attempt", 0);
            caller.call({.elements = 10, .op = ReduceOp::kAverage});
          },
          kErrorsTest,
          with_ranks({}, ranks)};
}

// One of the messages of a call is lost: in the middle, or the last. It is the only call that fails.
Body lost_connection(int ranks, bool last) {
  Body body{(last ? "the last message fails, " : "a message fails, ") + on_ranks(ranks),
            {.ranks = ranks, .subgroups = {members_of({.ranks = ranks}, 0)}},
            [](Client& client) {
              RingCaller caller(client);
              const at::Tensor weight = at::ones({12}, settings().device).set_requires_grad(true);
              expect_lost_connection(client, "ring_all_reduce() of which a message fails",
                                     [&] { ring_all_reduce(weight, caller.group(0)); });
              TORCH_CHECK(weight.requires_grad(),
                          "a call of which a message failed has left its "
                          "tensor, a parameter, without requires_grad");
              caller.call({.elements = 10, .group = 1});
            },
            kErrorsTest,
            with_ranks({}, ranks)};
  const int all = 4 * (ranks - 1);  // sends and recvs of both halves
  body.world.failure = Failure{.operation = last ? all - 1 : ranks};
  return body;
}

Body lost_turn() {
  Body body{"the message between two lines fails",
            {},
            [](Client& client) {
              const ProcessGroupPtr group = make_group(client.shared_from_this());
              std::ostringstream out;
              expect_lost_connection(client, "print_in_rank_order() of which a message fails",
                                     [&] { print_in_rank_order("hello", out, group); });
              TORCH_CHECK(
                  client.rank() == 0 || out.str().empty(),
                  "rank 1 has written its line, although the message that says when failed");
            },
            kErrorsTest};
  body.world.failure = Failure{.operation = 0};
  return body;
}

}  // namespace

// As a sharded optimizer does, which updates its rank's chunk in between.
Body one_tensor_in_several_calls() {
  return {"one tensor in several calls",
          {.ranks = 4},
          [](Client& client) {
            RingCaller caller(client);
            for (const StridedView* view :
                 {static_cast<const StridedView*>(nullptr), &strided_views()[0]}) {
              RingCall call{.elements = 63, .view = view};
              for (const Function function : {Function::kReduceScatter, Function::kAllGather,
                                              Function::kAllReduce, Function::kAllGather}) {
                call.function = function;
                caller.call(call);
                call.same_tensor = true;
              }
            }
          },
          "all_gather_hands_chunk_r_of_rank_r_to_all",
          {kStridedTensors}};
}

std::string on_ranks(int ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

std::vector<Body> for_ranks(std::initializer_list<int> numbers, Body (*body)(int ranks)) {
  std::vector<Body> bodies;
  for (const int ranks : numbers) {
    bodies.push_back(body(ranks));
  }
  return bodies;
}

std::vector<Body> misuse_bodies() {
  return joined({for_ranks({2, 1, 3}, misuse),
                 {lost_connection(2, false), lost_connection(3, false), lost_connection(2, true),
                  lost_turn()}});
}

Body many_calls() {
  return {"many calls",
          {},
          [](Client& client) {
            RingCaller caller(client);
            caller.call({.elements = 300});
            for (int call = 1; call <= 3 * kCallsBetweenCounts; ++call) {
              caller.quiet_call({.elements = 300});
              if (call % kCallsBetweenCounts == 0) {
                caller.count_what_is_held();
              }
            }
            caller.call({.elements = 300});
          },
          "memory_beside_the_tensor_is_one_chunk"};
}

}  // namespace ddp::testing
