// Correct, and unusual: a node of ours in the graph gathers before backward, a hook of the accumulator's
// node reduces, views are narrow()ed, and collectives are c10d's own.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "07_fully_sharded/fully_sharded.h"
#include "ddp/flat_layout.h"
#include "ddp/libtorch_versions.h"
#include "ddp/storage.h"

namespace ddp {
namespace {

namespace autograd = torch::autograd;
using Tensors = std::vector<at::Tensor>;

// The shape of each parameter, and where it begins in its unit's flat tensor.
using Places = std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>>;

Places places_of(const Tensors& parameters) {
  Places places;
  std::map<const c10::TensorImpl*, std::int64_t> begins;
  std::int64_t end = 0;
  for (const at::Tensor& parameter : parameters) {
    const auto [known, is_new] = begins.emplace(parameter.unsafeGetTensorImpl(), end);
    places.emplace_back(parameter.sizes().vec(), known->second);
    end += is_new ? parameter.numel() : 0;
  }
  return places;
}

struct OneUnit {
  UnitFunction function;
  FlatLayout layout;
  Places places;
  at::Tensor leaf = {}, shard = {};
  WorkPtr arriving = {};

  void arrive() {
    if (arriving) {
      std::exchange(arriving, nullptr)->wait();
    }
  }
  void forget() {
    arrive();
    empty_storage(leaf);
  }
  Tensors views_of(const at::Tensor& flat) const {
    Tensors all;
    for (const auto& [shape, begin] : places) {
      all.push_back(flat.narrow(0, begin, c10::multiply_integers(shape)).view(shape));
    }
    return all;
  }
};

struct Use : torch::CustomClassHolder {
  std::function<void()> begin;
};

// Begins the backward of a use.
struct Begins : autograd::Function<Begins> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& y,
                            const c10::intrusive_ptr<Use>& use) {
    context->saved_data["use"] = c10::IValue::make_capsule(use);
    return y.view_as(y);
  }
  static Tensors backward(autograd::AutogradContext* context, const Tensors& gradients) {
    c10::static_intrusive_pointer_cast<Use>(context->saved_data["use"].toCapsule())->begin();
    return {gradients[0], at::Tensor()};
  }
};

class Model : public FullySharded {
 public:
  Model(const std::vector<Unit>& given, ProcessGroupPtr group, const FullyShardedOptions& options)
      : group_(std::move(group)),
        ahead_(options.prefetch),
        keeps_last_(options.keep_last),
        ranks_(group_->getSize()) {
    for (std::size_t i = 0; i < given.size(); ++i) {
      const Tensors& parameters = given[i].parameters;
      units_.push_back({given[i].function, FlatLayout(parameters, ranks_, c10::str("unit ", i)),
                        places_of(parameters)});
    }
    for (std::size_t i = 0; i < units_.size(); ++i) {
      OneUnit& unit = units_[i];
      unit.leaf = unit.layout.flatten(given[i].parameters);
      Tensors sent = {unit.leaf};
      group_->broadcast(sent)->wait();
      unit.shard = own_chunk(unit.leaf).clone().set_requires_grad(true);
      unit.leaf.set_requires_grad(true);
      unit.forget();
      shards_.push_back(unit.shard);
      accumulators_.push_back(autograd::impl::grad_accumulator(unit.leaf));
      accumulators_.back()->add_post_hook(std::make_unique<autograd::utils::LambdaPostHook>(
          [this, i, alive = std::weak_ptr(alive_)](const Tensors& outputs, const Tensors&) {
            if (!alive.expired()) {
              complete(i);
            }
            return outputs;
          }));
    }
  }

  at::Tensor forward(std::size_t index, const at::Tensor& x) override {
    TORCH_CHECK(index < units_.size() && x.defined(), "no unit ", index, ", or no input");
    std::vector<std::size_t> wanted(std::min(units_.size() - index, 1 + ahead_));
    std::iota(wanted.begin(), wanted.end(), index);
    only(wanted);
    OneUnit& unit = units_[index];
    at::Tensor y;
    try {
      y = unit.function(x, unit.views_of(unit.leaf));
    } catch (...) {
      unit.forget();
      throw;
    }
    const bool recorded = at::GradMode::is_enabled() && y.requires_grad();
    if (recorded) {
      to_come_.emplace_back(index, uses_);
      auto use = c10::make_intrusive<Use>();
      use->begin = [this, index, number = uses_++, alive = std::weak_ptr(alive_)] {
        TORCH_CHECK(!alive.expired(), "the model of this graph is gone");
        begins(index, number);
      };
      y = Begins::apply(y, use);
    }
    if (!recorded || !keeps_last_ || index + 1 < units_.size()) {
      unit.forget();
    }
    return y;
  }

  void finish() override {
    TORCH_CHECK(synchronizes(), "not inside NoSync");
    for (std::size_t i = units_.size(); i-- > 0;) {
      if (units_[i].leaf.grad().defined()) {
        reduce(i);
      }
    }
    collect();
    for (OneUnit& unit : units_) {
      unit.forget();
    }
    to_come_.clear();
  }

  const Tensors& shards() const override { return shards_; }

  double clip_grad_norm(double max_norm) override {
    TORCH_CHECK(max_norm > 0, "max_norm is not positive");
    double squares = 0;
    for (const at::Tensor& shard : shards_) {
      if (shard.grad().defined()) {
        squares += shard.grad().to(at::kDouble).norm().square().item<double>();
      }
    }
    Tensors sum = {at::full({1}, squares, at::kDouble)};
    group_->allreduce(sum)->wait();
    const double norm = std::sqrt(sum[0].item<double>());
    for (const at::Tensor& shard : shards_) {
      if (shard.grad().defined() && norm + 1e-6 > max_norm) {
        shard.mutable_grad().mul_(max_norm / (norm + 1e-6));
      }
    }
    return norm;
  }

  Tensors whole_parameters(int root) override {
    TORCH_CHECK(root >= 0 && root < ranks_, "no rank ", root);
    Tensors all;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      only({i});
      for (const at::Tensor& view : units_[i].views_of(units_[i].leaf.detach())) {
        if (group_->getRank() == root) {
          all.push_back(view.clone());
        }
      }
    }
    units_.back().forget();
    return all;
  }

  void load_whole(const Tensors& parameters) override {
    Tensors chunks;
    std::size_t next = 0;
    for (const OneUnit& unit : units_) {
      chunks.push_back(own_chunk(unit.layout.flatten(parameters, next)));
      next += unit.layout.tensors();
    }
    TORCH_CHECK(next == parameters.size(), "there are more parameters than here");
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      shards_[i].variable_data().copy_(chunks[i]);
    }
  }

  SavedShards save() const override {
    SavedShards saved{group_->getRank(), ranks_, {}, {}};
    for (const OneUnit& unit : units_) {
      saved.elements.push_back(unit.layout.elements());
      saved.shards.push_back(unit.shard.detach().clone());
    }
    return saved;
  }

  void load(const std::vector<SavedShards>& saved) override {
    const auto in_order = in_order_of_ranks(saved, save());
    Tensors all;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      Tensors chunks;
      for (const SavedShards& one : in_order) {
        chunks.push_back(one.shards[i]);
      }
      std::ranges::copy(units_[i].views_of(at::cat(chunks)), std::back_inserter(all));
    }
    load_whole(all);
  }

 private:
  at::Tensor own_chunk(const at::Tensor& flat) const {
    const std::int64_t chunk = flat.numel() / ranks_;
    return flat.narrow(0, chunk * group_->getRank(), chunk);
  }

  void only(const std::vector<std::size_t>& wanted) {
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (std::ranges::find(wanted, i) == wanted.end()) {
        units_[i].forget();
      }
    }
    for (const std::size_t i : wanted) {
      if (!has_storage(units_[i].leaf)) {
        fill_storage(units_[i].leaf);
        at::Tensor output = units_[i].leaf.variable_data();
        at::Tensor input = units_[i].shard.variable_data();
        units_[i].arriving = ((*group_).*kAllGatherSingle)(output, input, {});
      }
    }
    units_[wanted[0]].arrive();
  }

  void begins(std::size_t unit, std::int64_t use) {
    std::vector<std::size_t> wanted = {unit};
    for (auto it = to_come_.rbegin(); it != to_come_.rend(); ++it) {
      if (it->second < use && wanted.size() <= ahead_) {
        wanted.push_back(it->first);
      }
    }
    std::erase(to_come_, std::pair(unit, use));
    only(wanted);
  }

  void complete(std::size_t unit) {
    units_[unit].forget();
    if (synchronizes()) {
      reduce(unit);
    }
  }

  void reduce(std::size_t unit) {
    collect();
    sent_ = units_[unit].leaf.grad().detach().contiguous();
    units_[unit].leaf.mutable_grad().reset();
    mean_ = at::empty_like(shards_[unit], at::TensorOptions().requires_grad(false));
    mean_of_ = unit;
    c10d::ReduceScatterOptions how;
    how.reduceOp = c10d::ReduceOp::SUM;
    reducing_ = ((*group_).*kReduceScatterSingle)(mean_, sent_, how);
  }

  void collect() {
    if (reducing_) {
      const at::NoGradGuard no_grad;
      std::exchange(reducing_, nullptr)->wait();
      sent_.reset();
      mean_.div_(ranks_);
      at::Tensor& gradient = shards_[mean_of_].mutable_grad();
      gradient = gradient.defined() ? gradient.add_(mean_) : mean_;
      mean_.reset();
    }
  }

  const ProcessGroupPtr group_;
  const std::size_t ahead_;
  const bool keeps_last_;
  const int ranks_;
  std::vector<OneUnit> units_;
  Tensors shards_;
  std::vector<OwnedNode> accumulators_;
  std::vector<std::pair<std::size_t, std::int64_t>> to_come_;  // unit and use, until its backward
  std::int64_t uses_ = 0;
  WorkPtr reducing_;
  at::Tensor sent_, mean_;
  std::size_t mean_of_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>();
};

}  // namespace

std::unique_ptr<FullySharded> make_fully_sharded(std::vector<Unit> units, ProcessGroupPtr group,
                                                 const FullyShardedOptions& options) {
  TORCH_CHECK(group && options.prefetch >= 0 && !units.empty(), "no group, units or prefetch");
  std::map<const void*, std::size_t> unit_of;
  for (std::size_t u = 0; u < units.size(); ++u) {
    TORCH_CHECK(units[u].function, "unit ", u, " has no function");
    for (std::size_t i = 0; i < units[u].parameters.size(); ++i) {
      const at::Tensor& parameter = units[u].parameters[i];
      TORCH_CHECK(parameter.defined() && parameter.is_floating_point() &&
                      parameter.requires_grad() &&
                      unit_of.emplace(parameter.unsafeGetTensorImpl(), u).first->second == u,
                  "unit ", u, " cannot have parameter ", i);
    }
  }
  return std::make_unique<Model>(units, std::move(group), options);
}

}  // namespace ddp
