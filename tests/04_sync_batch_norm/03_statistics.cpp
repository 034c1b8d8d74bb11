#include <ATen/ATen.h>

#include "ddp/batch_norm.h"
#include "norm_case.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/grading.h"

// The running statistics: how training updates them, and how evaluation uses them.

namespace ddp::testing {

namespace {

// Several steps with different batches, each starting from the statistics of the step before.
void expect_running(const Rank& rank, const CaseOptions& options, double momentum) {
  constexpr int kSteps = 3;
  BatchNormTensors tensors;
  for (int step = 0; step < kSteps; ++step) {
    CaseOptions of_step = options;
    of_step.mean += step;
    NormCase norm(rank, of_step);
    if (step > 0) {
      norm.tensors = tensors;
    }
    tensors = norm.tensors;
    const at::Tensor mean_before = tensors.running_mean.clone();
    const at::Tensor var_before = tensors.running_var.clone();
    sync_batch_norm(norm.input_shard(), tensors, rank.group(), {.momentum = momentum});
    norm.expect_running(
        mean_before, var_before, momentum,
        " after step " + std::to_string(step) + " with momentum " + std::to_string(momentum));
  }
}

// Bitwise equal: sums in a different order on each rank are not.
void expect_running_equal_everywhere(const Rank& rank, const CaseOptions& options) {
  const NormCase norm(rank, options);
  sync_batch_norm(norm.input_shard(), norm.tensors, rank.group());
  for (const at::Tensor& running : {norm.tensors.running_mean, norm.tensors.running_var}) {
    const at::Tensor all = all_gather(running, rank.group());
    EXPECT_TRUE(is_bitwise_equal(
        {"a running statistic, compared with rank 0's " + norm.text(), rank.world_size()}, running,
        all[0]));
  }
}

const GradedTest kRunning{
    {.name = "running_statistics_are_those_of_the_whole_batch",
     .points = 1,
     .hint =
         "running = (1 - momentum) * running + momentum * batch, in place. The variance is the "
         "unbiased one: over n - 1, n being the global count. All ranks compute the same bits."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const double momentum : {0.1, 0.7, 1.0, 0.0}) {
          expect_running(rank, {.shape = {11, 3}, .dtype = at::kDouble}, momentum);
          expect_running(rank, {.shape = {5, 4, 1, 2}}, momentum);
        }
        expect_running(rank, {.shape = {9, 3}, .dtype = at::kDouble, .tensors_dtype = at::kFloat},
                       0.3);
        expect_running_equal_everywhere(rank, {.shape = {64, 256}});
        expect_running_equal_everywhere(rank, {.shape = {16, 32, 3}, .dtype = at::kDouble});
      });
    }};

// The formula of evaluation with running statistics.
at::Tensor evaluated(const at::Tensor& input, const BatchNormTensors& tensors, double eps) {
  const auto as_double = [&](const at::Tensor& tensor) {
    return along_channels(tensor.detach().to(at::kDouble), input);
  };
  const at::Tensor normalized = (input.to(at::kDouble) - as_double(tensors.running_mean)) /
                                (as_double(tensors.running_var) + eps).sqrt();
  return tensors.weight.defined() ? normalized * as_double(tensors.weight) + as_double(tensors.bias)
                                  : normalized;
}

// Each rank has different statistics here, and a batch of a different size, since no rank may
// depend on another.
void expect_evaluation(Rank& rank, CaseOptions options) {
  constexpr double kEps = 0.02;
  const NormCase norm(rank, options);
  norm.tensors.running_mean.add_(rank.rank());
  const at::Tensor mean_before = norm.tensors.running_mean.clone();
  const at::Tensor var_before = norm.tensors.running_var.clone();
  rank.recorder().clear();
  const at::Tensor input = norm.input_shard();
  const at::Tensor output =
      sync_batch_norm(input, norm.tensors, rank.group(), {.training = false, .eps = kEps});
  EXPECT_TRUE(is_close({"the output in evaluation " + norm.text(), rank.world_size()},
                       output.detach(),
                       evaluated(norm.shard(norm.input()), norm.tensors, kEps).to(options.dtype),
                       options.dtype == at::kDouble ? 1e-10 : 1e-4));
  output.backward(norm.shard(norm.upstream()));
  expect_silence(rank, "forward and backward in evaluation");
  EXPECT_TRUE(is_bitwise_equal({"the running mean after an evaluation"}, norm.tensors.running_mean,
                               mean_before));
  EXPECT_TRUE(is_bitwise_equal({"the running variance after an evaluation"},
                               norm.tensors.running_var, var_before));
}

// Without running statistics: with those of the rank's own batch, by the function and by a module.
void expect_evaluation_of_own_batch(Rank& rank) {
  const NormCase norm(rank, {.shape = {18, 3, 2}, .dtype = at::kDouble, .affine = false});
  const auto layer =
      make_sync_batch_norm({.num_features = 3, .track_running_stats = false}, rank.group());
  layer->to(settings().device, at::kDouble);
  layer->eval();
  rank.recorder().clear();
  const at::Tensor input = norm.shard(norm.input());
  const at::Tensor centred = input - input.mean(without_channels(input), true);
  const at::Tensor variance = centred.square().mean(without_channels(input), true);
  const at::Tensor expected = centred / (variance + 1e-5).sqrt();
  EXPECT_TRUE(is_close({"the output in evaluation without running statistics", rank.world_size()},
                       sync_batch_norm(input, {}, rank.group(), {.training = false}), expected,
                       1e-10));
  EXPECT_TRUE(
      is_close({"the module's output in evaluation without running statistics", rank.world_size()},
               layer->forward(input).detach(), expected, 1e-10));
  expect_silence(rank, "evaluation without running statistics");
}

// After a step of training, so that the state is not the initial one.
void expect_evaluation_of_module(Rank& rank) {
  const auto layer = make_sync_batch_norm({.num_features = 3, .eps = 0.02}, rank.group());
  layer->to(settings().device);
  const NormCase norm(rank, {.shape = {12, 3, 2}});
  const at::Tensor input = norm.shard(norm.input());
  layer->forward(input);
  layer->eval();
  const std::vector<at::Tensor> before = {layer->running_mean.clone(), layer->running_var.clone(),
                                          layer->num_batches_tracked.clone()};
  rank.recorder().clear();
  if (rank.rank() == 0) {  // the other ranks need not take part
    EXPECT_TRUE(is_close(
        {"the module's output in evaluation", rank.world_size()}, layer->forward(input).detach(),
        evaluated(input, running_tensors(before[0], before[1]), 0.02).to(at::kFloat), 1e-4));
    layer->forward(norm.input().narrow(0, 0, 1));  // one sample has no variance
    layer->forward(norm.input().narrow(0, 0, 0));
  }
  expect_silence(rank, "the module in evaluation");
  EXPECT_TRUE(is_bitwise_equal({"the module's running mean after an evaluation"},
                               layer->running_mean, before[0]));
  EXPECT_TRUE(is_bitwise_equal({"the module's running variance after an evaluation"},
                               layer->running_var, before[1]));
  EXPECT_TRUE(is_bitwise_equal({"num_batches_tracked after an evaluation"},
                               layer->num_batches_tracked, before[2]));
}

const GradedTest kEvaluation{
    {.name = "evaluation_is_local_and_changes_nothing",
     .points = 1,
     .hint = "training = false: use the running statistics; without them, those of this rank's own "
             "batch. No collective, no update, no count, and no collective in backward either."},
    [] {
      run_worlds({1, 2, 3}, [](Rank& rank) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
          for (const bool affine : {true, false}) {
            expect_evaluation(rank, {.shape = {13, 5}, .dtype = dtype, .affine = affine});
          }
          expect_evaluation(rank, {.shape = {7, 3, 2}, .dtype = dtype});
          expect_evaluation(rank, {.shape = {5, 3, 2, 2}, .dtype = dtype});
          expect_evaluation(rank, {.shape = {4, 2, 2, 1, 3}, .dtype = dtype});
        }
        expect_evaluation_of_own_batch(rank);
        expect_evaluation_of_module(rank);
      });
    }};

}  // namespace

}  // namespace ddp::testing
