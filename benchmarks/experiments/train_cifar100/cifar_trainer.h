#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/meters/device_timer.h"
#include "experiments/train_cifar100/cifar_data.h"
#include "measuring/benchmark.h"
#include "measuring/variants.h"
#include "models/small_models.h"

namespace torch::optim {
class SGD;
}

namespace ddp {

/// Who trains: the lab's own code, which is a stage of 01 to 03 and stage 04's batch normalization;
/// or PyTorch's, c10d::Reducer and the port of torch.nn.SyncBatchNorm.
constexpr const char* kCustom = "custom";
constexpr const char* kPytorch = "pytorch";

struct CifarTrainerOptions {
  std::string distributed_impl = kCustom;
  std::string ddp = "bucketed";       // how kCustom averages: naive, flat, overlapped, bucketed
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

/// A model of its own, trained by one implementation, whose stages must be loaded, with stochastic
/// gradient descent; the loop is the same for both. Everything is collective.
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

 private:
  struct Score {
    at::Tensor loss;     // mean over the batch
    at::Tensor correct;  // number of images
  };

  Score score(const LabelledBatch& batch);

  const CifarTrainerOptions options_;
  const DeviceContext device_context_;
  std::unique_ptr<Model> model_;
  std::vector<at::Tensor> parameters_;
  /// PyTorch's side is without no_sync(), as published: it averages what has been accumulated after
  /// each micro-batch. The last average is the same.
  std::unique_ptr<Variant> variant_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::unique_ptr<DeviceTimer> timer_;
};

}  // namespace ddp
