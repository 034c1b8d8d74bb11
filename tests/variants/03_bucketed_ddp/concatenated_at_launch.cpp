// Correct, and unusual: no buckets between steps. A bucket is concatenated (at::cat) when it is
// launched; a map from its number holds its state, including its future. The division comes last.
#include <ATen/ATen.h>

#include <list>
#include <map>
#include <optional>

#include "../construction.h"
#include "03_bucketed_ddp/bucketed_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

struct Launched {
  at::Tensor flat;
  WorkPtr work;
  c10::intrusive_ptr<c10::ivalue::Future> future;
};

class Concatenating : public GradientSynchronizer {
 public:
  Concatenating(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
                ProcessGroupPtr group, const BucketedDdpOptions& options)
      : parameters_(parameters), group_(std::move(group)), options_(options) {
    for (const at::Tensor& tensor : parameters) {
      options_of_.push_back(tensor.options().requires_grad(false));
    }
    take_from_rank_0(parameters, group_);
    take_from_rank_0(buffers, group_);
    plan_ = assign_buckets(parameters, options.cap_bytes);
    for (const auto& bucket : plan_) {
      for (const std::size_t i : bucket) {
        hooks_.push_back(
            on_gradient_ready(parameters_[i], [this, i](const at::Tensor&) { note_ready(i); }));
      }
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    while (launched_.size() < plan_.size()) {
      launch();
      if (!options_.overlap) {
        launched_.rbegin()->second.future->waitAndThrow();
      }
    }
    for (auto& [b, bucket] : launched_) {
      bucket.future->waitAndThrow();
      const at::NoGradGuard no_grad;
      const at::Tensor mean = bucket.flat.div(group_->getSize());
      std::int64_t offset = 0;
      for (const std::size_t i : plan_[b]) {
        const at::Tensor& parameter = parameters_[i];
        parameter.mutable_grad() =
            mean.narrow(0, offset, parameter.numel()).reshape(parameter.sizes());
        offset += parameter.numel();
      }
      bucket = {};
    }
    launched_.clear();
    ready_.clear();
  }

 private:
  void note_ready(std::size_t i) {
    if (!synchronizes()) {
      return;
    }
    TORCH_CHECK(++ready_[i] == 1, "parameter ", i, " came twice before finish()");
    check_gradient(i);
    while (options_.overlap && launched_.size() < plan_.size() && is_full(launched_.size())) {
      launch();
    }
  }

  bool is_full(std::size_t b) const {
    return std::ranges::all_of(plan_[b], [&](std::size_t i) { return ready_.contains(i); });
  }

  // Returns the gradient, or zeros.
  at::Tensor check_gradient(std::size_t i) const {
    const at::Tensor& gradient = parameters_[i].grad();
    TORCH_CHECK(parameters_[i].dtype() == options_of_[i].dtype(), "parameter ", i,
                " changed its dtype");
    TORCH_CHECK(!gradient.defined() || gradient.layout() == at::kStrided, "parameter ", i,
                " has a sparse gradient");
    return gradient.defined() ? gradient.reshape({-1})
                              : at::zeros({parameters_[i].numel()}, options_of_[i]);
  }

  void launch() {
    const at::NoGradGuard no_grad;
    const std::size_t b = launched_.size();
    std::vector<at::Tensor> pieces;
    for (const std::size_t i : plan_[b]) {
      pieces.push_back(check_gradient(i));
    }
    Launched bucket;
    bucket.flat = at::cat(pieces);
    bucket.work = all_reduce_async(bucket.flat, group_);
    bucket.future = bucket.work->getFuture();
    launched_.emplace(b, std::move(bucket));
  }

  std::vector<at::Tensor> parameters_;
  std::vector<at::TensorOptions> options_of_;
  ProcessGroupPtr group_;
  BucketedDdpOptions options_;
  std::vector<std::vector<std::size_t>> plan_;
  std::map<std::size_t, int> ready_;
  std::map<std::size_t, Launched> launched_;
  std::list<GradientHook> hooks_;
};

void check(const std::vector<at::Tensor>& parameters, std::int64_t cap_bytes) {
  TORCH_CHECK(cap_bytes >= 1, "a cap of ", cap_bytes, " bytes");
  TORCH_CHECK(!parameters.empty(), "no parameters");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    TORCH_CHECK(parameters[i].defined(), "parameter ", i, " is undefined");
    TORCH_CHECK(!parameters[i].requires_grad() || parameters[i].is_leaf(), "parameter ", i,
                " is not a leaf");
  }
}

}  // namespace

// For each parameter: the first open bucket of its kind in a list that is scanned, or a new one.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<at::Tensor>& parameters,
                                                     std::int64_t cap_bytes) {
  check(parameters, cap_bytes);
  struct Draft {
    std::vector<std::size_t> members;
    std::size_t bytes;
  };
  std::list<Draft> drafts;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const at::Tensor& parameter = parameters[i];
    const bool earlier = std::any_of(parameters.begin(), parameters.begin() + i,
                                     [&](const at::Tensor& p) { return p.is_same(parameter); });
    if (!parameter.requires_grad() || earlier) {
      continue;
    }
    auto draft = std::ranges::find_if(drafts, [&](const Draft& open) {
      const at::Tensor& member = parameters[open.members.front()];
      return open.bytes < static_cast<std::size_t>(cap_bytes) &&
             member.options().type_equal(parameter.options()) &&
             member.device() == parameter.device();
    });
    if (draft == drafts.end()) {
      draft = drafts.insert(drafts.end(), Draft{});
    }
    draft->members.push_back(i);
    draft->bytes += parameter.nbytes();
  }
  drafts.sort([](const Draft& a, const Draft& b) { return a.members.back() > b.members.back(); });
  std::vector<std::vector<std::size_t>> plan;
  for (Draft& draft : drafts) {
    plan.push_back(std::move(draft.members));
  }
  return plan;
}

std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(std::vector<at::Tensor> parameters,
                                                        std::vector<at::Tensor> buffers,
                                                        ProcessGroupPtr group,
                                                        const BucketedDdpOptions& options) {
  TORCH_CHECK(group != nullptr, "no group");
  check(parameters, options.cap_bytes);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    TORCH_CHECK(buffers[i].defined(), "buffer ", i, " is undefined");
  }
  return std::make_unique<Concatenating>(parameters, buffers, std::move(group), options);
}

}  // namespace ddp
