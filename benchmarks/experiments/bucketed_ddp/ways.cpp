#include "experiments/bucketed_ddp/ways.h"

#include "03_bucketed_ddp/bucketed_ddp.h"
#include "experiments/bucketed_ddp/training_lines.h"
#include "models/transformer.h"

namespace ddp {
namespace {

constexpr const char* kBucketed = "bucketed";
// The Reducer's bucket size, scaled from xl as for the other variants: PyTorch's default.
constexpr std::int64_t kReducerMegabytes = 25;
constexpr std::int64_t kReducerFirstMegabytes = 1;

Way bucketed_way(const TrainingSettings& settings, std::int64_t megabytes, const Model& model) {
  const std::int64_t cap = settings.cap(megabytes);
  const auto buckets = assign_buckets(tensors_of(model.named_parameters()), cap).size();
  return {.variant = kBucketed,
          .options = {.cap_bytes = cap},
          .labels = {{kVariantLabel, kBucketed},
                     {kMegabytesLabel, megabytes},
                     {kCapLabel, cap},
                     {"buckets", static_cast<std::int64_t>(buckets)}}};
}

}  // namespace

const std::vector<std::string> kTrainingVariants = {kBucketed,    "naive",         "flat",
                                                    "overlapped", kReducerVariant, kComputeOnly};

Parameters parameters_of(const TrainingSettings& settings) {
  const TransformerShape shape = settings.shape();
  return {{"model", settings.model},
          {"parameters", parameter_count(shape)},
          {"d_model", shape.d_model},
          {"d_ff", shape.d_ff},
          {"layers", shape.layers},
          {"heads", shape.heads},
          {"vocabulary", shape.vocabulary},
          {"dtype", "float32"},
          {"optimizer", "AdamW"},
          {"repetitions", settings.repetitions.measured},
          {"warmup", settings.repetitions.warmup},
          {"interleaved", static_cast<std::int64_t>(settings.interleaved)},
          {"reducer_cap_bytes", settings.cap(kReducerMegabytes)},
          {"reducer_first_bucket_bytes", settings.cap(kReducerFirstMegabytes)},
          {"rate_gbit", settings.rate_gbit},
          {"latency_us", settings.latency_us}};
}

std::vector<Way> ways_of(const TrainingSettings& settings, const Model& model,
                         const std::vector<std::string>& variants) {
  const VariantOptions reducer = {.cap_bytes = settings.cap(kReducerMegabytes),
                                  .first_bucket_bytes = settings.cap(kReducerFirstMegabytes)};
  std::vector<Way> ways;
  for (const std::string& variant : variants) {
    if (variant != kBucketed) {
      ways.push_back(
          {.variant = variant, .options = reducer, .labels = {{kVariantLabel, variant}}});
      continue;
    }
    for (const std::int64_t megabytes : settings.bucket_mb) {
      ways.push_back(bucketed_way(settings, megabytes, model));
    }
  }
  return ways;
}

}  // namespace ddp
