#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "cases.h"
#include "ddp/flat_layout.h"
#include "ddp/referee/access_watch.h"
#include "ddp/referee/client.h"
#include "ddp/storage.h"
#include "grader/calls.h"
#include "grader/compare.h"
#include "grader/scenario.h"
#include "grader/training_evidence.h"

namespace ddp::testing {

namespace {

namespace autograd = torch::autograd;

// A unit's last operation: its backward is the first to know that the unit's begins.
struct Told : autograd::Function<Told> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& y,
                            const at::Tensor& parameter, Client* client, std::int64_t unit) {
    context->save_for_backward({parameter});
    context->saved_data["client"] = reinterpret_cast<std::int64_t>(client);
    context->saved_data["unit"] = unit;
    return y.view_as(y);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          autograd::variable_list gradients) {
    const std::int64_t unit = context->saved_data["unit"].toInt();
    const at::Tensor parameter = context->get_saved_variables()[0];
    TORCH_CHECK(has_storage(parameter), "the backward of unit ", unit,
                " begins, and its parameters have no memory: it is to be gathered before");
    reinterpret_cast<Client*>(context->saved_data["client"].toInt())->fact(kBackward, 1, unit);
    return {gradients[0], at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// Computes a unit's output without a graph, and once more, with one, in backward.
struct Checkpoint : autograd::Function<Checkpoint> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x,
                            FullySharded* model, std::int64_t unit) {
    context->save_for_backward({x});
    context->saved_data["model"] = reinterpret_cast<std::int64_t>(model);
    context->saved_data["unit"] = unit;
    const at::NoGradGuard no_grad;
    return model->forward(unit, x);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          autograd::variable_list gradients) {
    const at::AutoGradMode with_grad(true);
    auto* model = reinterpret_cast<FullySharded*>(context->saved_data["model"].toInt());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const at::Tensor y = model->forward(context->saved_data["unit"].toInt(), x);
    y.backward(gradients[0]);
    return {x.grad(), at::Tensor(), at::Tensor()};
  }
};

// A case's model on a rank, in training.
class Trainer {
 public:
  Trainer(Client& client, const Case& one)
      : client_(client), case_(one), group_(make_group(client.shared_from_this(), one.group)) {
    client.fact(kCase, &one - cases().data());
  }

  void construct_alone() {
    construct();
    hand_in_shards(kInitialShard);
    destroy();
  }

  void run() {
    construct();
    hand_in_shards(kInitialShard);
    for (std::size_t i = 0; i < case_.steps.size(); ++i) {
      step(static_cast<int>(i));
    }
    destroy();
  }

 private:
  void go_to(Phase phase, int model = 0) {
    client_.go_to({.phase = phase, .step = step_, .model = model});
  }

  void construct() {
    const std::vector<Unit> units = units_of(client_, case_, client_.rank(), &how_);
    const auto before = parameters_of(case_, client_.rank());
    go_to(Phase::kConstruction);
    {
      const KeptSurroundings kept(client_, "construction");
      model_ = make_fully_sharded(units, group_, case_.options);
    }
    go_to(Phase::kSetup);
    for (std::size_t i = 0; i < units.size(); ++i) {
      for (std::size_t j = 0; j < before[i].size(); ++j) {
        if (!same_bits(units[i].parameters[j].detach(), before[i][j].detach())) {
          client_.fact(kGivenChanged, static_cast<std::int64_t>(j), static_cast<std::int64_t>(i));
        }
      }
    }
  }

  void hand_in_shards(ValueKey name) {
    const std::vector<at::Tensor>& shards = model_->shards();
    for (std::size_t i = 0; i < case_.units.size(); ++i) {
      const at::Tensor shard = i < shards.size() ? shards[i] : at::Tensor();
      const bool good =
          shard.defined() && shard.dim() == 1 && shard.is_leaf() && shard.requires_grad();
      client_.fact(good ? "a flat leaf" : "no flat leaf that requires a gradient", 1,
                   static_cast<std::int64_t>(i));
      client_.value(name, good ? shard.detach() : at::Tensor(), static_cast<std::int64_t>(i));
    }
  }

  at::Tensor forward(const Pass& pass, at::Tensor x) {
    for (const std::size_t unit : pass.uses) {
      const KeptSurroundings kept(client_, "forward()");
      x = pass.how == How::kCheckpoint
              ? Checkpoint::apply(x, model_.get(), static_cast<std::int64_t>(unit))
              : model_->forward(unit, x);
    }
    return x;
  }

  void run_pass(const Pass& pass, std::size_t place) {
    std::optional<NoSync> no_sync;
    const auto enter = [&](bool inside) {
      inside ? void(no_sync.emplace(*model_)) : no_sync.reset();
    };
    enter(pass.no_sync != pass.scope_turns);
    go_to(Phase::kForward);
    client_.fact(kPass, pass.no_sync);
    at::Tensor x = input_of(case_, client_.rank(), step_, place);
    x.set_requires_grad(pass.how == How::kCheckpoint);
    how_ = pass.how;
    at::Tensor y;
    try {
      const at::AutoGradMode mode(pass.how != How::kNoGrad);
      y = forward(pass, x);
    } catch (const std::runtime_error& error) {
      if (pass.how != How::kThrows) {
        throw;
      }
      client_.fact("threw, as it was to", 1);
    }
    client_.value(kOutput, y.defined() ? y.detach() : y, static_cast<std::int64_t>(place));
    if (pass.how == How::kTrain || pass.how == How::kCheckpoint) {
      const at::Tensor loss = loss_of(y, case_.loss_scale);
      y.reset();
      enter(pass.no_sync);
      if (pass.inner_scope) {
        const NoSync inner(*model_);
      }
      go_to(Phase::kBackward);
      const KeptSurroundings kept(client_, "backward");
      loss.backward();
    }
  }

  // See Case::another. What it does is no part of what the case's model does.
  void begin_another(bool is_last_step) {
    if (step_ == 0) {
      go_to(Phase::kConstruction, kAnother);
      another_ = make_fully_sharded(units_of(client_, case_, client_.rank(), nullptr), group_,
                                    case_.options);
    }
    if (is_last_step) {
      go_to(Phase::kDestruction, kAnother);
      another_.reset();
      return;
    }
    others_scope_.emplace(*another_);
    go_to(Phase::kForward, kAnother);
    others_output_ = input_of(case_, client_.rank(), step_, 0);
    for (std::size_t i = 0; i < case_.units.size(); ++i) {
      others_output_ = another_->forward(i, others_output_);
    }
  }

  void end_another() {
    go_to(Phase::kBackward, kAnother);
    loss_of(std::exchange(others_output_, at::Tensor())).backward();
    others_scope_.reset();
    go_to(Phase::kFinish, kAnother);
    another_->finish();
  }

  void step(int number) {
    step_ = number;
    const Step& step = case_.steps.at(number);
    if (case_.another) {
      begin_another(/*is_last_step=*/&step == &case_.steps.back());
    }
    for (std::size_t i = 0; i < step.passes.size(); ++i) {
      run_pass(step.passes[i], i);
    }
    go_to(Phase::kFinish);
    {
      const KeptSurroundings kept(client_, "finish()");
      model_->finish();
    }
    if (another_) {
      end_another();
    }
    go_to(Phase::kCall);
    const std::vector<at::Tensor>& shards = model_->shards();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      client_.value(kGradient, shards[i].grad(), static_cast<std::int64_t>(i));
    }
    if (step.max_norm > 0) {
      const KeptSurroundings kept(client_, "clip_grad_norm()");
      client_.value(kReturnedNorm,
                    at::scalar_tensor(model_->clip_grad_norm(step.max_norm), at::kDouble));
    }
    update(step);
    go_to(Phase::kSetup);
    hand_in_shards(kShard);
  }

  void update(const Step& step) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& shard : model_->shards()) {
      if (shard.grad().defined()) {
        shard.add_(shard.grad(), -kRate);
      }
      if (step.clears) {
        shard.mutable_grad().reset();
      }
    }
  }

  void destroy() {
    ++step_;  // it is part of no step that has a time
    go_to(Phase::kDestruction);
    {
      const KeptSurroundings kept(client_, "destruction");
      model_.reset();
    }
    go_to(Phase::kSetup);
  }

  Client& client_;
  const Case& case_;
  ProcessGroupPtr group_;
  int step_ = -1;
  How how_ = How::kTrain;
  std::unique_ptr<FullySharded> model_;
  static constexpr int kAnother = 1;  // see Place::model
  std::unique_ptr<FullySharded> another_;
  std::optional<NoSync> others_scope_;
  at::Tensor others_output_;
};

}  // namespace

std::vector<Unit> units_of(Client& client, const Case& one, int rank, const How* how) {
  std::vector<Unit> units;
  for (auto& parameters : parameters_of(one, rank)) {
    const auto number = static_cast<std::int64_t>(units.size());
    const UnitFunction function = [&client, one, number, how](
                                      const at::Tensor& x,
                                      const std::vector<at::Tensor>& given) -> at::Tensor {
      client.fact(kForward, 1, number);
      const auto& shapes = one.units[number].shapes;
      TORCH_CHECK(given.size() == shapes.size() + (one.units[number].tied ? 1 : 0), "unit ", number,
                  "'s function was given ", given.size(), " parameters, not as many as it has");
      for (std::size_t i = 0; i < given.size(); ++i) {
        TORCH_CHECK(has_storage(given[i]), "the function of unit ", number,
                    " was called, and its parameters have no memory");
        TORCH_CHECK(given[i].sizes() == at::IntArrayRef(shapes[i % shapes.size()]), "parameter ", i,
                    " of unit ", number, " has shape ", given[i].sizes(), ", not as it was given");
      }
      const How now = how != nullptr ? *how : How::kTrain;
      if (now == How::kThrows && number == 1) {
        throw std::runtime_error("this function throws, as it is to");
      }
      const at::Tensor y = compute(one, x, given);
      if (now == How::kDetached) {
        return y.detach();
      }
      return at::GradMode::is_enabled() ? Told::apply(y, given[0], &client, number) : y;
    };
    units.push_back({std::move(parameters), function});
  }
  return units;
}

std::vector<at::Tensor> chunks_of(const std::vector<std::vector<at::Tensor>>& units, int ranks,
                                  int place) {
  std::vector<at::Tensor> chunks;
  for (const auto& parameters : units) {
    const at::Tensor flat = FlatLayout(parameters, ranks, "unit").flatten(parameters);
    const std::int64_t chunk = flat.numel() / ranks;
    const std::int64_t elements = FlatLayout(parameters, 1, "unit").elements();
    chunks.push_back(flat.narrow(0, place * chunk,
                                 std::clamp<std::int64_t>(elements - place * chunk, 0, chunk)));
  }
  return chunks;
}

std::vector<Scenario> constructions_of_cases(const std::function<bool(const Case&)>& which) {
  std::vector<Scenario> scenarios = scenarios_of_cases(which);
  for (Scenario& scenario : scenarios) {
    const Case& one = *std::ranges::find(cases(), scenario.name, &Case::name);
    scenario.name = "construction: " + scenario.name;
    scenario.run = [&one](Client& client) { Trainer(client, one).construct_alone(); };
    scenario.charged_to = "construction_leaves_a_chunk_of_rank_0";
  }
  return scenarios;
}

std::vector<Scenario> scenarios_of_cases(const std::function<bool(const Case&)>& which) {
  std::vector<Scenario> scenarios;
  for (const Case& one : cases()) {
    if (which(one)) {
      const World world = {.ranks = one.ranks, .subgroups = one.subgroups, .hold = false};
      EdgeCases edge_cases = edge_cases_of(world);
      edge_cases.insert(one.edge_cases.begin(), one.edge_cases.end());
      scenarios.push_back({one.name, world, [&one](Client& client) { Trainer(client, one).run(); },
                           one.charged_to, edge_cases});
    }
  }
  return scenarios;
}

}  // namespace ddp::testing
