#include <ATen/ATen.h>

#include <algorithm>

#include "norm_case.h"
#include "support/communication_checks.h"
#include "support/grading.h"
#include "support/operator_watch.h"

// What is communicated, how long it takes, and what backward computes itself.

namespace ddp::testing {

namespace {

// How many numbers a rank contributes. Whole structures may travel as bytes; their contents are
// unknown, so they count as float64.
std::int64_t elements_of(const RecordedOperation& operation) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(operation.dtype));
  return operation.bytes / (size == 1 ? 8 : size);
}

// Operations that carry data; the next test measures the cost of barriers.
std::vector<RecordedOperation> with_data(std::vector<RecordedOperation> operations) {
  std::erase_if(operations,
                [](const RecordedOperation& operation) { return operation.bytes == 0; });
  return operations;
}

// Since the last clear(): one collective, or none on a single rank.
void expect_one_collective(Rank& rank, const std::string& when, std::int64_t most_elements) {
  const auto operations = with_data(rank.recorder().operations());
  if (rank.world_size() == 1 && operations.empty()) {
    return;
  }
  const bool one = operations.size() == 1 && !operations[0].is_message();
  EXPECT_TRUE(one) << when << " should be one collective; here it was:" << list_of(operations);
  for (const RecordedOperation& operation : operations) {
    EXPECT_LE(elements_of(operation), most_elements)
        << when << ": a rank should put in at most " << most_elements
        << " elements; here it was:" << list_of(operations);
  }
  expect_same_order_everywhere(rank, operations);
}

// Forward and backward of one layer, with an input that does or does not require a gradient.
void expect_collectives(Rank& rank, const NormCase& norm, bool of_input) {
  const std::int64_t channels = norm.input().size(1);
  const std::string note =
      std::string(of_input ? "" : " where the input requires no gradient") + " " + norm.text();
  const at::Tensor input = of_input ? norm.input_shard() : norm.shard(norm.input());
  rank.recorder().clear();
  const at::Tensor output = sync_batch_norm(input, norm.tensors, rank.group());
  expect_one_collective(rank, "forward" + note, 2 * channels + 1);
  if (!output.requires_grad()) {
    return;
  }
  rank.recorder().clear();
  output.backward(norm.shard(norm.upstream()));
  if (of_input) {
    expect_one_collective(rank, "backward" + note, 2 * channels);
  } else {
    expect_silence(rank, "backward" + note);
  }
}

// The upstream gradient may be zero, on one rank or on all: no rank knows about the others.
void expect_collectives_of_zeros(Rank& rank, NormCase& norm) {
  const at::Tensor ones = at::zeros_like(norm.input());
  ones.narrow(0, 0, 1).fill_(1);
  norm.set_upstream(ones);
  expect_collectives(rank, norm, /*of_input=*/true);
}

void expect_collective_without_graph(Rank& rank, const NormCase& norm) {
  const at::NoGradGuard no_grad;
  rank.recorder().clear();
  sync_batch_norm(norm.input_shard(), norm.tensors, rank.group());
  expect_one_collective(rank, "forward without a graph " + norm.text(),
                        2 * norm.input().size(1) + 1);
}

const GradedTest kCollectives{
    {.name = "one_collective_each_way",
     .points = 2,
     .hint =
         "Put a rank's count, means and Ms into one flat tensor, for one all-gather or (as sums) "
         "all-reduce: 2C + 1 numbers. Backward: 2C sums, if needs_input_grad."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        const std::vector<std::int64_t> rows_of_last = [&] {
          std::vector<std::int64_t> rows(rank.world_size(), 0);
          rows.back() = 5;
          return rows;
        }();
        for (const CaseOptions& options : std::vector<CaseOptions>{
                 {.shape = {32, 128}},
                 {.shape = {9, 6, 4}, .dtype = at::kDouble},
                 {.shape = {8, 5, 3, 2}, .dtype = at::kHalf, .tensors_dtype = at::kFloat},
                 {.shape = {7, 3, 2, 1, 2}, .affine = false},
                 {.shape = {16, 1}},
                 {.shape = {5, 3}, .rows = rows_of_last}}) {
          NormCase norm(rank, options);
          expect_collectives(rank, norm, /*of_input=*/true);
          expect_collectives(rank, norm, /*of_input=*/false);
          expect_collective_without_graph(rank, norm);
          expect_collectives_of_zeros(rank, norm);
        }
      });
    }};

// One layer of the timed network. Computing times differ between ranks, except in the first layer's
// backward, which no collective follows.
struct TimedLayer {
  std::int64_t channels, forward_ns, backward_ns;
};

std::vector<TimedLayer> timed_layers(int rank) {
  return {{8, 3'000 + 500 * rank, 4'000},
          {300, 100, 9'000 - 700 * rank},
          {1, 2'500, 100 + 1'000 * rank},
          {64, 40 * rank, 3'000}};
}

// A wait by future advances no clock: then no exact time is known.
bool all_waited(const std::vector<RecordedOperation>& operations) {
  return std::ranges::all_of(operations,
                             [](const auto& operation) { return operation.waited >= 0; });
}

// One layer after another, with all ranks synchronized by the collectives: the slowest rank's
// computation, then the launch and the collective, in each layer and direction. The recorded
// operations say which collective it is.
std::int64_t expected_time(Rank& rank, const std::vector<RecordedOperation>& operations) {
  std::int64_t time = 0;
  for (std::size_t layer = 0; layer < timed_layers(0).size(); ++layer) {
    std::int64_t forward = 0;
    std::int64_t backward = 0;
    for (int other = 0; other < rank.world_size(); ++other) {
      forward = std::max(forward, timed_layers(other)[layer].forward_ns);
      backward = std::max(backward, timed_layers(other)[layer].backward_ns);
    }
    time += forward + backward;
  }
  const NetworkModel& network = rank.network().network();
  for (const RecordedOperation& operation : operations) {
    time += network.launch_overhead_ns +
            cost_ns(network, operation.type, operation.bytes, rank.world_size());
  }
  return time;
}

// Each layer: some computation, then batch normalization. The layers' shapes need not match, so
// each has its own input, and a sum combines their outputs.
void expect_time(Rank& rank) {
  const auto layers = timed_layers(rank.rank());
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(settings().device);
  at::Tensor through = at::ones({}, options).set_requires_grad(true);
  std::vector<at::Tensor> inputs;
  inputs.reserve(layers.size());
  for (const TimedLayer& layer : layers) {
    inputs.push_back(random_numbers({6, layer.channels}, 10).to(at::kFloat) + rank.rank());
  }
  rank.recorder().clear();
  const std::int64_t start = rank.network().start_step();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const at::Tensor computed = simulated_compute(inputs[i] * through, rank.clock(),
                                                  layers[i].forward_ns, layers[i].backward_ns);
    through = sync_batch_norm(computed, {}, rank.group()).square().select(0, 0).sum();
  }
  through.backward();
  const std::int64_t took = rank.network().step_end() - start;
  const auto operations = with_data(rank.recorder().operations());
  EXPECT_EQ(operations.size(), 2 * layers.size())
      << layers.size() << " layers should be as many collectives in each direction; here it was:"
      << list_of(operations);
  const std::int64_t expected = expected_time(rank, operations);
  EXPECT_TRUE(took == expected || (!all_waited(operations) && took < expected))
      << "virtual ns of forward and backward of " << layers.size() << " layers: " << took
      << "; computing on the slowest rank, and these collectives one after the other, take "
      << expected
      << (took > expected ? " (longer: another operation, such as a barrier)"
                          : " (shorter: not waited for?)")
      << list_of(operations);
}

const GradedTest kTime{
    {.name = "time_is_that_of_two_collectives_a_layer",
     .points = 1,
     .hint = "Each layer costs 2(p-1) alpha forward and the same backward, with all-reduces. More? "
             "Look for barriers and other waits."},
    [] {
      for (const NetworkModel& network :
           {NetworkModel{.alpha_ns = 1'000, .beta_ns_per_byte = 0.1},
            NetworkModel{.alpha_ns = 20'000, .beta_ns_per_byte = 2.0, .launch_overhead_ns = 700}}) {
        RankOptions options;
        options.network = network;
        run_worlds({2, 3, 4}, expect_time, options);
        if (::testing::Test::HasFailure()) {
          return;
        }
      }
    }};

// GPU operators for parts of backward: they leave the sums to the caller.
bool leaves_the_sums_to_the_caller(const std::string& operator_name) {
  return operator_name.ends_with("batch_norm_backward_reduce") ||
         operator_name.ends_with("batch_norm_backward_elemt");
}

void expect_own_backward(const Rank& rank, const CaseOptions& options) {
  const NormCase norm(rank, options);
  const at::Tensor input = norm.input_shard();
  const OperatorWatch watch;
  sync_batch_norm(input, norm.tensors, rank.group()).backward(norm.shard(norm.upstream()));
  for (const std::string& called : watch.called()) {
    const bool is_backward =
        called.find("norm") != std::string::npos && called.find("backward") != std::string::npos;
    EXPECT_TRUE(!is_backward || leaves_the_sums_to_the_caller(called))
        << called << " was called: the sums and the formula of backward should be your own";
  }
  norm.expect_input_gradient(input.grad());
}

const GradedTest kOwnBackward{
    {.name = "backward_is_your_own",
     .points = 1,
     .hint = "A torch::autograd::Function with the handout's formula; do not call libtorch's own "
             "batch norm in it, least of all its backward."},
    [] {
      run_worlds({2, 3}, [](Rank& rank) {
        for (const bool affine : {true, false}) {
          expect_own_backward(rank, {.shape = {12, 4}, .affine = affine});
          expect_own_backward(rank,
                              {.shape = {6, 3, 2, 2}, .dtype = at::kDouble, .affine = affine});
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
