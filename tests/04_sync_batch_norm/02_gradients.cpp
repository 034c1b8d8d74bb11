#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "norm_case.h"
#include "support/compare.h"
#include "support/grading.h"

// The gradients of backward, compared with the reference and with differences of forward.

namespace ddp::testing {

namespace {

// 1 for the samples of the first half of the whole batch, 0 for the others: the derivative of a
// loss that sums over that half. Some ranks have none of it, but take part all the same.
at::Tensor first_half(const NormCase& norm) {
  at::Tensor ones = at::zeros_like(norm.input());
  ones.narrow(0, 0, norm.input().size(0) / 2).fill_(1);
  return ones;
}

// By a sum, so that backward starts with autograd's own gradient: of some samples only, or of none.
void backward_of_half(const NormCase& norm, const at::Tensor& output) {
  const std::int64_t half = norm.input().size(0) / 2;
  const std::int64_t mine = std::clamp<std::int64_t>(half - norm.first_row(), 0, norm.row_count());
  output.narrow(0, 0, mine).sum().backward();
}

void expect_gradients_of_half(const Rank& rank, const CaseOptions& options) {
  NormCase norm(rank, options);
  norm.set_upstream(first_half(norm));
  const at::Tensor input = norm.input_shard();
  backward_of_half(norm, sync_batch_norm(input, norm.tensors, rank.group(), {.eps = options.eps}));
  const std::string note = " of the sum over the first half of the whole batch";
  norm.expect_input_gradient(input.grad(), note);
  norm.expect_parameter_gradients(note);
}

void expect_gradients(const Rank& rank, const CaseOptions& options) {
  const NormCase norm(rank, options);
  const at::Tensor input = norm.input_shard();
  sync_batch_norm(input, norm.tensors, rank.group(), {.eps = options.eps})
      .backward(norm.shard(norm.upstream()));
  norm.expect_input_gradient(input.grad());
  norm.expect_parameter_gradients();
}

void expect_gradients_of_shapes(const Rank& rank, at::ScalarType dtype) {
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{24, 5}, {9, 6, 7}, {8, 3, 5, 4}, {7, 4, 2, 3, 5}}) {
    for (const bool affine : {true, false}) {
      const CaseOptions options = {.shape = shape, .dtype = dtype, .affine = affine, .eps = 0.03};
      expect_gradients(rank, options);
      expect_gradients_of_half(rank, options);
    }
    expect_gradients(rank, {.shape = shape, .dtype = dtype, .tensors_dtype = at::kFloat});
  }
}

// Backward may run twice through a graph, and gradients add up.
void expect_gradients_of_two_backwards(const Rank& rank) {
  const NormCase norm(rank, {.shape = {8, 3, 2}, .dtype = at::kDouble, .affine = false});
  const at::Tensor input = norm.input_shard();
  const at::Tensor output = sync_batch_norm(input, {}, rank.group());
  output.backward(norm.shard(norm.upstream()) * 0.25, /*retain_graph=*/true);
  output.backward(norm.shard(norm.upstream()) * 0.75);
  norm.expect_input_gradient(input.grad(), ", the sum of two backwards,");
}

const GradedTest kGradients{
    {.name = "gradients_are_those_of_the_whole_batch",
     .points = 2,
     .hint = "The two means in the handout's formula are over all ranks: sums of this rank, one "
             "collective, divided by the global count. Weight and bias: this rank's sums only."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          expect_gradients_of_shapes(rank, dtype);
        }
        expect_gradients_of_two_backwards(rank);
        for (const std::int64_t hidden : {128, 256, 512, 1024}) {
          for (const std::int64_t batch : {32, 64}) {
            for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
              const bool affine = (hidden + batch) % 3 != 0;
              expect_gradients_of_half(
                  rank, {.shape = {batch, hidden}, .dtype = dtype, .affine = affine});
            }
          }
        }
      });
    }};

// A mode of the layer, for the comparison with differences.
struct Mode {
  std::string name;
  BatchNormTensors tensors;
  SyncBatchNormOptions options;
};

// A loss in which no term of the gradient vanishes. A loss linear in the output would do, but most
// losses are not.
at::Tensor loss_of(const Rank& rank, const NormCase& norm, const Mode& mode,
                   const at::Tensor& input) {
  BatchNormTensors tensors = mode.tensors;
  if (mode.options.training && tensors.running_mean.defined()) {  // not tested here
    tensors.running_mean = tensors.running_mean.clone();
    tensors.running_var = tensors.running_var.clone();
  }
  const at::Tensor output = sync_batch_norm(input, tensors, rank.group(), mode.options);
  return (norm.shard(norm.upstream()) * (output + output.square() / 3)).sum();
}

// The sum of all ranks' losses, computed in lockstep.
double total_loss(const Rank& rank, const NormCase& norm, const Mode& mode,
                  const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  const at::Tensor loss = loss_of(rank, norm, mode, input);
  all_reduce(loss, rank.group());
  return loss.item<double>();
}

// The central difference of the loss with respect to `element`, a tensor of one element.
double difference(const at::Tensor& element, const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  const at::NoGradGuard no_grad;
  element.add_(kStep);
  const double above = loss();
  element.sub_(2 * kStep);
  const double below = loss();
  element.add_(kStep);
  return (above - below) / (2 * kStep);
}

void expect_derivative(double gradient, double by_differences, const std::string& what) {
  const double error = std::abs(gradient - by_differences);
  if (!(error <= 1e-6 * (1 + std::abs(by_differences)))) {  // written so that NaN fails
    ADD_FAILURE() << "the derivative of the summed losses by " << what << ": by backward "
                  << gradient << ", by central differences of forward " << by_differences;
  }
}

// For elements of the whole batch's input: the rank that has the element changes it, and all ranks
// compute their losses.
void expect_differences_of_input(const Rank& rank, const NormCase& norm, const Mode& mode) {
  constexpr int kElements = 7;
  const at::Tensor input = norm.input_shard();
  loss_of(rank, norm, mode, input).backward();
  const at::Tensor gradient = input.grad().contiguous().flatten();
  const at::Tensor values = input.detach().clone();
  const at::Tensor nowhere = at::zeros({1}, values.options());
  const std::int64_t a_row = norm.input().numel() / norm.input().size(0);
  const at::Tensor chosen = random_numbers({kElements}, 8).abs().mul(1e6).to(at::kLong);
  for (int i = 0; i < kElements; ++i) {
    const std::int64_t global = chosen[i].item<std::int64_t>() % norm.input().numel();
    const std::int64_t local = global - norm.first_row() * a_row;
    const bool mine = local >= 0 && local < values.numel();
    const double expected = difference(mine ? values.view({-1})[local] : nowhere[0],
                                       [&] { return total_loss(rank, norm, mode, values); });
    if (mine) {
      expect_derivative(gradient[local].item<double>(), expected,
                        "element " + std::to_string(local) + " of this rank's input, " + mode.name);
    }
  }
}

// All ranks change their copy of the weight, so the derivative is the sum of their gradients.
void expect_differences_of_parameter(const Rank& rank, const NormCase& norm, const Mode& mode,
                                     const std::string& name, const at::Tensor& parameter) {
  if (!parameter.defined()) {
    return;
  }
  const at::Tensor input = norm.shard(norm.input());
  parameter.mutable_grad() = at::Tensor();
  loss_of(rank, norm, mode, input).backward();
  const at::Tensor gradient = parameter.grad().clone();
  all_reduce(gradient, rank.group());
  for (std::int64_t i = 0; i < parameter.numel(); ++i) {
    const double expected =
        difference(parameter.detach()[i], [&] { return total_loss(rank, norm, mode, input); });
    expect_derivative(gradient[i].item<double>(), expected,
                      "element " + std::to_string(i) + " of the " + name + ", " + mode.name);
  }
}

void expect_differences(const Rank& rank, const std::vector<std::int64_t>& shape) {
  const NormCase norm(rank, {.shape = shape, .dtype = at::kDouble});
  const auto& [weight, bias, running_mean, running_var] = norm.tensors;
  const std::vector<Mode> modes = {
      {"in training", norm.tensors, {.eps = 0.1}},
      {"in training, with a weight only", affine_tensors(weight, {}), {}},
      {"in training, with a bias only", affine_tensors({}, bias), {}},
      {"in evaluation", norm.tensors, {.training = false, .eps = 0.1}},
      {"in evaluation without running statistics",
       affine_tensors(weight, bias),
       {.training = false, .eps = 0.1}}};
  for (const Mode& mode : modes) {
    expect_differences_of_input(rank, norm, mode);
    expect_differences_of_parameter(rank, norm, mode, "weight", mode.tensors.weight);
    expect_differences_of_parameter(rank, norm, mode, "bias", mode.tensors.bias);
  }
}

const GradedTest kDifferences{
    {.name = "gradients_agree_with_central_differences",
     .points = 1,
     .hint =
         "In evaluation the running statistics are constants, so the gradient has one term; "
         "where there are none, the statistics are those of this rank's batch, and it has all."},
    [] {
      run_worlds({1, 2, 3}, [](Rank& rank) {
        expect_differences(rank, {7, 3});
        expect_differences(rank, {6, 2, 2, 3});
      });
    }};

}  // namespace

}  // namespace ddp::testing
