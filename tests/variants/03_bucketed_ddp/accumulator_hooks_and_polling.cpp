// Correct, and unusual: autograd's own hooks on the nodes that accumulate gradients instead of
// on_gradient_ready(); finish() polls instead of waiting; buckets are coalesced all-reduces of one
// tensor; and a hook only records and launches: gradients are divided and copied in at the launch.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "../construction.h"
#include "03_bucketed_ddp/bucketed_ddp.h"
#include "ddp/libtorch_versions.h"

namespace ddp {
namespace {

namespace autograd = torch::autograd;

class Notice : public autograd::FunctionPostHook {
 public:
  explicit Notice(std::function<void()> notice) : notice_(std::move(notice)) {}
  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list&) override {
    notice_();
    return outputs;
  }

 private:
  std::function<void()> notice_;
};

struct Member {
  std::size_t index;
  at::Tensor parameter;
  OwnedNode accumulator;
  std::uintptr_t hook;
  bool ready = false;
};

struct Bucket {
  at::Tensor flat;
  std::vector<std::unique_ptr<Member>> members;
  WorkPtr work;
};

void poll(const WorkPtr& work) {
  while (!work->isCompleted()) {
    std::this_thread::yield();
  }
  TORCH_CHECK(work->exception() == nullptr, "an all-reduce failed");
}

class Polling : public GradientSynchronizer {
 public:
  Polling(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
          ProcessGroupPtr group, const BucketedDdpOptions& options)
      : group_(std::move(group)), overlap_(options.overlap) {
    take_from_rank_0(parameters, group_);
    take_from_rank_0(buffers, group_);
    for (const auto& indices : assign_buckets(parameters, options.cap_bytes)) {
      Bucket& bucket = buckets_.emplace_back();
      std::int64_t elements = 0;
      for (const std::size_t i : indices) {
        elements += parameters[i].numel();
        bucket.members.push_back(hook_on(i, parameters[i]));
      }
      bucket.flat =
          at::empty({elements}, parameters[indices.front()].options().requires_grad(false));
    }
  }

  ~Polling() override {
    for (const Bucket& bucket : buckets_) {
      for (const auto& member : bucket.members) {
        member->accumulator->del_post_hook(member->hook);
      }
    }
  }
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    const at::NoGradGuard no_grad;
    while (next_ < buckets_.size()) {
      launch();
      if (!overlap_) {
        poll(buckets_[next_ - 1].work);
      }
    }
    for (Bucket& bucket : buckets_) {
      poll(bucket.work);
      bucket.work.reset();
      std::int64_t offset = 0;
      for (const auto& member : bucket.members) {
        const at::Tensor& parameter = member->parameter;
        const at::Tensor mean =
            bucket.flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
        offset += parameter.numel();
        member->ready = false;
        if (parameter.grad().defined()) {
          parameter.grad().copy_(mean);
        } else {  // only other ranks had one, or none
          parameter.mutable_grad() = mean.clone();
        }
      }
    }
    next_ = 0;
  }

 private:
  std::unique_ptr<Member> hook_on(std::size_t index, const at::Tensor& parameter) {
    auto member = std::make_unique<Member>();
    member->index = index;
    member->parameter = parameter;
    member->accumulator = autograd::impl::grad_accumulator(parameter);
    member->hook = member->accumulator->add_post_hook(
        std::make_unique<Notice>([this, raw = member.get()] { note_ready(*raw); }));
    return member;
  }

  void note_ready(Member& member) {
    if (!synchronizes() || !overlap_) {
      return;
    }
    TORCH_CHECK(!member.ready, "finish() is missing between two backwards");
    member.ready = true;
    const auto is_ready = [](const auto& other) { return other->ready; };
    while (next_ < buckets_.size() && std::ranges::all_of(buckets_[next_].members, is_ready)) {
      launch();
    }
  }

  void launch() {
    const at::NoGradGuard no_grad;
    Bucket& bucket = buckets_[next_];
    std::int64_t offset = 0;
    for (const auto& member : bucket.members) {
      const at::Tensor& parameter = member->parameter;
      const at::Tensor place =
          bucket.flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
      offset += parameter.numel();
      TORCH_CHECK(parameter.scalar_type() == place.scalar_type(), "the type of parameter ",
                  member->index, " has changed");
      if (!parameter.grad().defined()) {
        place.fill_(0);
        continue;
      }
      TORCH_CHECK(parameter.grad().layout() == at::kStrided, "parameter ", member->index,
                  ": sparse");
      place.copy_(parameter.grad()).mul_(1.0 / group_->getSize());
    }
    std::vector<at::Tensor> one = {bucket.flat};
    bucket.work = group_->allreduce_coalesced(one);
    ++next_;
  }

  ProcessGroupPtr group_;
  const bool overlap_;
  std::vector<Bucket> buckets_;
  std::size_t next_ = 0;
};

}  // namespace

// One kind after another, then all sorted by their last members.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<at::Tensor>& parameters,
                                                     std::int64_t cap_bytes) {
  check_parameters(parameters, cap_bytes);
  std::unordered_map<std::string, std::vector<std::size_t>> by_kind;
  std::unordered_set<const void*> seen;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& p = parameters[i];
    if (seen.insert(p.unsafeGetTensorImpl()).second && p.requires_grad()) {
      by_kind[c10::str(p.scalar_type(), p.device())].push_back(i);
    }
  }
  std::vector<std::vector<std::size_t>> plan;
  for (auto& [kind, indices] : by_kind) {
    while (!indices.empty()) {
      std::vector<std::size_t>& bucket = plan.emplace_back();
      for (std::int64_t bytes = 0; !indices.empty() && bytes < cap_bytes; indices.pop_back()) {
        bucket.push_back(indices.back());
        bytes += static_cast<std::int64_t>(parameters[indices.back()].nbytes());
      }
    }
  }
  std::ranges::sort(plan, [](const auto& a, const auto& b) { return a.back() > b.back(); });
  return plan;
}

std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(std::vector<at::Tensor> parameters,
                                                        std::vector<at::Tensor> buffers,
                                                        ProcessGroupPtr group,
                                                        const BucketedDdpOptions& options) {
  check_arguments(parameters, buffers, group, /*uniform=*/false, options.cap_bytes);
  return std::make_unique<Polling>(parameters, buffers, std::move(group), options);
}

}  // namespace ddp
