#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "ddp/meters/device_timer.h"
#include "experiments/train_cifar100/batches.h"
#include "experiments/train_cifar100/cifar_model.h"
#include "experiments/train_cifar100/gradients.h"
#include "harness/benchmark.h"

namespace torch::optim {
class SGD;
}

namespace ddp {

struct CifarTrainerOptions {
  std::string distributed_impl;  // see make_gradient_averager()
  std::string ddp = "bucketed";
  std::uint64_t seed = 0;             // of weights, order of images, and dropout
  std::int64_t batch_size = 64;       // of a rank's micro-batch
  std::int64_t grad_accum_steps = 4;  // micro-batches per step
  double learning_rate = 0.01;
  double momentum = 0.5;
};

/// A rank's totals of one pass over images.
struct CifarPass {
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

  /// One epoch: this rank's shard, in micro-batches. A step uses the gradient of the mean loss of
  /// `grad_accum_steps` micro-batches (fewer at the end of the epoch). The last micro-batch may be
  /// smaller, equally on all ranks.
  CifarPass train(const CifarImages& images, std::int64_t epoch);

  /// This rank's share of a validation.
  CifarPass validate(const CifarImages& images);

  /// The averaged gradients of one step, without the update: see check_cifar_step().
  std::vector<at::Tensor> gradients_of_step(const CifarImages& images);

  /// Everything that training changes: parameters, batch normalization statistics, and the
  /// optimizer's momenta. Equal on all ranks. These are the tensors themselves, which training
  /// keeps changing.
  std::vector<at::Tensor> state() const;

  /// Restores a state(), bit for bit. Throws c10::ValueError if it belongs to another model.
  void restore(const std::vector<at::Tensor>& state);

 private:
  void settle();
  void drop_gradients();
  void step(const CifarImages& images, const std::vector<at::Tensor>& micro_batches);
  at::Tensor score(const LabelledBatch& batch);
  CifarPass read_pass(std::int64_t images);

  const CifarTrainerOptions options_;
  const DeviceContext device_context_;
  std::unique_ptr<Model> model_;
  std::vector<at::Tensor> parameters_, momenta_;
  std::unique_ptr<GradientAverager> averager_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::unique_ptr<DeviceTimer> timer_;
  at::Tensor totals_;  // of the pass: sum of losses, and correct images; float64 on the device
};

/// Checks that one step of `distributed_impl` gives the gradients of kPlain. Collective. Throws
/// c10::Error that names the parameter whose gradient differs.
void check_cifar_step(const CifarTrainerOptions& options, const CifarImages& images,
                      const DeviceContext& device_context);

}  // namespace ddp
