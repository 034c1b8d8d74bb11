#include "07_fully_sharded/fully_sharded.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "ddp/flat_layout.h"
#include "ddp/gradient_hooks.h"
#include "ddp/storage.h"

namespace ddp {
namespace {

constexpr const char* kWho = "fully sharded: ";  // begins all messages

struct ShardedUnit {
  UnitFunction function;
  FlatLayout layout;
  at::Tensor shard;
  at::Tensor flat = {};  // autograd's leaf, which has memory only while the unit is whole
  WorkPtr gathering = {};
  GradientHook hook = {};

  std::vector<at::Tensor> parameters() const { return layout.views_of(flat); }

  void let_go() {
    if (gathering) {
      std::exchange(gathering, nullptr)->wait();
    }
    empty_storage(flat);
  }
};

class Model : public FullySharded {
 public:
  Model(const std::vector<Unit>& units, ProcessGroupPtr group, const FullyShardedOptions& options)
      : group_(std::move(group)), ranks_(group_->getSize()), options_(options) {
    for (const Unit& given : units) {
      const FlatLayout layout(given.parameters, ranks_);
      at::Tensor flat = layout.flatten(given.parameters.data());
      broadcast(flat, group_);
      shards_.push_back(own_chunk(flat).clone().set_requires_grad(true));
      empty_storage(flat);
      units_.push_back({given.function, layout, shards_.back(), flat.set_requires_grad(true)});
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
      y.register_hook([this, index, use = first_use_ + uses_.size(),
                       alive = std::weak_ptr(alive_)](const at::Tensor&) {
        TORCH_CHECK(!alive.expired(), kWho, "this graph's model has been destroyed");
        before_backward(index, use);
      });
      uses_.push_back({index});
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
    first_use_ += uses_.size();
    uses_.clear();
  }

  const std::vector<at::Tensor>& shards() const override { return shards_; }

  double clip_grad_norm(double max_norm) override {
    TORCH_CHECK(max_norm > 0, kWho, "max_norm should be positive, not ", max_norm);
    const at::NoGradGuard no_grad;
    at::Tensor squares = at::zeros({1}, shards_[0].options().dtype(at::kDouble));
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& shard : shards_) {
      if (shard.grad().defined()) {
        gradients.push_back(shard.grad());
        squares += gradients.back().to(at::kDouble).square().sum();
      }
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
    std::size_t next = 0;
    for (const ShardedUnit& unit : units_) {
      for (std::size_t i = 0; i < unit.layout.tensors(); ++i, ++next) {
        TORCH_CHECK(next < parameters.size() && parameters[next].defined() &&
                        parameters[next].sizes() == unit.layout.shape(i) &&
                        parameters[next].dtype() == unit.shard.dtype(),
                    kWho, "another model's parameters: number ", next, " should be ",
                    unit.shard.dtype(), " of shape ", unit.layout.shape(i));
      }
    }
    TORCH_CHECK(next == parameters.size(), kWho, "another model's parameters: there are ",
                parameters.size(), ", and should be ", next);
    const at::NoGradGuard no_grad;
    const at::Tensor* first = parameters.data();
    for (const ShardedUnit& unit : units_) {
      unit.shard.copy_(own_chunk(unit.layout.flatten(first)));
      first += unit.layout.tensors();
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
    const std::vector<const SavedShards*> of_rank = in_order_of_ranks(saved);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      std::vector<at::Tensor> chunks;
      for (const SavedShards* state : of_rank) {
        chunks.push_back(state->shards[i]);
      }
      const std::int64_t elements = units_[i].layout.elements();
      const at::Tensor flat = at::zeros_like(units_[i].flat);
      flat.narrow(0, 0, elements).copy_(at::cat(chunks).narrow(0, 0, elements));
      units_[i].shard.copy_(own_chunk(flat));
    }
  }

 private:
  struct Use {
    std::size_t unit;
    bool begun = false;  // its backward
  };

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
    if (use >= first_use_) {
      uses_[use - first_use_].begun = true;
      for (std::size_t i = use - first_use_; i-- > 0 && wants_more(wanted);) {
        if (!uses_[i].begun) {
          wanted.push_back(uses_[i].unit);
        }
      }
    }
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

  /// The saved states by rank, once they are all there and this model's.
  std::vector<const SavedShards*> in_order_of_ranks(const std::vector<SavedShards>& saved) const {
    TORCH_CHECK(!saved.empty(), kWho, "there is nothing to load");
    std::vector<const SavedShards*> of_rank(saved.size());
    for (const SavedShards& state : saved) {
      const auto ranks = static_cast<std::int64_t>(saved.size());
      TORCH_CHECK(state.ranks == ranks && state.rank >= 0 && state.rank < ranks, kWho, "rank ",
                  state.rank, " of ", state.ranks, " is saved beside ", ranks - 1, " others");
      TORCH_CHECK(!std::exchange(of_rank[state.rank], &state), kWho, "rank ", state.rank,
                  " is there twice");
      TORCH_CHECK(state.elements.size() == units_.size() && state.shards.size() == units_.size(),
                  kWho, "another model's state: it has ", state.elements.size(), " units, not ",
                  units_.size());
      for (std::size_t i = 0; i < units_.size(); ++i) {
        const std::int64_t elements = units_[i].layout.elements();
        const at::Tensor& shard = state.shards[i];
        TORCH_CHECK(state.elements[i] == elements && shard.defined() && shard.dim() == 1 &&
                        shard.numel() == (elements + ranks - 1) / ranks &&
                        shard.dtype() == units_[i].shard.dtype(),
                    kWho, "another model's state: unit ", i, " should have ", elements,
                    " elements of ", units_[i].shard.dtype(), " in ", ranks, " equal shards");
      }
    }
    return of_rank;
  }

  ProcessGroupPtr group_;
  const int ranks_;
  const FullyShardedOptions options_;
  std::vector<ShardedUnit> units_;  // hooks refer to its elements
  std::vector<at::Tensor> shards_;
  std::vector<Use> uses_;  // since the last finish(), in forward's order
  std::size_t first_use_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // for hooks of graphs

  WorkPtr reducing_;  // the reduce-scatter under way: of which unit, what goes in, what comes out
  ShardedUnit* reduced_ = nullptr;
  at::Tensor whole_gradient_, mean_;
};

void check(const std::vector<Unit>& units) {
  TORCH_CHECK(!units.empty(), kWho, "the list of units is empty");
  std::map<const c10::TensorImpl*, std::size_t> unit_of;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const std::vector<at::Tensor>& parameters = units[u].parameters;
    TORCH_CHECK(units[u].function, kWho, "the function of unit ", u, " is empty");
    TORCH_CHECK(!parameters.empty(), kWho, "unit ", u, " has no parameters");
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& parameter = parameters[i];
      const auto which = [&] { return c10::str(kWho, "parameter ", i, " of unit ", u, " "); };
      TORCH_CHECK(parameter.defined(), which(), "is undefined");
      TORCH_CHECK(
          parameter.is_floating_point() && parameter.requires_grad(), which(),
          "should be of floating point and require a gradient; a function may capture others");
      TORCH_CHECK(parameter.dtype() == parameters[0].dtype() &&
                      parameter.device() == parameters[0].device(),
                  which(), "has another dtype or device than the unit's first");
      const std::size_t owner = unit_of.emplace(parameter.unsafeGetTensorImpl(), u).first->second;
      TORCH_CHECK(owner == u, which(), "is one of unit ", owner, ", too");
      elements += parameter.numel();
    }
    TORCH_CHECK(elements > 0, kWho, "the parameters of unit ", u, " have no elements");
  }
}

}  // namespace

std::unique_ptr<FullySharded> make_fully_sharded(std::vector<Unit> units, ProcessGroupPtr group,
                                                 const FullyShardedOptions& options) {
  TORCH_CHECK(group, kWho, "the process group is null");
  TORCH_CHECK(options.prefetch >= 0, kWho, "prefetch should be 0 or more, not ", options.prefetch);
  check(units);
  return std::make_unique<Model>(units, std::move(group), options);
}

}  // namespace ddp
