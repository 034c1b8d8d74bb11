#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/models/model.h"
#include "ddp/timeline/timeline.h"
#include "measuring/benchmark.h"
#include "measuring/variants.h"
#include "measuring/workload.h"

namespace ddp {

/// A scalar from a model's scores [..., classes] and the batch's labels [n], of all places.
using LossFunction = at::Tensor (*)(const at::Tensor& scores, const at::Tensor& labels);
at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& labels);

/// Given a model's parameters, makes what updates them by their gradients.
using MakeUpdate = std::function<std::function<void()>(std::vector<at::Tensor> parameters)>;

struct TrainerOptions : VariantOptions {
  LossFunction loss = cross_entropy;
  MakeUpdate update = {};  // what update() does; empty: plain SGD
  /// Sets gradients to zero after a step instead of to none.
  bool zero_gradients = false;
  /// Records the parts of each step, as a group with the variant's name; see
  /// DeviceContext::timeline.
  std::shared_ptr<Timeline> timeline = nullptr;
};

/// A model, trained by one variant. The parts of a step are separate, so that they can be timed
/// separately: forward, backward, finish, update, in this order.
class Trainer {
 public:
  /// Collective, like make_variant().
  Trainer(const std::string& variant, std::shared_ptr<Model> model, const ProcessGroupPtr& group,
          const TrainerOptions& options = {});

  /// The loss, a scalar.
  at::Tensor forward(const LabelledBatch& batch);
  void backward(const at::Tensor& loss);
  /// After it, gradients are averages over the ranks; with an optimizer parameters are new.
  void finish();
  void update();

  const std::string& variant() const { return name_; }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

 private:
  ComputeScope scope(const char* part) const;

  std::string name_;
  std::shared_ptr<Model> model_;
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<Variant> variant_;
  TrainerOptions options_;
  std::function<void()> update_;
};

/// The baseline, whose gradients are the reference wherever it is measured.
constexpr const char* kReducer = "Reducer";

/// One step of every trainer, from equal weights and on equal data: all must get the gradients of
/// the Reducer, or where it is not among them of the last one, except "compute only". If one does
/// not, it is not worth measuring: throws c10::Error, which names the variant and the parameter.
/// Collective.
void check_gradients(std::vector<Trainer>& trainers, const LabelledBatch& batch);

/// The same after equally many steps from equal weights, by the loss, for variants that update
/// parameters themselves and leave no gradients.
void check_losses(std::vector<Trainer>& trainers, const LabelledBatch& batch);

}  // namespace ddp
