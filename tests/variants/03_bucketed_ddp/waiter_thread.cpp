// Correct, and unusual: a thread of its own waits for each bucket as soon as it is launched, and divides
// it; finish() launches the rest and waits for that thread. A hook refuses a sparse gradient inside
// NoSync, too.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "../construction.h"
#include "../waiter.h"
#include "03_bucketed_ddp/bucketed_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

class Synchronizer : public GradientSynchronizer {
 public:
  Synchronizer(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
               const ProcessGroupPtr& group, const BucketedDdpOptions& options)
      : parameters_(parameters), group_(group), overlap_(options.overlap) {
    take_from_rank_0(parameters, group);
    take_from_rank_0(buffers, group);
    for (const at::Tensor& parameter : parameters) {
      dtypes_.push_back(parameter.scalar_type());
    }
    plan_ = assign_buckets(parameters, options.cap_bytes);
    for (const auto& bucket : plan_) {
      for (const std::size_t i : bucket) {
        hooks_.push_back(on_gradient_ready(parameters_[i], [this, i](const auto&) { ready(i); }));
      }
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    const at::NoGradGuard no_grad;
    while (flats_.size() < plan_.size()) {
      launch();
      if (!overlap_) {
        waiter_.drain();
      }
    }
    waiter_.drain();
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      std::int64_t offset = 0;
      for (const std::size_t i : plan_[b]) {
        const at::Tensor& parameter = parameters_[i];
        parameter.mutable_grad() =
            flats_[b].narrow(0, offset, parameter.numel()).view(parameter.sizes());
        offset += parameter.numel();
      }
    }
    flats_.clear();
    ready_.clear();
  }

 private:
  void ready(std::size_t i) {
    TORCH_CHECK(!ready_.contains(i), "a second backward has reached parameter ", i);
    check(i);
    if (!synchronizes()) {
      return;
    }
    ready_.insert(i);
    const auto is_ready = [this](std::size_t member) { return ready_.contains(member); };
    while (overlap_ && flats_.size() < plan_.size() &&
           std::ranges::all_of(plan_[flats_.size()], is_ready)) {
      launch();
    }
  }

  void check(std::size_t i) const {
    const at::Tensor& gradient = parameters_[i].grad();
    TORCH_CHECK(!gradient.defined() || gradient.layout() == at::kStrided, "parameter ", i,
                " has a sparse gradient");
    TORCH_CHECK(parameters_[i].scalar_type() == dtypes_[i] &&
                    (!gradient.defined() || gradient.scalar_type() == dtypes_[i]),
                "parameter ", i, " has another dtype now");
  }

  void launch() {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> pieces;
    for (const std::size_t i : plan_[flats_.size()]) {
      check(i);
      const at::Tensor& gradient = parameters_[i].grad();
      pieces.push_back(gradient.defined()
                           ? gradient.reshape({-1})
                           : at::zeros({parameters_[i].numel()}, parameters_[i].options()));
    }
    flats_.push_back(at::cat(pieces));
    const at::Tensor& sum = flats_.back();
    waiter_.submit([sum, ranks = group_->getSize(), work = all_reduce_async(sum, group_)] {
      work->wait();
      const at::NoGradGuard no_grad;
      sum.div_(ranks);
    });
  }

  const std::vector<at::Tensor> parameters_;
  std::vector<at::ScalarType> dtypes_;
  const ProcessGroupPtr group_;
  const bool overlap_;
  std::vector<std::vector<std::size_t>> plan_;
  std::set<std::size_t> ready_;
  std::vector<at::Tensor> flats_;  // of the buckets that have been launched
  Waiter waiter_;
  std::vector<GradientHook> hooks_;  // last: the hooks use the others
};

}  // namespace

std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<at::Tensor>& parameters,
                                                     std::int64_t cap_bytes) {
  check_parameters(parameters, cap_bytes);
  std::map<const void*, std::size_t> first;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    first.emplace(parameters[i].unsafeGetTensorImpl(), i);
  }
  std::vector<std::vector<std::size_t>> plan;
  std::map<std::pair<at::ScalarType, at::Device>, std::pair<std::size_t, std::int64_t>,
           decltype([](const auto& a, const auto& b) {
             return std::pair(a.first, a.second.str()) < std::pair(b.first, b.second.str());
           })>
      open;  // a bucket's number and bytes, by dtype and device
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const at::Tensor& parameter = parameters[i];
    if (!parameter.requires_grad() || first[parameter.unsafeGetTensorImpl()] != i) {
      continue;
    }
    const auto kind = std::pair(parameter.scalar_type(), parameter.device());
    const auto found = open.emplace(kind, std::pair(plan.size(), std::int64_t{0})).first;
    auto& [number, bytes] = found->second;
    plan.resize(std::max(plan.size(), number + 1));
    plan[number].push_back(i);
    bytes += static_cast<std::int64_t>(parameter.nbytes());
    if (bytes >= cap_bytes) {
      open.erase(found);
    }
  }
  std::ranges::sort(plan, std::greater(), [](const auto& bucket) { return bucket.back(); });
  return plan;
}

std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(std::vector<at::Tensor> parameters,
                                                        std::vector<at::Tensor> buffers,
                                                        ProcessGroupPtr group,
                                                        const BucketedDdpOptions& options) {
  check_arguments(parameters, buffers, group, /*uniform=*/false, options.cap_bytes);
  return std::make_unique<Synchronizer>(parameters, buffers, group, options);
}

}  // namespace ddp
