#include "06_sharded_optimizer/sharded_optimizer.h"

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <utility>

#include "ddp/bucket_plan.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

void broadcast_from_rank_0(const at::Tensor& tensor, const ProcessGroupPtr& group) {
  const at::Tensor values = tensor.detach();          // same storage, unseen by autograd
  const at::Tensor contiguous = values.contiguous();  // a copy only where it must be one
  broadcast(contiguous, group);
  if (!contiguous.is_same(values)) {
    values.copy_(contiguous);
  }
}

/// A trainable parameter and where its elements begin in its flat bucket.
struct Member {
  std::size_t index;  // in the caller's list, by which error messages name it
  at::Tensor parameter;
  std::int64_t offset;
  GradientHook hook = {};
  bool filled = false;  // the flat bucket holds this step's gradient

  at::Tensor place_in(const at::Tensor& flat) const {
    return flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
  }
};

struct Bucket {
  std::vector<Member> members;
  std::size_t missing;  // members not filled yet
  at::Tensor shard;     // this rank's chunk of the parameters: a leaf, which the optimizer updates
  std::unique_ptr<torch::optim::Optimizer> optimizer = {};
  at::Tensor flat =
      {};  // all gradients, padded, or all parameters; only while they are on their way
  WorkPtr work = {};

  /// Without values, and padded so that all ranks' chunks are equal.
  at::Tensor new_flat(int ranks) const {
    return at::empty({shard.numel() * ranks}, shard.options().requires_grad(false));
  }

  void wait() { std::exchange(work, nullptr)->wait(); }
};

Bucket make_bucket(const std::vector<std::size_t>& indices,
                   const std::vector<at::Tensor>& parameters, int ranks) {
  Bucket bucket{.members = {}, .missing = indices.size(), .shard = {}};
  std::int64_t elements = 0;
  for (const std::size_t index : indices) {
    bucket.members.push_back({.index = index, .parameter = parameters[index], .offset = elements});
    elements += parameters[index].numel();
  }
  const std::int64_t chunk = (elements + ranks - 1) / ranks;
  const auto options = parameters[indices.front()].options().requires_grad(false);
  bucket.shard = at::zeros({chunk}, options).set_requires_grad(true);
  return bucket;
}

class ShardedBuckets : public ShardedOptimizer {
 public:
  ShardedBuckets(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
                 ProcessGroupPtr group, const OptimizerFactory& make_optimizer,
                 const ShardedOptimizerOptions& options)
      : group_(std::move(group)),
        ranks_(group_->getSize()),
        device_(parameters[0].device()),
        overlap_(options.overlap) {
    for (const auto& indices : plan_buckets(parameters, options.cap_bytes)) {
      Bucket bucket = make_bucket(indices, parameters, ranks_);
      if (bucket.shard.numel() > 0) {
        bucket.optimizer = make_optimizer({bucket.shard});
        TORCH_CHECK(bucket.optimizer, "sharded optimizer: the factory has returned no optimizer");
        buckets_.push_back(std::move(bucket));
      }
    }
    const at::NoGradGuard no_grad;
    for (const auto* tensors : {&parameters, &buffers}) {
      for (const at::Tensor& tensor : *tensors) {
        broadcast_from_rank_0(tensor, group_);
      }
    }
    for (Bucket& bucket : buckets_) {
      take_own_chunk(bucket);
      for (Member& member : bucket.members) {
        if (overlap_) {
          member.hook = on_gradient_ready(
              member.parameter,
              [this, &bucket, &member](const at::Tensor&) { gradient_ready(bucket, member); });
        }
      }
    }
  }

  void step() override {
    check_scope("step()");
    const at::NoGradGuard no_grad;
    reduce_all();
    for (Bucket& bucket : buckets_) {
      bucket.optimizer->step();
      bucket.shard.mutable_grad().reset();
      bucket.flat = bucket.new_flat(ranks_);
      bucket.work = all_gather_async(bucket.flat, bucket.shard.detach(), group_);
      if (!overlap_) {
        publish(bucket);
      }
    }
    for (Bucket& bucket : buckets_) {
      if (overlap_) {
        publish(bucket);
      }
    }
    next_ = reduced_ = 0;
  }

  double clip_grad_norm(double max_norm) override {
    TORCH_CHECK(max_norm > 0, "sharded optimizer: max_norm should be positive, not ", max_norm);
    check_scope("clip_grad_norm()");
    const at::NoGradGuard no_grad;
    reduce_all();
    at::Tensor squares = at::zeros({1}, at::TensorOptions(at::kDouble).device(device_));
    for (const Bucket& bucket : buckets_) {
      squares += bucket.shard.grad().to(at::kDouble).square().sum();
    }
    all_reduce(squares, group_);
    const double norm = std::sqrt(squares.item<double>());
    if (const double scale = max_norm / (norm + 1e-6); scale < 1) {
      for (Bucket& bucket : buckets_) {
        bucket.shard.mutable_grad().mul_(scale);
      }
    }
    return norm;
  }

 private:
  void check_scope(const char* call) const {
    TORCH_CHECK(synchronizes(), "sharded optimizer: ", call,
                " inside a NoSync scope, where nothing is reduced; call it after the scope");
  }

  /// The shard gets its values, from the parameters that all ranks have by now.
  void take_own_chunk(Bucket& bucket) {
    const at::Tensor flat = bucket.new_flat(ranks_).zero_();
    for (const Member& member : bucket.members) {
      member.place_in(flat).copy_(member.parameter);
    }
    bucket.shard.copy_(flat.chunk(ranks_)[group_->getRank()]);
  }

  /// Called within backward.
  void gradient_ready(Bucket& bucket, Member& member) {
    TORCH_CHECK(!member.filled,
                "sharded optimizer: backward ran twice without step() in between, and the gradient "
                "of parameter ",
                member.index, " may be in flight already; accumulate inside a NoSync scope");
    if (!synchronizes()) {
      return;  // the gradient keeps the sum until a step that sends it
    }
    const at::NoGradGuard no_grad;
    fill(bucket, member);
    while (next_ < buckets_.size() && buckets_[next_].missing == 0) {
      launch_next();
    }
  }

  /// Moves a gradient to its place in the bucket; zeros where there is none.
  void fill(Bucket& bucket, Member& member) {
    check_kind(bucket, member, member.parameter);
    if (!bucket.flat.defined()) {
      bucket.flat = bucket.new_flat(ranks_).zero_();
    }
    if (member.parameter.grad().defined()) {
      check_kind(bucket, member, member.parameter.grad());
      member.place_in(bucket.flat).copy_(member.parameter.grad());
      member.parameter.mutable_grad().reset();
    }
    member.filled = true;
    --bucket.missing;
  }

  void check_kind(const Bucket& bucket, const Member& member, const at::Tensor& tensor) const {
    TORCH_CHECK(tensor.layout() == at::kStrided, "sharded optimizer: the gradient of parameter ",
                member.index, " is sparse; only dense gradients can be reduced");
    TORCH_CHECK(tensor.scalar_type() == bucket.shard.scalar_type() &&
                    tensor.device() == bucket.shard.device(),
                "sharded optimizer: parameter ", member.index, " is ", tensor.scalar_type(), " on ",
                tensor.device(), " now, but its bucket was planned for ",
                bucket.shard.scalar_type(), " on ", bucket.shard.device(),
                "; make a new optimizer after moving a model");
  }

  /// Launches the next bucket in plan order, which is the same on all ranks. From then on nobody may
  /// touch its flat tensor.
  void launch_next() {
    Bucket& bucket = buckets_[next_++];
    bucket.shard.mutable_grad() = at::empty_like(bucket.shard);
    bucket.work =
        reduce_scatter_async(bucket.shard.grad(), bucket.flat, group_, ReduceOp::kAverage);
  }

  /// When it returns, each shard has its gradient; a second time in a step it does nothing.
  void reduce_all() {
    while (next_ < buckets_.size()) {  // those that no hook has launched
      Bucket& bucket = buckets_[next_];
      for (Member& member : bucket.members) {
        if (!member.filled) {
          fill(bucket, member);
        }
      }
      launch_next();
      if (!overlap_) {
        end_reduction(bucket);
      }
    }
    while (reduced_ < buckets_.size()) {
      end_reduction(buckets_[reduced_]);
    }
  }

  void end_reduction(Bucket& bucket) {
    bucket.wait();
    bucket.flat.reset();
    ++reduced_;
  }

  /// Writes all ranks' shards into the parameters, once they are here.
  void publish(Bucket& bucket) {
    bucket.wait();
    for (Member& member : bucket.members) {
      member.parameter.copy_(member.place_in(bucket.flat));
      member.filled = false;
    }
    bucket.missing = bucket.members.size();
    bucket.flat.reset();
  }

  ProcessGroupPtr group_;
  const int ranks_;
  const at::Device device_;
  const bool overlap_;
  std::vector<Bucket> buckets_;  // in plan order; hooks refer to its elements
  std::size_t next_ = 0;         // the first bucket not yet launched in this step
  std::size_t reduced_ = 0;      // how many shards have this step's gradient
};

void check(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
           const ProcessGroupPtr& group, const OptimizerFactory& make_optimizer,
           const ShardedOptimizerOptions& options) {
  TORCH_CHECK(group, "sharded optimizer: the process group is null");
  TORCH_CHECK(make_optimizer, "sharded optimizer: the factory of optimizers is empty");
  TORCH_CHECK(options.cap_bytes > 0,
              "sharded optimizer: a bucket needs a cap of at least one byte, "
              "not ",
              options.cap_bytes);
  TORCH_CHECK(!parameters.empty(), "sharded optimizer: the list of parameters is empty");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    TORCH_CHECK(parameters[i].defined(), "sharded optimizer: parameter ", i, " is undefined");
    TORCH_CHECK(parameters[i].is_leaf(), "sharded optimizer: parameter ", i,
                " is not a leaf of the autograd graph, so backward leaves no gradient in it");
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    TORCH_CHECK(buffers[i].defined(), "sharded optimizer: buffer ", i, " is undefined");
  }
}

}  // namespace

std::unique_ptr<ShardedOptimizer> make_sharded_optimizer(std::vector<at::Tensor> parameters,
                                                         std::vector<at::Tensor> buffers,
                                                         ProcessGroupPtr group,
                                                         OptimizerFactory make_optimizer,
                                                         const ShardedOptimizerOptions& options) {
  check(parameters, buffers, group, make_optimizer, options);
  return std::make_unique<ShardedBuckets>(parameters, buffers, std::move(group), make_optimizer,
                                          options);
}

}  // namespace ddp
