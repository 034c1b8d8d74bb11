// Correct, and unusual: c10d's operations on lists of tensors, a sum that is divided in the shard, buckets
// concatenated at their launch, hooks that only count, and optimizers in a map.
#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <map>
#include <set>

#include "06_sharded_optimizer/sharded_optimizer.h"
#include "ddp/bucket_plan.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

using Tensors = std::vector<at::Tensor>;

std::vector<Tensors> one_list(const Tensors& tensors) { return {tensors}; }

struct Piece {
  std::vector<std::size_t> indices;
  at::Tensor shard;
  Tensors sent, received;  // on their way
  WorkPtr work;
};

class Sharded final : public ShardedOptimizer {
 public:
  Sharded(Tensors parameters, const Tensors& buffers, ProcessGroupPtr group,
          const OptimizerFactory& factory, const ShardedOptimizerOptions& options)
      : all_(std::move(parameters)), group_(std::move(group)), early_(options.overlap) {
    for (auto& indices : plan_buckets(all_, options.cap_bytes)) {
      std::int64_t count = 0;
      for (const std::size_t index : indices) {
        count += all_[index].numel();
        piece_of_[index] = pieces_.size();
      }
      const std::int64_t ranks = group_->getSize();
      const std::int64_t chunk = count / ranks + (count % ranks != 0);
      pieces_.push_back({std::move(indices), at::Tensor(), {}, {}, {}});
      if (chunk > 0) {
        pieces_.back().shard =
            at::zeros({chunk}, all_[pieces_.back().indices[0]].detach().options());
        pieces_.back().shard.set_requires_grad(true);
        optimizers_[pieces_.size() - 1] = factory({pieces_.back().shard});
        TORCH_CHECK(optimizers_.rbegin()->second, "the factory made nothing");
      }
    }
    const at::NoGradGuard guard;
    for (const Tensors* tensors : {&buffers, static_cast<const Tensors*>(&all_)}) {
      for (const at::Tensor& tensor : *tensors) {
        Tensors values = {tensor.detach().contiguous()};
        group_->broadcast(values)->wait();
        tensor.detach().copy_(values[0]);
      }
    }
    for (const auto& [p, optimizer] : optimizers_) {
      Tensors values;
      for (const std::size_t index : pieces_[p].indices) {
        values.push_back(all_[index].detach());
      }
      pieces_[p].shard.copy_(cut(pieces_[p], values)[group_->getRank()]);
    }
    if (early_) {
      for (const auto& [index, piece] : piece_of_) {
        hooks_.push_back(on_gradient_ready(all_[index], [this, index](const at::Tensor&) {
          if (synchronizes()) {
            TORCH_CHECK(came_.insert(index).second && next_ <= piece_of_[index],
                        "a second backward before step(), parameter ", index);
            check(index);
            launch_complete();
          }
        }));
      }
    }
  }

  void step() override {
    TORCH_CHECK(synchronizes(), "step() inside NoSync");
    const at::NoGradGuard guard;
    reduce();
    for (const auto& [p, optimizer] : optimizers_) {
      Piece& piece = pieces_[p];
      optimizer->step();
      piece.shard.mutable_grad() = at::Tensor();
      for (int rank = 0; rank < group_->getSize(); ++rank) {
        piece.received.push_back(at::empty_like(piece.shard.detach()));
      }
      auto outputs = one_list(piece.received);
      Tensors inputs = {piece.shard.detach()};
      piece.work = group_->allgather(outputs, inputs);
      if (!early_) {
        take(piece);
      }
    }
    for (Piece& piece : pieces_) {
      if (piece.work) {
        take(piece);
      }
    }
    next_ = 0;
    came_.clear();
    reduced_ = false;
  }

  double clip_grad_norm(double max_norm) override {
    TORCH_CHECK(max_norm > 0, "max_norm is not positive: ", max_norm);
    TORCH_CHECK(synchronizes(), "clip_grad_norm() inside NoSync");
    const at::NoGradGuard guard;
    reduce();
    double squares = 0;
    for (const auto& [p, optimizer] : optimizers_) {
      squares += std::pow(pieces_[p].shard.grad().to(at::kDouble).norm().item<double>(), 2);
    }
    Tensors sum = {at::full({}, squares, at::TensorOptions(at::kDouble).device(all_[0].device()))};
    group_->allreduce(sum)->wait();
    const double norm = std::sqrt(sum[0].item<double>());
    const double scale = std::min(1.0, max_norm / (norm + 1e-6));
    for (const auto& [p, optimizer] : optimizers_) {
      pieces_[p].shard.mutable_grad().mul_(scale);
    }
    return norm;
  }

 private:
  void check(std::size_t index) const {
    const at::Tensor& shard = pieces_[piece_of_.at(index)].shard;
    const at::Tensor& gradient = all_[index].grad();
    if (shard.defined()) {
      TORCH_CHECK(all_[index].dtype() == shard.dtype() && all_[index].device() == shard.device(),
                  "parameter ", index, " has moved");
      TORCH_CHECK(!gradient.defined() || gradient.layout() == at::kStrided, "parameter ", index,
                  " has a sparse gradient");
      TORCH_CHECK(!gradient.defined() || gradient.dtype() == shard.dtype(), "parameter ", index,
                  " has a gradient of another dtype");
    }
  }

  // The values one after the other, padded, in one tensor for each rank.
  Tensors cut(const Piece& piece, const Tensors& values) const {
    Tensors flat;
    std::int64_t count = 0;
    for (const at::Tensor& value : values) {
      flat.push_back(value.reshape({-1}));
      count += value.numel();
    }
    const std::int64_t ranks = group_->getSize();
    flat.push_back(
        at::zeros({piece.shard.numel() * ranks - count}, piece.shard.detach().options()));
    Tensors chunks;
    for (const at::Tensor& chunk : at::cat(flat).chunk(ranks)) {
      chunks.push_back(chunk);
    }
    return chunks;
  }

  void launch_complete() {
    while (next_ < pieces_.size() &&
           std::all_of(pieces_[next_].indices.begin(), pieces_[next_].indices.end(),
                       [this](std::size_t index) { return came_.contains(index); })) {
      launch();
    }
  }

  void launch() {
    const at::NoGradGuard guard;
    Piece& piece = pieces_[next_++];
    if (!piece.shard.defined()) {
      return;
    }
    Tensors values;
    for (const std::size_t index : piece.indices) {
      check(index);
      const at::Tensor& gradient = all_[index].grad();
      values.push_back(gradient.defined() ? gradient : at::zeros_like(all_[index].detach()));
    }
    piece.sent = cut(piece, values);
    for (const std::size_t index : piece.indices) {
      all_[index].mutable_grad() = at::Tensor();
    }
    piece.shard.mutable_grad() = at::empty_like(piece.shard.detach());
    Tensors outputs = {piece.shard.grad()};
    auto inputs = one_list(piece.sent);
    piece.work = group_->reduce_scatter(outputs, inputs);
  }

  void reduce() {
    if (std::exchange(reduced_, true)) {
      return;
    }
    const auto end = [&](Piece& piece) {
      if (piece.work) {
        std::exchange(piece.work, nullptr)->wait();
        piece.sent.clear();
        piece.shard.mutable_grad().div_(group_->getSize());
      }
    };
    while (next_ < pieces_.size()) {
      launch();
      if (!early_) {
        end(pieces_[next_ - 1]);
      }
    }
    for (Piece& piece : pieces_) {
      end(piece);
    }
  }

  void take(Piece& piece) {
    std::exchange(piece.work, nullptr)->wait();
    const at::Tensor flat = at::cat(piece.received);
    piece.received.clear();
    std::int64_t begin = 0;
    for (const std::size_t index : piece.indices) {
      const std::int64_t count = all_[index].numel();
      all_[index].copy_(flat.slice(0, begin, begin + count).view(all_[index].sizes()));
      begin += count;
    }
  }

  const Tensors all_;
  const ProcessGroupPtr group_;
  const bool early_;
  std::vector<Piece> pieces_;
  std::map<std::size_t, std::size_t> piece_of_;                                 // by parameter
  std::map<std::size_t, std::unique_ptr<torch::optim::Optimizer>> optimizers_;  // by piece
  std::vector<GradientHook> hooks_;
  std::set<std::size_t> came_;
  std::size_t next_ = 0;
  bool reduced_ = false;
};

}  // namespace

std::unique_ptr<ShardedOptimizer> make_sharded_optimizer(Tensors parameters, Tensors buffers,
                                                         ProcessGroupPtr group,
                                                         OptimizerFactory make_optimizer,
                                                         const ShardedOptimizerOptions& options) {
  TORCH_CHECK(group && make_optimizer && options.cap_bytes > 0 && !parameters.empty(),
              "needs a group, a factory, a cap and parameters");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    TORCH_CHECK(parameters[i].defined() && parameters[i].is_leaf(), "cannot train parameter ", i);
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    TORCH_CHECK(buffers[i].defined(), "buffer ", i, " is not there");
  }
  return std::make_unique<Sharded>(std::move(parameters), buffers, std::move(group), make_optimizer,
                                   options);
}

}  // namespace ddp
