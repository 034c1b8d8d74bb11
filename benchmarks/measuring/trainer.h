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
#include "measuring/interleaved.h"
#include "measuring/variants.h"
#include "measuring/workload.h"

namespace ddp {

/// A scalar from a model's scores [..., classes] and the batch's labels [n], of all places.
using LossFunction = at::Tensor (*)(const at::Tensor& scores, const at::Tensor& labels);
at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& labels);

struct TrainerOptions : VariantOptions {
  LossFunction loss = cross_entropy;
  /// Sets gradients to zero after a step instead of to none.
  bool zero_gradients = false;
  /// Records the parts of each step, as a group with the variant's name; see
  /// DeviceContext::timeline.
  std::shared_ptr<Timeline> timeline = nullptr;
};

/// A model, trained by one variant with plain SGD, or with the variant's optimizer. The parts of a step are separate, so
/// that they can be timed separately: forward, backward, finish, update, in this order.
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

  const std::vector<NamedTensor>& parameters() const { return parameters_; }

 private:
  ComputeScope scope(const char* part) const;

  std::string name_;
  std::shared_ptr<Model> model_;
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<Variant> variant_;
  TrainerOptions options_;
};

/// One step of every trainer, from equal weights and on equal data: all must get the gradients of
/// trainer `baseline`, except "compute only". `variants` are the trainers' names. If one does not, it
/// is not worth measuring: throws c10::Error, which names the variant and the parameter.
/// Collective.
void check_gradients(const std::vector<std::string>& variants, std::vector<Trainer>& trainers,
                     std::size_t baseline, const LabelledBatch& batch);

/// The times of one step's parts, in seconds.
using MeasureStep = std::function<std::vector<double>(Trainer&)>;

/// Measures the trainers interleaved (see measure_interleaved()), one step at a time, in
/// size.warmup + size.steps repetitions. Collective. Returns what `measure` returned after the
/// warm-up, each value the maximum over all ranks: [size.steps, trainers, parts], float64 on the
/// CPU. Rank 0 shows the progress on stderr, under `title`.
at::Tensor measure_steps(const std::string& title, const Size& size,
                         const DeviceContext& device_context, std::vector<Trainer>& trainers,
                         const MeasureStep& measure);

}  // namespace ddp
