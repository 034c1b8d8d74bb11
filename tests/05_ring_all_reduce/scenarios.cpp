#include "scenarios.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <sstream>

#include "ddp/libtorch_versions.h"
#include "ddp/referee/client.h"
#include "grader/calls.h"
#include "grader/run_output.h"
#include "grader/settings.h"
#include "grader/training.h"

namespace ddp::testing {

namespace {

// What is charged with a scenario, unless the scenario has another test of its own; by function.
constexpr const char* kCharged[] = {"reduce_scatter_completes_chunk_r_on_rank_r",
                                    "all_gather_hands_chunk_r_of_rank_r_to_all",
                                    "all_reduce_gives_every_rank_the_sum_or_average"};
constexpr const char* kStorageTest = "the_result_is_in_the_callers_storage";
constexpr const char* kMemoryTest = "memory_beside_the_tensor_is_one_chunk";

using Calls = std::vector<RingCall>;

// Calls of several functions in a world, of which each function makes a scenario: so a function is judged
// before the others are written.
struct Plan {
  std::string name;
  World world;
  Calls calls;
  std::string charged_to;
  EdgeCases edge_cases = {};  // beside the number of ranks
};

constexpr const char* kModes = "modes that the caller has chosen";
constexpr const char* kAutograd = "tensors that autograd knows";
constexpr const char* kOddNumbers = "numbers that are subnormal, infinite or none";

Scenario scenario_of(const Plan& plan, Function function) {
  std::vector<RingCall> calls;
  std::ranges::copy_if(plan.calls, std::back_inserter(calls),
                       [&](const RingCall& call) { return call.function == function; });
  return calling(to_string(function) + ", " + plan.name, plan.world, calls,
                 plan.charged_to.empty() ? kCharged[static_cast<int>(function)] : plan.charged_to,
                 with_ranks(plan.edge_cases, plan.world.ranks));
}

struct Kind {
  at::ScalarType dtype;
  ReduceOp op;
};

// Every dtype of the contract with each of its ops.
constexpr Kind kKinds[] = {{at::kFloat, ReduceOp::kSum},    {at::kBFloat16, ReduceOp::kAverage},
                           {at::kLong, ReduceOp::kSum},     {at::kDouble, ReduceOp::kAverage},
                           {at::kHalf, ReduceOp::kSum},     {at::kFloat, ReduceOp::kAverage},
                           {at::kInt, ReduceOp::kSum},      {at::kDouble, ReduceOp::kSum},
                           {at::kHalf, ReduceOp::kAverage}, {at::kShort, ReduceOp::kSum},
                           {at::kBFloat16, ReduceOp::kSum}, {at::kByte, ReduceOp::kSum},
                           {at::kChar, ReduceOp::kSum}};
constexpr Kind kAverage = {at::kFloat, ReduceOp::kAverage};

// A call of each function.
Calls calls_of(std::int64_t elements, const Kind& kind) {
  const RingCall call{.elements = elements, .dtype = kind.dtype, .op = kind.op};
  Calls calls(3, call);
  calls[0].function = Function::kReduceScatter;
  calls[1] = {.function = Function::kAllGather,
              .elements = elements,
              .dtype = kind.dtype,
              .values = Values::kBits};
  return calls;
}

void append(Calls& calls, const Calls& more) {
  calls.insert(calls.end(), more.begin(), more.end());
}

// `name` and the number of ranks name it.
Plan on(int ranks, const std::string& name, const Calls& calls, const EdgeCases& edge_cases = {},
        const std::string& charged_to = "") {
  return {name + ", " + on_ranks(ranks), {.ranks = ranks}, calls, charged_to, edge_cases};
}

// Sizes around the number of ranks, and others.
Plan small_tensors(int ranks) {
  const std::int64_t n = ranks;
  std::vector<std::int64_t> sizes = {n + 1, 1, 64 * n, 2 * n - 1};
  if (ranks < 5) {
    sizes.insert(sizes.end(), {std::max(n - 1, std::int64_t{1}), n, 17, 1003});
  }
  Calls calls;
  for (const std::int64_t size : sizes) {
    append(calls, calls_of(size, {at::kFloat,
                                  calls.size() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAverage}));
  }
  return on(ranks, "small tensors", calls);
}

Plan no_elements(int ranks) {
  Calls calls = calls_of(0, {at::kFloat, ReduceOp::kSum});
  append(calls, calls_of(0, kAverage));
  append(calls, calls_of(5, kAverage));
  return on(ranks, "tensors without elements", calls, {kEmpty});
}

// Every kind, of sizes around the number of ranks, too.
Plan all_kinds(int ranks) {
  Calls calls;
  std::int64_t elements = ranks == 2 ? 257 : 1;
  for (const Kind& kind : kKinds) {
    append(calls, calls_of(elements, kind));
    elements += ranks == 2 ? 0 : 1;
  }
  return on(ranks, "all dtypes", calls, {kDtype});
}

// Of each floating dtype, sums and averages.
Calls floating_calls(std::int64_t elements, std::initializer_list<Values> all_values) {
  Calls calls;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const Values values : all_values) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
        calls.push_back({.elements = elements, .dtype = dtype, .op = op, .values = values});
      }
    }
  }
  return calls;
}

// Enough numbers, and enough ranks, that some results are rounded as much as they may be.
Plan rounded(int ranks) {
  return on(ranks, "numbers that are rounded", floating_calls(4'099, {Values::kPlain}), {kDtype});
}

Plan odd_numbers(int ranks) {
  return on(ranks, kOddNumbers, floating_calls(26, {Values::kNotFinite, Values::kSubnormal}),
            {kOddNumbers, kDtype});
}

// A group's ranks are not the world's, and some ranks are in more groups than others.
Plan several_groups() {
  Calls calls;
  for (const GroupIndex group : {1, 2, 0, 3, 2, 4, 1, 3, 0}) {
    for (RingCall call : calls_of(12, kAverage)) {
      call.group = group;
      calls.push_back(call);
    }
  }
  return {"several groups",
          {.ranks = 5, .subgroups = {{3, 1, 4}, {0, 4}, {4, 3, 2, 1, 0}, {2}}},
          calls,
          "",
          {kGroups}};
}

Plan slow_network() {
  return {"a slow network", {.ranks = 2, .slow = true}, calls_of(12, kAverage), ""};
}

// About a mebibyte, so that chunks are larger than what memory is not counted. Larger and larger
// ones: a chunk's memory may be kept.
Plan large_tensors(int ranks) {
  const std::int64_t bytes = std::int64_t{1} << 20;
  const bool plain = ranks == 2;
  std::vector<Kind> kinds = {{at::kHalf, ReduceOp::kAverage},   {at::kInt, ReduceOp::kSum},
                             {at::kBFloat16, ReduceOp::kSum},   {at::kFloat, ReduceOp::kAverage},
                             {at::kDouble, ReduceOp::kAverage}, {at::kLong, ReduceOp::kSum},
                             {at::kChar, ReduceOp::kSum}};
  Calls calls = {{.elements = 10}, {.elements = 10, .op = ReduceOp::kAverage}};
  for (std::size_t i = 0; i < (ranks < 5 ? 3 : 1); ++i) {
    const Kind kind = plain ? Kind{at::kFloat, i % 2 == 0 ? ReduceOp::kAverage : ReduceOp::kSum}
                            : kinds[(ranks + 2 * i) % kinds.size()];
    const auto size = static_cast<std::int64_t>(c10::elementSize(kind.dtype));
    const std::int64_t elements = (bytes + static_cast<std::int64_t>(i) * 40'000) / size + 1;
    calls.push_back({.elements = elements, .dtype = kind.dtype, .op = kind.op});
  }
  calls.push_back({.elements = 10});  // what a large one needed is not kept
  return on(ranks, "large tensors", calls, plain ? EdgeCases{} : EdgeCases{kDtype}, kMemoryTest);
}

Plan many_ranks() {
  return {"many ranks", {.ranks = 17}, {{.elements = 20, .op = ReduceOp::kAverage}}, ""};
}

Plan a_million_elements() {
  return {"a million elements",
          {.ranks = 2},
          {{.elements = 65'537},
           {.elements = (1 << 20) + 3},
           {.elements = 1 << 20, .op = ReduceOp::kAverage},
           {.elements = 9 << 18}},  // chunks of more than 4 MiB
          ""};
}

Plan strided(int ranks) {
  Calls calls;
  for (const StridedView& view : strided_views()) {
    calls.push_back({.view = &view});
    calls.push_back({.op = ReduceOp::kAverage, .view = &view});
    for (const Function function : {Function::kReduceScatter, Function::kAllGather}) {
      calls.push_back({.function = function, .view = &view});
    }
  }
  calls.push_back(
      {.function = Function::kAllGather, .values = Values::kZeros, .view = &strided_views()[0]});
  return on(ranks, "tensors that are not contiguous", calls, {kStridedTensors}, kLayoutsTest);
}

Plan strided_on_odd_ranks() {
  return {"a tensor that is not contiguous on odd ranks alone",
          {.ranks = 2},
          {{.view = &strided_views()[0], .on_odd_ranks = true}},
          kLayoutsTest,
          {kStridedTensors}};
}

Plan autograd_knows(int ranks) {
  Calls calls;
  for (const Autograd autograd :
       {Autograd::kNone, Autograd::kParameter, Autograd::kResult, Autograd::kOff}) {
    for (const StridedView* view :
         {static_cast<const StridedView*>(nullptr), &strided_views()[0], &strided_views()[6]}) {
      for (RingCall call : calls_of(35, kAverage)) {
        call.values = Values::kPlain;
        call.view = view;
        call.autograd = autograd;
        calls.push_back(call);
      }
    }
  }
  calls.push_back({.elements = 140'000, .autograd = Autograd::kParameter});  // memory is watched
  return on(ranks, "parameters, and results of autograd", calls, {kAutograd, kStridedTensors},
            kStorageTest);
}

Plan unusual_modes() { return {kModes, {}, calls_of(12, kAverage), kStorageTest, {kModes}}; }

const std::vector<Plan>& plans() {
  static const std::vector<Plan> all = {
      small_tensors(2),  small_tensors(1),  small_tensors(3),  small_tensors(4),
      small_tensors(5),  small_tensors(6),  small_tensors(7),  small_tensors(8),
      small_tensors(9),  all_kinds(2),      all_kinds(3),      rounded(3),
      rounded(4),        no_elements(2),    no_elements(3),    rounded(8),
      odd_numbers(2),    odd_numbers(3),    several_groups(),  slow_network(),
      strided(2),        strided(1),        strided(3),        strided_on_odd_ranks(),
      autograd_knows(2), autograd_knows(1), autograd_knows(3), large_tensors(2),
      large_tensors(3),  large_tensors(5),  large_tensors(8),  a_million_elements(),
      many_ranks(),      unusual_modes()};
  return all;
}

// As a sharded optimizer does, which updates its rank's chunk in between.
Scenario one_tensor_in_several_calls() {
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

}  // namespace

EdgeCases with_ranks(EdgeCases edge_cases, int ranks) {
  if (ranks == 1) {
    edge_cases.insert(kOneRank);
  } else if (ranks % 2 == 1 || ranks == 6) {
    edge_cases.insert("a number of ranks that is no power of two");
  }
  return edge_cases;
}

Scenario calling(const std::string& name, const World& world, const std::vector<RingCall>& calls,
                 const std::string& charged_to, const EdgeCases& edge_cases) {
  return {name, world,
          [calls, modes = edge_cases.contains(kModes)](Client& client) {
            if (modes) {
              choose_unusual_modes();
            }
            RingCaller caller(client);
            for (const RingCall& call : calls) {
              caller.call(call);
            }
          },
          charged_to, edge_cases};
}

std::vector<Scenario> scenarios_of(Function function) {
  std::vector<Scenario> scenarios;
  for (const Plan& plan : plans()) {
    if (std::ranges::find(plan.calls, function, &RingCall::function) != plan.calls.end()) {
      scenarios.push_back(scenario_of(plan, function));
    }
  }
  if (function == Function::kAllGather) {
    scenarios.push_back(one_tensor_in_several_calls());
  }
  return scenarios;
}

std::vector<Scenario> all_scenarios() {
  return joined({scenarios_of(Function::kAllReduce), scenarios_of(Function::kReduceScatter),
                 scenarios_of(Function::kAllGather)});
}

// Scenarios that call with wrong arguments, many times, or with one tensor.

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
                  ", a dtype that the header does not list",
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
                  dtype_name(dtype) + ", of which integers have none",
              [&] { call(tensor, ReduceOp::kAverage); });
    }
  }
}

// An error does not affect later calls.
Scenario misuse(int ranks) {
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
Scenario lost_connection(int ranks, bool last) {
  Scenario scenario{(last ? "the last message fails, " : "a message fails, ") + on_ranks(ranks),
                    {.ranks = ranks, .subgroups = {members_of({.ranks = ranks}, 0)}},
                    [](Client& client) {
                      RingCaller caller(client);
                      const at::Tensor weight =
                          at::ones({12}, settings().device).set_requires_grad(true);
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
  scenario.world.failure = Failure{.operation = last ? all - 1 : ranks};
  return scenario;
}

Scenario lost_turn() {
  Scenario scenario{
      "the message between two lines fails",
      {},
      [](Client& client) {
        const ProcessGroupPtr group = make_group(client.shared_from_this());
        std::ostringstream out;
        expect_lost_connection(client, "print_in_rank_order() of which a message fails",
                               [&] { print_in_rank_order("hello", out, group); });
        TORCH_CHECK(client.rank() == 0 || out.str().empty(),
                    "rank 1 has written its line, although the message that says when failed");
      },
      kErrorsTest};
  scenario.world.failure = Failure{.operation = 0};
  return scenario;
}

}  // namespace

std::string on_ranks(int ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

std::vector<Scenario> for_ranks(std::initializer_list<int> numbers,
                                Scenario (*scenario)(int ranks)) {
  std::vector<Scenario> scenarios;
  for (const int ranks : numbers) {
    scenarios.push_back(scenario(ranks));
  }
  return scenarios;
}

std::vector<Scenario> misuse_scenarios() {
  return joined({for_ranks({2, 1, 3}, misuse),
                 {lost_connection(2, false), lost_connection(3, false), lost_connection(2, true),
                  lost_turn()}});
}

Scenario many_calls() {
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
