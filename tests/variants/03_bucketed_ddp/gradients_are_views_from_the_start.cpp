// Correct, and unusual: gradients are views of the buckets even before the first backward, as with
// PyTorch's gradient_as_bucket_view, so that backward accumulates into the buckets themselves. All
// buckets of a dtype share one storage. The sums are divided after the wait, in the bucket.
#include <ATen/ATen.h>

#include <map>
#include <set>

#include "../construction.h"
#include "03_bucketed_ddp/bucketed_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

void check(const std::vector<at::Tensor>& parameters, std::int64_t cap_bytes) {
  TORCH_CHECK(cap_bytes > 0, "the cap must be positive");
  TORCH_CHECK(!parameters.empty(), "there are no parameters");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    TORCH_CHECK(parameters[i].defined(), "undefined: parameter ", i);
    TORCH_CHECK(parameters[i].is_leaf(), "no leaf: parameter ", i);
  }
}

class Views : public GradientSynchronizer {
 public:
  Views(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
        ProcessGroupPtr group, const BucketedDdpOptions& options)
      : parameters_(parameters),
        group_(std::move(group)),
        overlap_(options.overlap),
        plan_(assign_buckets(parameters, options.cap_bytes)),
        views_(parameters.size()),
        here_(parameters.size(), false) {
    take_from_rank_0(parameters, group_);
    take_from_rank_0(buffers, group_);
    lay_out();
    for (const auto& bucket : plan_) {
      for (const std::size_t i : bucket) {
        put_in_place(i);
        hooks_.push_back(
            on_gradient_ready(parameters_[i], [this, i](const at::Tensor&) { arrived(i); }));
      }
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    const at::NoGradGuard no_grad;
    while (works_.size() < plan_.size()) {
      for (const std::size_t i : plan_[works_.size()]) {
        put_in_place(i);
      }
      launch();
      if (!overlap_) {
        works_.back()->wait();
      }
    }
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      works_[b]->wait();
      flats_[b] /= group_->getSize();
    }
    works_.clear();
    here_.assign(here_.size(), false);
  }

 private:
  // One storage for each dtype; buckets are parts of it, and gradients are views of buckets.
  void lay_out() {
    std::map<at::ScalarType, std::int64_t> elements;
    for (const auto& bucket : plan_) {
      for (const std::size_t i : bucket) {
        elements[parameters_[i].scalar_type()] += parameters_[i].numel();
      }
    }
    std::map<at::ScalarType, at::Tensor> rest;
    for (const auto& bucket : plan_) {
      const at::Tensor& first = parameters_[bucket.front()];
      at::Tensor& free = rest[first.scalar_type()];
      if (!free.defined()) {
        free = at::zeros({elements[first.scalar_type()]}, first.options().requires_grad(false));
      }
      const at::Tensor whole = free;
      std::int64_t used = 0;
      for (const std::size_t i : bucket) {
        views_[i] =
            whole.slice(0, used, used + parameters_[i].numel()).view(parameters_[i].sizes());
        used += parameters_[i].numel();
      }
      flats_.push_back(whole.slice(0, 0, used));
      free = whole.slice(0, used);
    }
  }

  // Afterwards the gradient is its view, with the gradient's former contents.
  void put_in_place(std::size_t i) {
    const at::NoGradGuard no_grad;
    at::Tensor& gradient = parameters_[i].mutable_grad();
    TORCH_CHECK(parameters_[i].scalar_type() == views_[i].scalar_type(), "parameter ", i, " is ",
                parameters_[i].scalar_type(), " now");
    if (!gradient.defined()) {
      views_[i].zero_();
    } else {
      TORCH_CHECK(!gradient.is_sparse(), "parameter ", i, " has a sparse gradient");
      if (!gradient.is_alias_of(views_[i])) {
        views_[i].copy_(gradient);
      }
    }
    gradient = views_[i];
  }

  void arrived(std::size_t i) {
    if (!synchronizes() || !overlap_) {
      return;
    }
    TORCH_CHECK(!here_[i], "two backwards and no finish()");
    here_[i] = true;
    put_in_place(i);
    while (works_.size() < plan_.size() &&
           std::ranges::all_of(plan_[works_.size()], [&](std::size_t m) { return here_[m]; })) {
      launch();
    }
  }

  void launch() { works_.push_back(all_reduce_async(flats_[works_.size()], group_)); }

  std::vector<at::Tensor> parameters_;
  ProcessGroupPtr group_;
  const bool overlap_;
  const std::vector<std::vector<std::size_t>> plan_;
  std::vector<at::Tensor> views_, flats_;
  std::vector<bool> here_;
  std::vector<WorkPtr> works_;
  std::vector<GradientHook> hooks_;
};

}  // namespace

std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<at::Tensor>& parameters,
                                                     std::int64_t cap_bytes) {
  check(parameters, cap_bytes);
  // By last member: a bucket's key becomes smaller with each member that joins it.
  std::map<std::size_t, std::vector<std::size_t>, std::greater<>> buckets;
  std::map<std::string, std::pair<std::size_t, std::size_t>> open;  // kind: key, bytes
  std::map<const void*, std::size_t> first;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    first[parameters[i].unsafeGetTensorImpl()] = i;
  }
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const at::Tensor& parameter = parameters[i];
    if (!parameter.requires_grad() || first[parameter.unsafeGetTensorImpl()] != i) {
      continue;
    }
    const std::string kind = parameter.device().str() + c10::toString(parameter.scalar_type());
    std::vector<std::size_t> members;
    std::size_t bytes = 0;
    if (const auto found = open.find(kind); found != open.end()) {
      members = buckets.extract(found->second.first).mapped();
      bytes = found->second.second;
      open.erase(found);
    }
    members.push_back(i);
    bytes += parameter.nbytes();
    buckets[i] = members;
    if (bytes < static_cast<std::size_t>(cap_bytes)) {
      open[kind] = {i, bytes};
    }
  }
  std::vector<std::vector<std::size_t>> plan;
  for (auto& [last, members] : buckets) {
    plan.push_back(std::move(members));
  }
  return plan;
}

std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(std::vector<at::Tensor> parameters,
                                                        std::vector<at::Tensor> buffers,
                                                        ProcessGroupPtr group,
                                                        const BucketedDdpOptions& options) {
  TORCH_CHECK(group, "a group is needed");
  check(parameters, options.cap_bytes);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    TORCH_CHECK(buffers[i].defined(), "undefined: buffer ", i);
  }
  return std::make_unique<Views>(parameters, buffers, std::move(group), options);
}

}  // namespace ddp
