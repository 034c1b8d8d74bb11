// Correct, and unusual: c10d without the lab's helpers, the backend averages (ReduceOp::AVG), the
// averages are copied back into the tensors that backward filled, and the plan is a recursion.
#include <ATen/ATen.h>

#include <deque>
#include <limits>
#include <set>

#include "../construction.h"
#include "03_bucketed_ddp/bucketed_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

using Bucket = std::vector<std::size_t>;

bool alike(const at::Tensor& a, const at::Tensor& b) {
  return a.dtype() == b.dtype() && a.device() == b.device();
}

// Takes the last of the `left` indices, and all that join it; then recurses on the rest.
void plan_the_rest(std::deque<std::size_t> left, const std::vector<at::Tensor>& parameters,
                   std::int64_t cap_bytes, std::vector<Bucket>& plan) {
  if (left.empty()) {
    return;
  }
  const at::Tensor& first = parameters[left.back()];
  Bucket bucket;
  std::deque<std::size_t> others;
  for (std::int64_t room = cap_bytes; !left.empty(); left.pop_back()) {
    const at::Tensor& candidate = parameters[left.back()];
    if (room > 0 && alike(candidate, first)) {
      bucket.push_back(left.back());
      room -= candidate.numel() * static_cast<std::int64_t>(candidate.element_size());
    } else {
      others.push_front(left.back());
    }
  }
  plan.push_back(bucket);
  plan_the_rest(others, parameters, cap_bytes, plan);
}

class Averager : public GradientSynchronizer {
 public:
  Averager(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
           ProcessGroupPtr group, const BucketedDdpOptions& options)
      : group_(std::move(group)), overlap_(options.overlap), parameters_(parameters) {
    for (const auto& tensors : {buffers, parameters}) {
      for (const at::Tensor& tensor : tensors) {
        std::vector<at::Tensor> values = {tensor.detach().contiguous()};
        group_->broadcast(values)->wait();
        tensor.detach().copy_(values[0]);
      }
    }
    plan_ = assign_buckets(parameters, options.cap_bytes);
    flats_.resize(plan_.size());
    works_.resize(plan_.size());
    ready_.resize(plan_.size());
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      for (const std::size_t i : plan_[b]) {
        hooks_.push_back(on_gradient_ready(parameters_[i],
                                           [this, b, i](const at::Tensor&) { note_ready(b, i); }));
      }
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    while (next_ < plan_.size()) {
      launch();
      if (!overlap_) {
        works_[next_ - 1]->wait();
      }
    }
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      works_[b]->wait();
      copy_back(b);
      works_[b].reset();
      flats_[b].reset();
      ready_[b].clear();
    }
    next_ = 0;
  }

 private:
  void note_ready(std::size_t b, std::size_t i) {
    if (!synchronizes()) {
      return;
    }
    check_kind(i);
    TORCH_CHECK(ready_[b].insert(i).second, "a second backward before finish()");
    while (overlap_ && next_ < plan_.size() && ready_[next_].size() == plan_[next_].size()) {
      launch();
    }
  }

  void check_kind(std::size_t i) const {
    const at::Tensor& gradient = parameters_[i].grad();
    TORCH_CHECK(!gradient.defined() || !gradient.is_sparse(), "sparse gradient of parameter #", i);
    TORCH_CHECK(kinds_[i] == parameters_[i].scalar_type(), "the dtype of parameter #", i,
                " has changed");
  }

  // A flat tensor lives from here to copy_back().
  void launch() {
    const at::NoGradGuard no_grad;
    std::int64_t elements = 0;
    for (const std::size_t i : plan_[next_]) {
      check_kind(i);
      elements += parameters_[i].numel();
    }
    const at::Tensor& first = parameters_[plan_[next_].front()];
    flats_[next_] = at::zeros({elements}, first.options().requires_grad(false));
    for_each_place(
        next_, [](const at::Tensor& place, const at::Tensor& gradient) { place.copy_(gradient); });
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::AVG;
    std::vector<at::Tensor> one = {flats_[next_]};
    works_[next_] = group_->allreduce(one, options);
    ++next_;
  }

  void copy_back(std::size_t b) {
    const at::NoGradGuard no_grad;
    for (const std::size_t i : plan_[b]) {
      if (!parameters_[i].grad().defined()) {
        parameters_[i].mutable_grad() = at::zeros_like(parameters_[i]);
      }
    }
    for_each_place(
        b, [](const at::Tensor& place, const at::Tensor& gradient) { gradient.copy_(place); });
  }

  void for_each_place(std::size_t b,
                      const std::function<void(const at::Tensor&, const at::Tensor&)>& act) {
    std::int64_t offset = 0;
    for (const std::size_t i : plan_[b]) {
      const at::Tensor& parameter = parameters_[i];
      if (parameter.grad().defined()) {
        act(flats_[b].slice(0, offset, offset + parameter.numel()).view(parameter.sizes()),
            parameter.grad());
      }
      offset += parameter.numel();
    }
  }

  static std::vector<at::ScalarType> kinds_of(const std::vector<at::Tensor>& parameters) {
    std::vector<at::ScalarType> kinds;
    for (const at::Tensor& parameter : parameters) {
      kinds.push_back(parameter.scalar_type());
    }
    return kinds;
  }

  ProcessGroupPtr group_;
  bool overlap_;
  std::vector<at::Tensor> parameters_;
  const std::vector<at::ScalarType> kinds_ = kinds_of(parameters_);
  std::vector<Bucket> plan_;
  std::vector<at::Tensor> flats_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
  std::vector<std::set<std::size_t>> ready_;
  std::size_t next_ = 0;
  std::vector<GradientHook> hooks_;  // last: destroyed before what they use
};

}  // namespace

std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<at::Tensor>& parameters,
                                                     std::int64_t cap_bytes) {
  check_parameters(parameters, cap_bytes);
  std::set<void*> seen;
  std::deque<std::size_t> trainable;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (seen.insert(parameters[i].unsafeGetTensorImpl()).second && parameters[i].requires_grad()) {
      trainable.push_back(i);
    }
  }
  std::vector<Bucket> plan;
  plan_the_rest(std::move(trainable), parameters, cap_bytes, plan);
  std::ranges::sort(plan, std::greater{}, [](const Bucket& bucket) { return bucket.back(); });
  return plan;
}

std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(std::vector<at::Tensor> parameters,
                                                        std::vector<at::Tensor> buffers,
                                                        ProcessGroupPtr group,
                                                        const BucketedDdpOptions& options) {
  check_arguments(parameters, buffers, group, /*uniform=*/false, options.cap_bytes);
  return std::make_unique<Averager>(parameters, buffers, std::move(group), options);
}

}  // namespace ddp
