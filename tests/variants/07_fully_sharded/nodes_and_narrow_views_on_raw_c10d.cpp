// Each unit is an object of its own; a node of ours in the graph gathers before backward, a hook of the
// accumulator's node reduces, views are narrow()ed, and collectives are c10d's own.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "07_fully_sharded/fully_sharded.h"
#include "ddp/libtorch_versions.h"
#include "ddp/storage.h"

namespace ddp {
namespace {

namespace autograd = torch::autograd;

struct Piece {
  at::Tensor original;
  std::vector<std::int64_t> shape;
  std::int64_t begin;
};

struct OneUnit {
  UnitFunction function;
  std::vector<Piece> pieces;
  std::int64_t elements = 0;
  at::Tensor leaf, shard;
  WorkPtr arriving;

  bool whole() const { return has_storage(leaf); }
  void forget() {
    if (arriving) {
      arriving->wait();
      arriving.reset();
    }
    empty_storage(leaf);
  }
  std::vector<at::Tensor> views() const {
    std::vector<at::Tensor> all;
    for (const Piece& piece : pieces) {
      all.push_back(
          leaf.narrow(0, piece.begin, c10::multiply_integers(piece.shape)).view(piece.shape));
    }
    return all;
  }
};

class Whole;

// Names the use whose backward begins with this node.
struct Begins : autograd::Function<Begins> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& y,
                            const std::weak_ptr<Whole>& model, std::int64_t unit, std::int64_t use);
  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          autograd::variable_list gradients);
};

struct Handle : torch::CustomClassHolder {
  std::weak_ptr<Whole> model;
};

class Whole : public Silenceable, public std::enable_shared_from_this<Whole> {
 public:
  Whole(ProcessGroupPtr in, const FullyShardedOptions& how)
      : group(std::move(in)), options(how), ranks(group->getSize()) {}

  void add(const Unit& given) {
    OneUnit& unit = units.emplace_back();
    unit.function = given.function;
    for (const at::Tensor& parameter : given.parameters) {
      const auto known = std::ranges::find_if(
          unit.pieces, [&](const Piece& piece) { return piece.original.is_same(parameter); });
      const std::int64_t begin = known == unit.pieces.end() ? unit.elements : known->begin;
      unit.elements += known == unit.pieces.end() ? parameter.numel() : 0;
      unit.pieces.push_back({parameter, parameter.sizes().vec(), begin});
    }
    const std::int64_t chunk = (unit.elements + ranks - 1) / ranks;
    at::Tensor flat =
        at::zeros({chunk * ranks}, given.parameters[0].options().requires_grad(false));
    for (Piece& piece : unit.pieces) {
      flat.narrow(0, piece.begin, piece.original.numel())
          .copy_(piece.original.detach().reshape({-1}));
      piece.original.reset();
    }
    std::vector<at::Tensor> sent = {flat};
    group->broadcast(sent)->wait();
    unit.shard = flat.narrow(0, chunk * group->getRank(), chunk).clone().set_requires_grad(true);
    unit.leaf = flat.set_requires_grad(true);
    unit.forget();
    shards.push_back(unit.shard);
  }

  void only(const std::vector<std::size_t>& wanted) {
    for (std::size_t i = 0; i < units.size(); ++i) {
      if (std::ranges::find(wanted, i) == wanted.end()) {
        units[i].forget();
      }
    }
    for (const std::size_t i : wanted) {
      if (!units[i].whole()) {
        fill_storage(units[i].leaf);
        at::Tensor output = units[i].leaf.variable_data();
        at::Tensor input = units[i].shard.variable_data();
        units[i].arriving = ((*group).*kAllGatherSingle)(output, input, {});
      }
    }
    if (units[wanted[0]].arriving) {
      units[wanted[0]].arriving->wait();
      units[wanted[0]].arriving.reset();
    }
  }

  void begins(std::size_t unit, std::int64_t use) {
    std::vector<std::size_t> wanted = {unit};
    for (auto it = to_come.rbegin(); it != to_come.rend(); ++it) {
      if (it->second < use && static_cast<int>(wanted.size()) <= options.prefetch) {
        wanted.push_back(it->first);
      }
    }
    std::erase_if(to_come, [&](const auto& one) { return one.second == use; });
    only(wanted);
  }

  void complete(std::size_t unit) {
    units[unit].forget();
    if (synchronizes()) {
      reduce(unit);
    }
  }

  void reduce(std::size_t unit) {
    collect();
    sent = units[unit].leaf.grad().detach().contiguous();
    units[unit].leaf.mutable_grad().reset();
    mean = at::empty_like(units[unit].shard, at::TensorOptions().requires_grad(false));
    mean_of = unit;
    c10d::ReduceScatterOptions how;
    how.reduceOp = c10d::ReduceOp::SUM;
    reducing = ((*group).*kReduceScatterSingle)(mean, sent, how);
  }

  void collect() {
    if (reducing) {
      const at::NoGradGuard no_grad;
      reducing->wait();
      reducing.reset();
      sent.reset();
      mean.div_(ranks);
      at::Tensor& gradient = units[mean_of].shard.mutable_grad();
      if (gradient.defined()) {
        gradient.add_(mean);
      } else {
        gradient = mean;
      }
      mean.reset();
    }
  }

  const ProcessGroupPtr group;
  const FullyShardedOptions options;
  const int ranks;
  std::deque<OneUnit> units;
  std::vector<at::Tensor> shards;
  std::vector<std::pair<std::size_t, std::int64_t>> to_come;  // unit and use, until its backward
  std::int64_t uses = 0;
  WorkPtr reducing;
  at::Tensor sent, mean;
  std::size_t mean_of = 0;
};

at::Tensor Begins::forward(autograd::AutogradContext* context, const at::Tensor& y,
                           const std::weak_ptr<Whole>& model, std::int64_t unit, std::int64_t use) {
  auto handle = c10::make_intrusive<Handle>();
  handle->model = model;
  context->saved_data["model"] = c10::IValue::make_capsule(handle);
  context->saved_data["unit"] = unit;
  context->saved_data["use"] = use;
  return y.view_as(y);
}

autograd::variable_list Begins::backward(autograd::AutogradContext* context,
                                         autograd::variable_list gradients) {
  const auto capsule = context->saved_data["model"].toCapsule();
  const auto model = c10::static_intrusive_pointer_cast<Handle>(capsule)->model.lock();
  TORCH_CHECK(model != nullptr, "the model of this graph is gone");
  model->begins(static_cast<std::size_t>(context->saved_data["unit"].toInt()),
                context->saved_data["use"].toInt());
  return {gradients[0], at::Tensor(), at::Tensor(), at::Tensor()};
}

struct Complete : autograd::FunctionPostHook {
  Complete(std::weak_ptr<Whole> in, std::size_t which) : model(std::move(in)), unit(which) {}
  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list& /*inputs*/) override {
    if (const auto alive = model.lock()) {
      alive->complete(unit);
    }
    return outputs;
  }
  std::weak_ptr<Whole> model;
  std::size_t unit;
};

class Front : public FullySharded {
 public:
  explicit Front(std::shared_ptr<Whole> whole) : whole_(std::move(whole)) {
    for (std::size_t i = 0; i < whole_->units.size(); ++i) {
      accumulators_.push_back(autograd::impl::grad_accumulator(whole_->units[i].leaf));
      accumulators_.back()->add_post_hook(std::make_unique<Complete>(whole_, i));
    }
  }

  at::Tensor forward(std::size_t unit, const at::Tensor& x) override {
    TORCH_CHECK(unit < whole_->units.size() && x.defined(), "no unit ", unit, ", or no input");
    std::vector<std::size_t> wanted;
    for (std::size_t i = unit; i < whole_->units.size(); ++i) {
      if (static_cast<int>(i - unit) <= whole_->options.prefetch) {
        wanted.push_back(i);
      }
    }
    whole_->only(wanted);
    OneUnit& one = whole_->units[unit];
    at::Tensor y;
    try {
      y = one.function(x, one.views());
    } catch (...) {
      one.forget();
      throw;
    }
    const bool recorded = at::GradMode::is_enabled() && y.requires_grad();
    if (recorded) {
      const std::int64_t use = whole_->uses++;
      whole_->to_come.emplace_back(unit, use);
      y = Begins::apply(y, std::weak_ptr<Whole>(whole_), static_cast<std::int64_t>(unit), use);
    }
    if (!recorded || !whole_->options.keep_last || unit + 1 < whole_->units.size()) {
      one.forget();
    }
    return y;
  }

  void finish() override {
    TORCH_CHECK(synchronizes(), "not inside NoSync");
    for (std::size_t i = whole_->units.size(); i-- > 0;) {
      if (whole_->units[i].leaf.grad().defined()) {
        whole_->reduce(i);
      }
    }
    whole_->collect();
    for (OneUnit& unit : whole_->units) {
      unit.forget();
    }
    whole_->to_come.clear();
  }

  const std::vector<at::Tensor>& shards() const override { return whole_->shards; }

  double clip_grad_norm(double max_norm) override {
    TORCH_CHECK(max_norm > 0, "max_norm is not positive");
    double squares = 0;
    for (const at::Tensor& shard : whole_->shards) {
      if (shard.grad().defined()) {
        squares += shard.grad().to(at::kDouble).norm().square().item<double>();
      }
    }
    std::vector<at::Tensor> sum = {at::full({1}, squares, at::kDouble)};
    whole_->group->allreduce(sum)->wait();
    const double norm = std::sqrt(sum[0].item<double>());
    for (const at::Tensor& shard : whole_->shards) {
      if (shard.grad().defined() && norm + 1e-6 > max_norm) {
        shard.mutable_grad().mul_(max_norm / (norm + 1e-6));
      }
    }
    return norm;
  }

  std::vector<at::Tensor> whole_parameters(int root) override {
    TORCH_CHECK(root >= 0 && root < whole_->ranks, "no rank ", root);
    std::vector<at::Tensor> all;
    for (std::size_t i = 0; i < whole_->units.size(); ++i) {
      whole_->only({i});
      for (const at::Tensor& view : whole_->units[i].views()) {
        if (whole_->group->getRank() == root) {
          all.push_back(view.detach().clone());
        }
      }
    }
    whole_->units.back().forget();
    return all;
  }

  void load_whole(const std::vector<at::Tensor>& parameters) override {
    std::vector<const Piece*> pieces;
    for (const OneUnit& unit : whole_->units) {
      for (const Piece& piece : unit.pieces) {
        const std::size_t i = pieces.size();
        TORCH_CHECK(i < parameters.size() && parameters[i].defined() &&
                        parameters[i].sizes() == piece.shape &&
                        parameters[i].dtype() == unit.shard.dtype(),
                    "parameter ", i, " is not this model's");
        pieces.push_back(&piece);
      }
    }
    TORCH_CHECK(pieces.size() == parameters.size(), "there are more parameters than here");
    std::size_t next = 0;
    for (OneUnit& unit : whole_->units) {
      at::Tensor flat = at::zeros_like(unit.leaf, at::TensorOptions().requires_grad(false));
      for (const Piece& piece : unit.pieces) {
        const at::Tensor values = parameters[next++].detach().reshape({-1});
        flat.narrow(0, piece.begin, values.numel()).copy_(values);
      }
      take(unit, flat);
    }
  }

  SavedShards save() const override {
    SavedShards saved{whole_->group->getRank(), whole_->ranks, {}, {}};
    for (const OneUnit& unit : whole_->units) {
      saved.elements.push_back(unit.elements);
      saved.shards.push_back(unit.shard.detach().clone());
    }
    return saved;
  }

  void load(const std::vector<SavedShards>& saved) override {
    const auto in_order = in_order_of_ranks(saved, save());
    for (std::size_t u = 0; u < whole_->units.size(); ++u) {
      OneUnit& unit = whole_->units[u];
      at::Tensor flat = at::zeros_like(unit.leaf, at::TensorOptions().requires_grad(false));
      std::int64_t begin = 0;
      for (const SavedShards& one : in_order) {
        const auto count =
            std::clamp<std::int64_t>(unit.elements - begin, 0, one.shards[u].numel());
        flat.narrow(0, std::min(begin, unit.elements), count)
            .copy_(one.shards[u].narrow(0, 0, count));
        begin += one.shards[u].numel();
      }
      take(unit, flat);
    }
  }

 private:
  void silence(int change) override {
    FullySharded::silence(change);
    change > 0 ? scopes_.push_back(std::make_unique<NoSync>(*whole_)) : scopes_.pop_back();
  }

  void take(OneUnit& unit, const at::Tensor& flat) const {
    const std::int64_t chunk = unit.shard.numel();
    unit.shard.variable_data().copy_(flat.narrow(0, chunk * whole_->group->getRank(), chunk));
  }

  std::shared_ptr<Whole> whole_;
  std::vector<OwnedNode> accumulators_;
  std::vector<std::unique_ptr<NoSync>> scopes_;
};

}  // namespace

std::unique_ptr<FullySharded> make_fully_sharded(std::vector<Unit> units, ProcessGroupPtr group,
                                                 const FullyShardedOptions& options) {
  TORCH_CHECK(group && options.prefetch >= 0 && !units.empty(), "no group, units or prefetch");
  std::set<const void*> before;
  for (std::size_t u = 0; u < units.size(); ++u) {
    std::int64_t elements = 0;
    std::set<const void*> own;
    TORCH_CHECK(units[u].function && !units[u].parameters.empty(), "unit ", u, " lacks something");
    for (std::size_t i = 0; i < units[u].parameters.size(); ++i) {
      const at::Tensor& parameter = units[u].parameters[i];
      TORCH_CHECK(parameter.defined() && parameter.is_floating_point() &&
                      parameter.requires_grad() &&
                      parameter.dtype() == units[u].parameters[0].dtype() &&
                      parameter.device() == units[u].parameters[0].device() &&
                      !before.contains(parameter.unsafeGetTensorImpl()),
                  "unit ", u, " cannot have parameter ", i);
      own.insert(parameter.unsafeGetTensorImpl());
      elements += parameter.numel();
    }
    TORCH_CHECK(elements > 0, "unit ", u, " has no elements");
    before.merge(own);
  }
  auto whole = std::make_shared<Whole>(std::move(group), options);
  for (Unit& unit : units) {
    whole->add(unit);
    unit.parameters.clear();
  }
  return std::make_unique<Front>(std::move(whole));
}

}  // namespace ddp
