#include "measuring/variants.h"

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "01_naive_ddp/naive_ddp.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "03_bucketed_ddp/bucketed_ddp.h"
#include "ddp/baselines/python_ddp_baseline.h"
#include "ddp/baselines/reducer_baseline.h"
#include "ddp/models/toy_models.h"
#include "ddp/ranks/stage_library.h"

namespace ddp {
namespace {

class Stage : public Variant {
 public:
  explicit Stage(std::unique_ptr<GradientSynchronizer> synchronizer)
      : synchronizer_(std::move(synchronizer)) {}
  void finish() override { synchronizer_->finish(); }
  std::unique_ptr<NoSync> no_sync() override { return std::make_unique<NoSync>(*synchronizer_); }

 private:
  std::unique_ptr<GradientSynchronizer> synchronizer_;
};

class Baseline : public Variant {
 public:
  explicit Baseline(std::unique_ptr<ReducerBaseline> baseline) : baseline_(std::move(baseline)) {}
  void before_forward() override { baseline_->before_forward(); }
  void before_backward() override { baseline_->before_backward(); }

 private:
  std::unique_ptr<ReducerBaseline> baseline_;
};

using Made = std::unique_ptr<Variant>;

// Another one, and then an optimizer's step.
class Updated : public Variant {
 public:
  Updated(Made averaged, std::unique_ptr<torch::optim::Optimizer> optimizer)
      : averaged_(std::move(averaged)), optimizer_(std::move(optimizer)) {}
  void before_forward() override { averaged_->before_forward(); }
  void before_backward() override { averaged_->before_backward(); }
  void finish() override {
    averaged_->finish();
    optimizer_->step();
  }

 private:
  Made averaged_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

Made make_baseline(const Ingredients& i, bool as_view) {
  return std::make_unique<Baseline>(std::make_unique<ReducerBaseline>(
      i.parameters, i.buffers, i.group,
      ReducerBaselineOptions{.first_bucket_bytes = i.options.first_bucket_bytes,
                             .cap_bytes = i.options.cap_bytes,
                             .gradient_as_bucket_view = as_view,
                             .broadcast_buffers = i.options.broadcast_buffers,
                             .rebuilt_from_the_start = i.options.rebuilt_from_the_start}));
}

Made make_python_ddp(const Ingredients& i, bool async) {
  const auto element = static_cast<std::int64_t>(i.parameters.at(0).element_size());
  return std::make_unique<Stage>(make_python_ddp_baseline(
      i.parameters, i.group,
      {.buffer_elements = i.options.cap_bytes / element, .async_reduction = async}));
}

Made make_bucketed(const Ingredients& i, bool overlap) {
  return std::make_unique<Stage>(make_bucketed_ddp(
      i.parameters, i.buffers, i.group, {.cap_bytes = i.options.cap_bytes, .overlap = overlap}));
}

// The stages' functions are called, not pointed to: their addresses are unknown until the library
// is loaded.
std::vector<VariantKind>& kinds() {
  static std::vector<VariantKind> all = {
      {kComputeOnly, "", [](const Ingredients&) { return std::make_unique<Variant>(); }},
      {"naive", "01_naive_ddp",
       [](const Ingredients& i) -> Made {
         return std::make_unique<Stage>(make_naive_ddp(i.parameters, i.buffers, i.group));
       }},
      {"flat", "01_naive_ddp",
       [](const Ingredients& i) -> Made {
         return std::make_unique<Stage>(make_flat_ddp(i.parameters, i.buffers, i.group));
       }},
      {"overlapped", "02_overlapped_ddp",
       [](const Ingredients& i) -> Made {
         return std::make_unique<Stage>(make_overlapped_ddp(i.parameters, i.buffers, i.group));
       }},
      {"bucketed", "03_bucketed_ddp",
       [](const Ingredients& i) { return make_bucketed(i, /*overlap=*/true); }},
      {"bucketed sync", "03_bucketed_ddp",
       [](const Ingredients& i) { return make_bucketed(i, /*overlap=*/false); },
       /*special=*/true},
      {"Reducer", "", [](const Ingredients& i) { return make_baseline(i, /*as_view=*/false); }},
      {"Reducer as_view", "",
       [](const Ingredients& i) { return make_baseline(i, /*as_view=*/true); }},
      {"Python DDP", "", [](const Ingredients& i) { return make_python_ddp(i, /*async=*/true); },
       /*special=*/true},
      {"Python DDP sync", "",
       [](const Ingredients& i) { return make_python_ddp(i, /*async=*/false); },
       /*special=*/true},
  };
  return all;
}

const VariantKind& kind_of(const std::string& variant) {
  const auto found = std::ranges::find(kinds(), variant, &VariantKind::name);
  TORCH_CHECK_VALUE(found != kinds().end(), "there is no variant \"", variant, "\"");
  return *found;
}

Made make(const VariantKind& kind, const Ingredients& made_from) {
  const MakeOptimizer& optimizer = made_from.options.optimizer;
  Made made = kind.make(made_from);
  return kind.updates || !optimizer
             ? std::move(made)
             : std::make_unique<Updated>(std::move(made), optimizer(made_from.parameters));
}

// The reason why a stage's library cannot be used on this rank; empty if it is loaded.
std::string load(const std::string& stage, const std::string& implementation) {
  try {
    load_stage_library(stage_library(implementation, stage));
    return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

// The reason why a variant cannot take a step; empty if it can. The same on all ranks.
std::string reason_to_leave_out(const std::string& variant, const std::string& implementation,
                                const DeviceContext& device_context) {
  // Other machines may have built something else. If another rank has no library, this rank must
  // not call the stage: it would wait for that rank forever.
  const std::string problem = load(stage_of(variant), implementation);
  const at::Tensor loaded =
      at::full({1}, problem.empty() ? 1 : 0, at::device(device_context.device).dtype(at::kInt));
  all_reduce(loaded, device_context.group, ReduceOp::kMin);
  if (loaded.item<int>() == 0) {
    return problem.empty() ? "its library cannot be loaded on another rank" : problem;
  }
  try {
    const ToyOptions options = {.device = device_context.device};
    const auto model = make_toy_model(ToyKind::kMlp, options);
    VariantOptions with_units;
    for (const at::Tensor& parameter : tensors_of(model->named_parameters())) {
      with_units.units.push_back(
          {{parameter}, [](const at::Tensor& x, const auto& own) { return x + own[0].sum(); }});
    }
    const auto made = make_variant(variant, *model, device_context.group, with_units);
    const Variant::Forward whole = [&](const at::Tensor& x) {
      return x +
             toy_loss(*model, make_toy_batch(options, device_context.group->getRank(), /*step=*/0));
    };
    made->forward(whole, at::zeros({}, device_context.device)).backward();
    made->finish();
    return "";
  } catch (const c10::NotImplementedError& error) {
    return error.msg();
  }
}

}  // namespace

MoreVariants::MoreVariants(std::vector<VariantKind> more) {
  std::ranges::move(more, std::back_inserter(kinds()));
}

const std::vector<std::string>& all_variants() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const VariantKind& kind : kinds()) {
      if (!kind.special) {
        all.emplace_back(kind.name);
      }
    }
    return all;
  }();
  return names;
}

std::vector<std::string> variants_with_optimizer() {
  std::vector<std::string> names = {"bucketed"};
  for (const VariantKind& kind : kinds()) {
    if (kind.updates) {
      names.emplace_back(kind.name);
    }
  }
  return names;
}

std::string stage_of(const std::string& variant) { return kind_of(variant).stage; }

std::unique_ptr<Variant> make_variant(const std::string& name, const Model& model,
                                      const ProcessGroupPtr& group, const VariantOptions& options) {
  return make(kind_of(name), {.parameters = tensors_of(model.named_parameters()),
                              .buffers = tensors_of(model.named_buffers()),
                              .group = group,
                              .options = options});
}

std::unique_ptr<Variant> make_variant(const std::string& name,
                                      const std::vector<at::Tensor>& parameters,
                                      const ProcessGroupPtr& group, const VariantOptions& options) {
  return make(kind_of(name),
              {.parameters = parameters, .buffers = {}, .group = group, .options = options});
}

std::vector<std::string> keep_usable(
    const std::vector<std::string>& names, const std::string& implementation, bool tells,
    const std::function<std::string(const std::string& variant)>& problem_of) {
  std::vector<std::string> usable;
  bool stages_asked = false, stages_left = false;
  for (const std::string& name : names) {
    if (stage_of(name).empty()) {
      usable.push_back(name);
      continue;
    }
    stages_asked = true;
    const std::string problem = problem_of(name);
    if (problem.empty()) {
      usable.push_back(name);
      stages_left = true;
    } else if (tells) {
      std::fprintf(stderr, "%s is left out: %s\n", name.c_str(), problem.c_str());
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(stages_left || !stages_asked,
                              "none of the variants that are code of ", implementation,
                              "/ is finished, so there is nothing to measure");
  return usable;
}

std::vector<std::string> usable_variants(const std::vector<std::string>& names,
                                         const std::string& implementation,
                                         const DeviceContext& device_context) {
  return keep_usable(names, implementation, device_context.group->getRank() == 0,
                     [&](const std::string& name) {
                       return reason_to_leave_out(name, implementation, device_context);
                     });
}

}  // namespace ddp
