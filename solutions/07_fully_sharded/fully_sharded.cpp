#include "07_fully_sharded/fully_sharded.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sharded_unit.h"

namespace ddp {
namespace {

class Model : public FullySharded {
 public:
  Model(const std::vector<Unit>& units, ProcessGroupPtr group, const FullyShardedOptions& options)
      : group_(std::move(group)), ranks_(group_->getSize()), options_(options) {
    for (std::size_t i = 0; i < units.size(); ++i) {
      units_.push_back(
          {units[i].function, FlatLayout(units[i].parameters, ranks_, c10::str(kWho, "unit ", i))});
    }
    for (std::size_t i = 0; i < units.size(); ++i) {
      at::Tensor flat = units_[i].layout.flatten(units[i].parameters);
      broadcast(flat, group_);
      units_[i].shard = own_chunk(flat).clone().set_requires_grad(true);
      shards_.push_back(units_[i].shard);
      empty_storage(flat);
      units_[i].flat = flat.set_requires_grad(true);
    }
    for (ShardedUnit& unit : units_) {
      unit.hook = on_gradient_ready(unit.flat, [this, &unit](const at::Tensor&) {
        unit.let_go();
        if (synchronizes()) {
          reduce(unit);
        }
      });
    }
  }

  at::Tensor forward(std::size_t index, const at::Tensor& x) override {
    TORCH_CHECK(index < units_.size(), kWho, "there is no unit ", index, " among ", units_.size());
    TORCH_CHECK(x.defined(), kWho, "the input of unit ", index, " is undefined");
    std::vector<std::size_t> wanted = {index};
    while (wanted.back() + 1 < units_.size() && wants_more(wanted)) {
      wanted.push_back(wanted.back() + 1);
    }
    want(wanted);
    ShardedUnit& unit = units_[index];
    bool kept = false;
    const auto at_the_end = c10::make_scope_exit([&] { kept ? void() : unit.let_go(); });
    at::Tensor y = unit.function(x, unit.parameters());
    if (at::GradMode::is_enabled() && y.requires_grad()) {
      const std::size_t use = ++last_use_;
      uses_[use] = index;
      y.register_hook([this, index, use, alive = std::weak_ptr(alive_)](const at::Tensor&) {
        TORCH_CHECK(!alive.expired(), kWho, "this graph's model has been destroyed");
        before_backward(index, use);
      });
      kept = options_.keep_last && index + 1 == units_.size();
    }
    return y;
  }

  void finish() override {
    TORCH_CHECK(synchronizes(), kWho, "finish() inside a NoSync scope, where nothing is reduced");
    for (std::size_t i = units_.size(); i-- > 0;) {
      if (units_[i].flat.grad().defined()) {
        reduce(units_[i]);
      }
    }
    end_reduction();
    for (ShardedUnit& unit : units_) {
      unit.let_go();
    }
    uses_.clear();
  }

  const std::vector<at::Tensor>& shards() const override { return shards_; }

  double clip_grad_norm(double max_norm) override {
    TORCH_CHECK(max_norm > 0, kWho, "max_norm should be positive, not ", max_norm);
    const at::NoGradGuard no_grad;
    at::Tensor squares = at::zeros({1}, shards_[0].options().dtype(at::kDouble));
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& shard : shards_) {
      gradients.push_back(shard.grad().defined() ? shard.grad() : at::zeros({0}));
      squares += gradients.back().to(at::kDouble).square().sum();
    }
    all_reduce(squares, group_);
    const double norm = std::sqrt(squares.item<double>());
    for (at::Tensor& gradient : gradients) {
      gradient.mul_(std::min(1.0, max_norm / (norm + 1e-6)));
    }
    return norm;
  }

  std::vector<at::Tensor> whole_parameters(int root) override {
    TORCH_CHECK(root >= 0 && root < ranks_, kWho, "there is no rank ", root, " among ", ranks_);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> whole;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      want({i});
      for (const at::Tensor& parameter : units_[i].parameters()) {
        if (group_->getRank() == root) {
          whole.push_back(parameter.clone());
        }
      }
      units_[i].let_go();
    }
    return whole;
  }

  void load_whole(const std::vector<at::Tensor>& parameters) override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> chunks;
    std::size_t next = 0;
    for (const ShardedUnit& unit : units_) {
      chunks.push_back(own_chunk(unit.layout.flatten(parameters, next)).clone());
      next += unit.layout.tensors();
    }
    TORCH_CHECK(next == parameters.size(), kWho, "there are ", parameters.size(),
                " parameters to load, and should be ", next);
    for (std::size_t i = 0; i < units_.size(); ++i) {
      shards_[i].copy_(chunks[i]);
    }
  }

  SavedShards save() const override {
    SavedShards saved{.rank = group_->getRank(), .ranks = ranks_, .elements = {}, .shards = {}};
    for (const ShardedUnit& unit : units_) {
      saved.elements.push_back(unit.layout.elements());
      saved.shards.push_back(unit.shard.detach().clone());
    }
    return saved;
  }

  void load(const std::vector<SavedShards>& saved) override {
    const std::vector<SavedShards> states = in_order_of_ranks(saved, save());
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      std::vector<at::Tensor> chunks;
      for (const SavedShards& state : states) {
        chunks.push_back(state.shards[i]);
      }
      const FlatLayout& layout = units_[i].layout;
      const at::Tensor flat = at::cat(chunks).narrow(0, 0, layout.elements());
      const std::int64_t padding = layout.padded_elements() - layout.elements();
      shards_[i].copy_(own_chunk(at::constant_pad_nd(flat, {0, padding})));
    }
  }

 private:
  at::Tensor own_chunk(const at::Tensor& flat) const {
    return flat.chunk(ranks_)[group_->getRank()];
  }

  bool wants_more(const std::vector<std::size_t>& wanted) const {
    return std::cmp_less_equal(wanted.size(), options_.prefetch);
  }

  /// Makes these units the only whole ones, and waits for the first.
  void want(const std::vector<std::size_t>& wanted) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (!std::ranges::count(wanted, i)) {
        units_[i].let_go();
      }
    }
    for (const std::size_t i : wanted) {
      ShardedUnit& unit = units_[i];
      if (!has_storage(unit.flat)) {
        fill_storage(unit.flat);
        unit.gathering = all_gather_async(unit.flat.variable_data(), unit.shard.detach(), group_);
      }
    }
    if (const WorkPtr work = std::exchange(units_[wanted[0]].gathering, nullptr)) {
      work->wait();
    }
  }

  void before_backward(std::size_t index, std::size_t use) {
    std::vector<std::size_t> wanted = {index};
    for (auto before = uses_.lower_bound(use); before != uses_.begin() && wants_more(wanted);) {
      wanted.push_back((--before)->second);
    }
    uses_.erase(use);
    want(wanted);
  }

  /// One at a time, so that one unit's gradient at most is held for the network.
  void reduce(ShardedUnit& unit) {
    end_reduction();
    const at::NoGradGuard no_grad;
    whole_gradient_ = std::exchange(unit.flat.mutable_grad(), at::Tensor()).detach().contiguous();
    mean_ = at::empty_like(unit.shard);
    reduced_ = &unit;
    reducing_ = reduce_scatter_async(mean_, whole_gradient_, group_, ReduceOp::kAverage);
  }

  void end_reduction() {
    if (!reducing_) {
      return;
    }
    std::exchange(reducing_, nullptr)->wait();
    whole_gradient_.reset();
    const at::NoGradGuard no_grad;
    at::Tensor& gradient = reduced_->shard.mutable_grad();
    gradient = gradient.defined() ? gradient.add_(mean_) : mean_;
    mean_.reset();
  }

  ProcessGroupPtr group_;
  const int ranks_;
  const FullyShardedOptions options_;
  std::vector<ShardedUnit> units_;  // hooks refer to its elements
  std::vector<at::Tensor> shards_;
  std::map<std::size_t, std::size_t> uses_;  // units by number of use, until their backward begins
  std::size_t last_use_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // for hooks of graphs

  WorkPtr reducing_;  // the reduce-scatter under way: of which unit, what goes in, what comes out
  ShardedUnit* reduced_ = nullptr;
  at::Tensor whole_gradient_, mean_;
};

}  // namespace

std::unique_ptr<FullySharded> make_fully_sharded(std::vector<Unit> units, ProcessGroupPtr group,
                                                 const FullyShardedOptions& options) {
  TORCH_CHECK(group, kWho, "the process group is null");
  TORCH_CHECK(options.prefetch >= 0, kWho, "prefetch should be 0 or more, not ", options.prefetch);
  check(units);
  return std::make_unique<Model>(units, std::move(group), options);
}

}  // namespace ddp
