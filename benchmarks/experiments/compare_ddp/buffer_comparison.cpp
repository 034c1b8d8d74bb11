#include "experiments/compare_ddp/buffer_comparison.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "harness/interleaved.h"
#include "harness/trainer.h"
#include "harness/variants.h"

namespace ddp {
namespace {

constexpr std::int64_t kParameters = 25'557'032;  // torchvision's, and so the published model's
constexpr std::int64_t kOutputs = 1000;
constexpr std::array kDirections = {"forward", "backward"};

/// A model that outlives its trainers.
class BorrowedModel : public Model {
 public:
  explicit BorrowedModel(Model& model) : model_(model) {}
  at::Tensor forward(const at::Tensor& input) override { return model_.forward(input); }
  std::vector<NamedTensor> named_parameters() const override { return model_.named_parameters(); }
  std::vector<NamedTensor> named_buffers() const override { return model_.named_buffers(); }
  void train(bool on) override { model_.train(on); }

 private:
  Model& model_;
};

at::Tensor mean_squared_error(const at::Tensor& scores, const at::Tensor& targets) {
  return at::mse_loss(scores, targets);
}

LabelledBatch make_batch_for(const Procedure& procedure, const BenchmarkOptions& options,
                             const ComparisonSize& size, const DeviceContext& device_context) {
  LabelledBatch batch = make_batch(
      {.model = BufferComparison::kModel, .size = {.batch = size.batch, .image = size.image}},
      options.seed, device_context);
  if (procedure.loss == "mse") {
    at::Generator generator =
        at::detail::createCPUGenerator(options.seed + device_context.group->getRank());
    batch.labels = at::rand({size.batch, kOutputs}, generator).to(device_context.device);
  }
  return batch;
}

}  // namespace

const std::vector<BufferComparison::Candidate>& BufferComparison::all_candidates() {
  // The published bucket_cap_mb is M, in MiB, while the other buffers hold M * 2^20 float32
  // elements.
  constexpr std::int64_t kMib = 1 << 20;
  static const std::vector<Candidate> all = {{"core", "Reducer", 1 * kMib},
                                             {"core, equal bytes", "Reducer", 4 * kMib},
                                             {"async", "bucketed", 4 * kMib},
                                             {"sync", "bucketed sync", 4 * kMib}};
  return all;
}

BufferComparison::BufferComparison(const BenchmarkOptions& options, const ComparisonSize& size,
                                   const Procedure& procedure, const DeviceContext& device_context)
    : size_(size),
      procedure_(procedure),
      device_context_(device_context),
      batch_(make_batch_for(procedure, options, size, device_context)),
      timer_(make_device_timer(device_context.device)) {
  const std::vector<std::string> usable = usable_variants({"Reducer", "bucketed", "bucketed sync"},
                                                          options.implementation, device_context);
  for (const Candidate& candidate : all_candidates()) {
    if (std::ranges::find(usable, candidate.variant) != usable.end()) {
      candidates_.push_back(candidate);
      models_.push_back(make_model(kModel, options.seed, device_context.device));
    }
  }
  summary_ = summarize_model(models_.front()->named_parameters());
  TORCH_CHECK(summary_.total == kParameters, kModel, " has ", summary_.total,
              " parameters, and the published one has ", kParameters);
}

std::vector<std::string> BufferComparison::variants() const {
  std::vector<std::string> labels;
  for (const Candidate& candidate : candidates_) {
    labels.emplace_back(candidate.label);
  }
  return labels;
}

std::vector<Series> BufferComparison::measure(int buffer_size, Progress& progress) {
  std::vector<Trainer> trainers = make_trainers(buffer_size);
  check_once(trainers);
  at::Tensor times = measure_interleaved(
      {.measured = size_.iterations - size_.discarded, .warmup = size_.discarded}, trainers.size(),
      [&](std::size_t turn) { return iterate(trainers[turn]); }, &progress);
  if (procedure_.times_of == "slowest") {
    times = largest_of_ranks(times, device_context_);
  }
  std::vector<Series> series;
  for (std::size_t i = 0; i < trainers.size(); ++i) {
    for (std::size_t part = 0; part < kDirections.size(); ++part) {
      series.push_back(series_of(
          times, i, part, {{"variant", candidates_[i].label}, {"direction", kDirections[part]}}));
    }
  }
  return series;
}

// New synchronizers for the same models. They remove their hooks when they are destroyed.
std::vector<Trainer> BufferComparison::make_trainers(int buffer_size) {
  std::vector<Trainer> trainers;
  trainers.reserve(candidates_.size());
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    TrainerOptions options;
    options.cap_bytes = buffer_size * candidates_[i].cap_bytes;
    options.broadcast_buffers = procedure_.broadcasts_buffers;
    if (procedure_.loss == "mse") {
      options.loss = mean_squared_error;
    }
    options.timeline = device_context_.timeline;
    trainers.emplace_back(candidates_[i].variant, std::make_unique<BorrowedModel>(*models_[i]),
                          device_context_.group, options);
  }
  return trainers;
}

// The models are equal only before training.
void BufferComparison::check_once(std::vector<Trainer>& trainers) {
  if (std::exchange(checked_, true)) {
    return;
  }
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates_) {
    names.emplace_back(candidate.variant);
  }
  check_gradients(names, trainers, /*peer=*/0, batch_);
}

// One iteration, begun together by all ranks. Seconds of kDirections. As published, the device
// finishes forward before backward begins.
std::vector<double> BufferComparison::iterate(Trainer& trainer) {
  at::Tensor loss;
  const double forward =
      seconds_together(*timer_, device_context_.group, [&] { loss = trainer.forward(batch_); });
  timer_->start();
  trainer.backward(loss);
  trainer.finish();
  timer_->stop();
  const double backward = timer_->seconds();
  trainer.update();
  return {forward, backward};
}

}  // namespace ddp
