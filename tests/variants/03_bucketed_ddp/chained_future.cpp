// Correct, and unusual: a callback chained on each bucket's future divides, and finish() waits for the
// handle and for the chained future.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "03_bucketed_ddp/bucketed_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

using Plan = std::vector<std::vector<std::size_t>>;

void check_parameters(const std::vector<at::Tensor>& parameters, std::int64_t cap_bytes) {
  TORCH_CHECK(cap_bytes > 0, "DDP: a bucket needs a cap of at least one byte, not ", cap_bytes);
  TORCH_CHECK(!parameters.empty(), "DDP: the list of parameters is empty");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    TORCH_CHECK(parameters[i].defined(), "DDP: parameter ", i, " is undefined");
    TORCH_CHECK(parameters[i].is_leaf(), "DDP: parameter ", i,
                " is not a leaf of the autograd graph, so backward leaves no gradient in it");
  }
}

/// The indices of all parameters, each once: tied weights, which are listed for each of their uses,
/// count where they come first.
std::vector<std::size_t> first_occurrences(const std::vector<at::Tensor>& parameters) {
  std::vector<std::size_t> indices;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (seen.insert(parameters[i].unsafeGetTensorImpl()).second) {
      indices.push_back(i);
    }
  }
  return indices;
}

/// What all members of a bucket have in common.
using Kind = std::tuple<at::ScalarType, at::DeviceType, at::DeviceIndex>;

Kind kind_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.device().type(), tensor.device().index()};
}

void broadcast_from_rank_0(const at::Tensor& tensor, const ProcessGroupPtr& group) {
  const at::Tensor values = tensor.detach();          // same storage, unseen by autograd
  const at::Tensor contiguous = values.contiguous();  // a copy only where it must be one
  broadcast(contiguous, group);
  if (!contiguous.is_same(values)) {
    values.copy_(contiguous);
  }
}

/// A trainable parameter and its place in a bucket.
struct Member {
  std::size_t index;  // in the caller's list, by which error messages name it
  at::Tensor parameter;
  at::Tensor place;  // the part of the bucket that is its gradient's, in the parameter's shape
  GradientHook hook = {};
  bool filled = false;  // its place holds this step's gradient
};

struct Bucket {
  at::Tensor flat;
  std::vector<Member> members;
  std::size_t missing;  // members not filled yet
  WorkPtr work = {};
  c10::intrusive_ptr<c10::ivalue::Future> averaged = {};
};

/// A flat tensor for the planned members, whose places lie one after the other, in their order.
Bucket make_bucket(const std::vector<std::size_t>& indices,
                   const std::vector<at::Tensor>& parameters) {
  std::int64_t elements = 0;
  for (const std::size_t index : indices) {
    elements += parameters[index].numel();
  }
  Bucket bucket{.flat = at::empty({elements}, parameters[indices.front()].options()),
                .members = {},
                .missing = indices.size()};
  std::int64_t offset = 0;
  for (const std::size_t index : indices) {
    const at::Tensor& parameter = parameters[index];
    at::Tensor place = bucket.flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    bucket.members.push_back({.index = index, .parameter = parameter, .place = std::move(place)});
    offset += parameter.numel();
  }
  return bucket;
}

class BucketedDdp : public GradientSynchronizer {
 public:
  BucketedDdp(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
              ProcessGroupPtr group, const BucketedDdpOptions& options)
      : group_(std::move(group)), overlap_(options.overlap) {
    const at::NoGradGuard no_grad;
    for (const std::size_t index : first_occurrences(parameters)) {
      broadcast_from_rank_0(parameters[index], group_);
    }
    for (const at::Tensor& buffer : buffers) {
      broadcast_from_rank_0(buffer, group_);
    }
    for (const auto& indices : assign_buckets(parameters, options.cap_bytes)) {
      buckets_.push_back(make_bucket(indices, parameters));
    }
    if (overlap_) {
      register_hooks();
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    const at::NoGradGuard no_grad;
    while (next_ < buckets_.size()) {  // those that no hook has launched
      fill_missing(buckets_[next_]);
      const Bucket& launched = launch_next();
      if (!overlap_) {
        launched.averaged->waitAndThrow();
      }
    }
    next_ = 0;
    for (Bucket& bucket : buckets_) {
      publish(bucket);
    }
  }

 private:
  void register_hooks() {
    for (Bucket& bucket : buckets_) {  // filled and final: hooks refer to its elements
      for (Member& member : bucket.members) {
        member.hook = on_gradient_ready(
            member.parameter,
            [this, &bucket, &member](const at::Tensor&) { gradient_ready(bucket, member); });
      }
    }
  }

  /// Called within backward.
  void gradient_ready(Bucket& bucket, Member& member) {
    TORCH_CHECK(!member.filled,
                "bucketed DDP: backward ran twice without finish() in between, so the gradient of "
                "parameter ",
                member.index,
                " may be in flight already; call finish() after each backward, or accumulate "
                "inside a NoSync scope");
    if (!synchronizes()) {
      return;  // the gradient keeps the sum until a step that sends it
    }
    const at::NoGradGuard no_grad;
    fill(bucket, member);
    while (next_ < buckets_.size() && buckets_[next_].missing == 0) {
      launch_next();
    }
  }

  /// Copies a gradient to its place in the bucket, or zeros where there is none.
  void fill(Bucket& bucket, Member& member) {
    const at::Tensor& gradient = member.parameter.grad();
    check_kind(bucket, member, member.parameter);
    if (!gradient.defined()) {
      member.place.zero_();
    } else {
      check_kind(bucket, member, gradient);
      // No copy where the gradient still is the place, as it has been since the last finish().
      member.place.copy_(gradient);
    }
    member.filled = true;
    --bucket.missing;
  }

  void check_kind(const Bucket& bucket, const Member& member, const at::Tensor& tensor) const {
    TORCH_CHECK(tensor.layout() == at::kStrided, "DDP: the gradient of parameter ", member.index,
                " is sparse; only dense gradients can be reduced");
    TORCH_CHECK(kind_of(tensor) == kind_of(bucket.flat), "bucketed DDP: parameter ", member.index,
                " is ", tensor.scalar_type(), " on ", tensor.device(),
                " now, but its bucket was planned for ", bucket.flat.scalar_type(), " on ",
                bucket.flat.device(), "; make a new synchronizer after moving a model");
  }

  void fill_missing(Bucket& bucket) {
    for (Member& member : bucket.members) {
      if (!member.filled) {
        fill(bucket, member);
      }
    }
  }

  /// Launches the next bucket in plan order, which is the same on all ranks.
  const Bucket& launch_next() {
    Bucket& bucket = buckets_[next_++];
    bucket.work = all_reduce_async(bucket.flat, group_);
    bucket.averaged = bucket.work->getFuture()->then(
        [flat = bucket.flat, ranks = group_->getSize()](c10::ivalue::Future& done) {
          done.value();  // throws what the all-reduce has thrown
          const at::NoGradGuard no_grad;
          flat.div_(ranks);
          return c10::IValue();
        },
        c10::NoneType::get());
    return bucket;
  }

  /// Waits for a bucket and makes its places the parameters' gradients, without a copy.
  void publish(Bucket& bucket) {
    std::exchange(bucket.work, nullptr)->wait();
    std::exchange(bucket.averaged, nullptr)->waitAndThrow();
    bucket.missing = bucket.members.size();
    for (Member& member : bucket.members) {
      member.filled = false;
      member.parameter.mutable_grad() = member.place;
    }
  }

  ProcessGroupPtr group_;
  const bool overlap_;
  std::vector<Bucket> buckets_;  // in plan order
  std::size_t next_ = 0;         // the first bucket not yet launched in this step
};

}  // namespace

Plan assign_buckets(const std::vector<at::Tensor>& parameters, std::int64_t cap_bytes) {
  check_parameters(parameters, cap_bytes);
  struct Open {
    std::vector<std::size_t> members;
    std::int64_t bytes = 0;
  };
  std::map<Kind, Open> open;
  Plan plan;
  const std::vector<std::size_t> indices = first_occurrences(parameters);
  for (auto index = indices.rbegin(); index != indices.rend(); ++index) {
    const at::Tensor& parameter = parameters[*index];
    if (!parameter.requires_grad()) {
      continue;
    }
    Open& bucket = open[kind_of(parameter)];
    bucket.members.push_back(*index);
    bucket.bytes += static_cast<std::int64_t>(parameter.nbytes());
    if (bucket.bytes >= cap_bytes) {
      plan.push_back(std::move(bucket.members));
      open.erase(kind_of(parameter));
    }
  }
  for (auto& [kind, bucket] : open) {
    plan.push_back(std::move(bucket.members));
  }
  std::sort(plan.begin(), plan.end(),
            [](const auto& a, const auto& b) { return a.back() > b.back(); });
  return plan;
}

std::unique_ptr<GradientSynchronizer> make_bucketed_ddp(std::vector<at::Tensor> parameters,
                                                        std::vector<at::Tensor> buffers,
                                                        ProcessGroupPtr group,
                                                        const BucketedDdpOptions& options) {
  TORCH_CHECK(group, "DDP: the process group is null");
  check_parameters(parameters, options.cap_bytes);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    TORCH_CHECK(buffers[i].defined(), "DDP: buffer ", i, " is undefined");
  }
  return std::make_unique<BucketedDdp>(parameters, buffers, std::move(group), options);
}

}  // namespace ddp
