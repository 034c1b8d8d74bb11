#include <ATen/ATen.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstring>
#include <utility>

#include "ddp/plans/bucket_plan.h"
#include "ddp/referee/access_watch.h"
#include "grader/buckets.h"
#include "scenarios.h"

namespace ddp::testing {

namespace {

using Stepped = std::function<void(std::int64_t elements)>;

// An optimizer of libtorch that says when it has stepped.
template <typename Optimizer>
class Told : public Optimizer {
 public:
  template <typename Options>
  Told(std::vector<at::Tensor> parameters, Options options, Stepped stepped, bool slows)
      : Optimizer(std::move(parameters), options), stepped_(std::move(stepped)), slows_(slows) {}

  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override {
    at::Tensor loss = Optimizer::step(std::move(closure));
    if (stepped_) {
      stepped_(this->param_groups()[0].params()[0].numel());
    }
    if (slows_) {
      auto& options = this->param_groups()[0].options();
      options.set_lr(options.get_lr() / 2);
    }
    return loss;
  }

 private:
  Stepped stepped_;
  bool slows_;
};

class AsSynchronizer : public GradientSynchronizer {
 public:
  AsSynchronizer(Client& client, const std::vector<at::Tensor>& parameters, double max_norm,
                 std::unique_ptr<ShardedOptimizer> optimizer)
      : client_(client),
        parameters_(parameters),
        max_norm_(max_norm),
        tells_(client.place().phase == Phase::kConstruction),
        optimizer_(std::move(optimizer)) {
    for (const at::Tensor& parameter : parameters_) {
      places_.push_back(parameter.const_data_ptr());
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    tell_gradients(kGradientIsKept);
    if (max_norm_ > 0) {
      client_.value(kReturnedNorm,
                    at::scalar_tensor(optimizer_->clip_grad_norm(max_norm_), at::kDouble));
    }
    optimizer_->step();
    tell_gradients(kGradientIsLeft);
    for (std::size_t i = 0; tells_ && i < parameters_.size(); ++i) {
      if (parameters_[i].const_data_ptr() != places_[i]) {
        client_.fact(kElsewhere, 1, static_cast<std::int64_t>(i));
      }
      client_.value(kUpdated, parameters_[i], static_cast<std::int64_t>(i));
    }
  }

 private:
  void silence(int change) override {
    GradientSynchronizer::silence(change);
    change > 0 ? scopes_.push_back(std::make_unique<NoSync>(*optimizer_)) : scopes_.pop_back();
  }

  void tell_gradients(FactKey what) {
    for (std::size_t i = 0; tells_ && i < parameters_.size(); ++i) {
      if (parameters_[i].requires_grad() && parameters_[i].grad().defined()) {
        client_.fact(what, 1, static_cast<std::int64_t>(i));
      }
    }
  }

  Client& client_;
  const std::vector<at::Tensor> parameters_;
  const double max_norm_;
  const bool tells_;  // whether a Training trains
  std::vector<const void*> places_;
  std::unique_ptr<ShardedOptimizer> optimizer_;
  std::vector<std::unique_ptr<NoSync>> scopes_;
};

}  // namespace

std::string in_own_words(std::string text) {
  const std::pair<const char*, const char*> words[] = {{"finish()", "step()"},
                                                       {"an all-reduce", "an operation"},
                                                       {"all-reduce fails", "operation fails"}};
  for (const auto& [theirs, own] : words) {
    for (auto at = text.find(theirs); at != text.npos; at = text.find(theirs, at + 1)) {
      text.replace(at, std::strlen(theirs), own);
    }
  }
  return text;
}

std::unique_ptr<torch::optim::Optimizer> make_inner(Inner inner, std::vector<at::Tensor> parameters,
                                                    const Stepped& stepped, bool slows) {
  using torch::optim::AdamW;
  using torch::optim::SGD;
  if (inner == Inner::kAdamW) {
    const auto options = torch::optim::AdamWOptions(learning_rate(inner)).weight_decay(0.25);
    return std::make_unique<Told<AdamW>>(std::move(parameters), options, stepped, slows);
  }
  const double momentum = inner == Inner::kMomentum ? 0.5 : 0;
  const auto options = torch::optim::SGDOptions(learning_rate(inner)).momentum(momentum);
  return std::make_unique<Told<SGD>>(std::move(parameters), options, stepped, slows);
}

Factory sharded(const Form& form) {
  return [form](Client& client, const std::vector<at::Tensor>& parameters,
                const std::vector<at::Tensor>& buffers,
                const ProcessGroupPtr& group) -> std::unique_ptr<GradientSynchronizer> {
    if (client.place().phase == Phase::kConstruction) {
      client.value(kBucketPlan, as_tensor(plan_buckets(parameters, form.options.cap_bytes)));
      client.value(kInner, at::scalar_tensor(static_cast<int>(form.inner), at::kLong));
      client.value(kMaxNorm, at::scalar_tensor(form.max_norm, at::kDouble));
      client.value(kSlows, at::scalar_tensor(form.slows, at::kBool));
      client.value(form.options.overlap ? kWithOverlap : kWithoutOverlap, at::Tensor());
    }
    const bool tells = client.place().phase == Phase::kConstruction;
    std::vector<at::Tensor> made;
    const auto factory = [&client, &made, tells, form](std::vector<at::Tensor> shards) {
      for (std::size_t i = 0; tells && i < shards.size(); ++i) {
        const at::Tensor& shard = shards[i];
        client.fact(
            shard.dim() == 1 && shard.is_leaf() && shard.requires_grad() ? kShardMade : kNoShard,
            shard.numel(), static_cast<std::int64_t>(shard.scalar_type()));
        made.push_back(shard);
      }
      return make_inner(
          form.inner, std::move(shards),
          [&client](std::int64_t elements) { client.fact(kUpdate, elements); }, form.slows);
    };
    auto optimizer = make_sharded_optimizer(parameters, buffers, group, factory, form.options);
    for (std::size_t b = 0; b < made.size(); ++b) {
      client.value(kShard, made[b].detach(), static_cast<std::int64_t>(b));
    }
    return std::make_unique<AsSynchronizer>(client, parameters, form.max_norm,
                                            std::move(optimizer));
  };
}

SynchronizerUnderTest subject(const Form& form, const std::string& name) {
  const bool overlap = form.options.overlap;
  return {.make = sharded(form),
          .charged = {.mean = overlap ? kEndTest : kNoOverlapTest,
                      .missing = overlap ? kOrderTest : kNoOverlapTest,
                      .accumulation = overlap ? kAccumulationTest : kNoOverlapTest,
                      .lifetime = overlap ? kDestructionTest : kNoOverlapTest,
                      .growth = kMemoryTest,
                      .errors = kErrorsTest},
          .form = name};
}

}  // namespace ddp::testing
