#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/meters/device_timer.h"
#include "experiments/train_cifar100/batches.h"
#include "experiments/train_cifar100/gradients.h"
#include "harness/benchmark.h"
#include "models/cifar_model.h"

namespace torch::optim {
class SGD;
}

namespace ddp {

struct CifarTrainerOptions {
  std::string distributed_impl;  // see make_gradient_averager()
  std::string ddp = "bucketed";
  std::uint64_t seed = 0;             // of weights, order of images, and dropout
  std::int64_t batch_size = 256;      // of a rank's micro-batch
  std::int64_t grad_accum_steps = 4;  // micro-batches per step
  double learning_rate = 0.01;
  double momentum = 0.5;
};

/// What the published program prints of rank 0 in every 16th micro-batch of an epoch, from the first
/// on.
struct CifarReport {
  double loss = 0;  // sum of the epoch's losses so far, over the number of ALL its micro-batches
  double accuracy = 0;  // of this micro-batch
};

/// A rank's epoch of training.
struct CifarEpoch {
  CifarReport last_report;
  double seconds = 0;
};

/// A rank's totals of a validation.
struct CifarValidation {
  double loss_sum = 0;  // cross entropy, over `images`
  double correct = 0;   // images whose label has the highest score
  double images = 0;
  double seconds = 0;
};

/// A model of its own, trained by one implementation with stochastic gradient descent; the loop is
/// the same for all implementations. Everything is collective.
class CifarTrainer {
 public:
  CifarTrainer(const CifarTrainerOptions& options, const DeviceContext& device_context);
  CifarTrainer(const CifarTrainer&) = delete;
  CifarTrainer& operator=(const CifarTrainer&) = delete;
  ~CifarTrainer();

  using OnReport = std::function<void(const CifarReport&)>;

  /// One epoch of this rank's shard, as published: the gradients of micro-batches' mean losses add
  /// up, undivided, and after every `grad_accum_steps` of them the optimizer takes a step. What is
  /// left at the end of an epoch goes into the next one's first step. The last micro-batch may be
  /// smaller, equally on all ranks.
  CifarEpoch train(const CifarImages& images, std::int64_t epoch, const OnReport& on_report);

  /// This rank's share of a validation.
  CifarValidation validate(const CifarImages& images);

  /// The averaged gradients of one step, without the update: see check_cifar_step().
  std::vector<at::Tensor> gradients_of_step(const CifarImages& images);

  /// Everything that training changes: parameters, batch normalization statistics, the optimizer's
  /// momenta, and, if an epoch ends between two steps, all ranks' gradients [world, ...]. Equal on
  /// all ranks. All but the gradients are the tensors themselves, which training keeps changing.
  std::vector<at::Tensor> state() const;

  /// Restores a state(), bit for bit. Throws c10::ValueError if it belongs to another model.
  void restore(const std::vector<at::Tensor>& state);

 private:
  struct Score {
    at::Tensor loss;     // mean over the batch
    at::Tensor correct;  // number of images
  };

  void settle();
  void drop_gradients();
  std::vector<at::Tensor> begin_epoch(const CifarImages& images, std::int64_t epoch) const;
  Score score(const LabelledBatch& batch);
  Score backward(const LabelledBatch& batch, bool last_of_step);
  std::vector<at::Tensor> equal_state() const;

  const CifarTrainerOptions options_;
  const DeviceContext device_context_;
  std::unique_ptr<Model> model_;
  std::vector<at::Tensor> parameters_, momenta_;
  std::unique_ptr<GradientAverager> averager_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::unique_ptr<DeviceTimer> timer_;
};

/// Checks that one step of `distributed_impl` gives the gradients of kPlain. Collective. Throws
/// c10::Error that names the parameter whose gradient differs.
void check_cifar_step(const CifarTrainerOptions& options, const CifarImages& images,
                      const DeviceContext& device_context);

}  // namespace ddp
