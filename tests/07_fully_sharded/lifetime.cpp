#include <ATen/ATen.h>

#include <limits>

#include "cases.h"
#include "ddp/referee/client.h"
#include "grader/calls.h"
#include "scenarios.h"

// Errors, and the end of a model.

namespace ddp::testing {

namespace {

const Case kSmall{.name = "", .units = {{{{5, 3}, {4}}}, {{{7}}}, {{{4, 4}, {1}, {3}}}}};

std::vector<Unit> units_for(Client& client) {
  return units_of(client, kSmall, client.rank(), nullptr);
}

std::unique_ptr<FullySharded> make(Client& client) {
  return make_fully_sharded(units_for(client), make_group(client.shared_from_this()));
}

// A step as any other, and what is in the shards then: nobody has lost anything.
void train(Client& client, FullySharded& model) {
  at::Tensor x = input_of(kSmall, client.rank(), 0, 0);
  for (std::size_t i = 0; i < kSmall.units.size(); ++i) {
    x = model.forward(i, x);
  }
  loss_of(x).backward();
  model.finish();
}

void construct_wrongly(Client& client) {
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  const auto with = [&](const std::string& what,
                        const std::function<void(std::vector<Unit>&)>& spoil, int prefetch = 1) {
    std::vector<Unit> units = units_for(client);
    spoil(units);
    attempt(client, what,
            [&] { static_cast<void>(make_fully_sharded(units, group, {.prefetch = prefetch})); });
  };
  with("an empty list of units", [](auto& units) { units.clear(); });
  with("a unit without parameters (index 1)", [](auto& units) { units[1].parameters.clear(); });
  with("a unit whose parameters have no elements (index 2)",
       [](auto& units) { units[2].parameters = {at::ones({0}).set_requires_grad(true)}; });
  with("a unit with an empty function (index 2)", [](auto& units) { units[2].function = nullptr; });
  with("an undefined parameter of unit 2 (index 2, 1)",
       [](auto& units) { units[2].parameters[1] = at::Tensor(); });
  with("an undefined first parameter of unit 2 (index 2, 0)",
       [](auto& units) { units[2].parameters[0] = at::Tensor(); });
  with("a parameter of unit 2 that requires no gradient (index 2, 1)",
       [](auto& units) { units[2].parameters[1] = at::ones({1}); });
  with("a parameter of unit 2 that is of integers (index 2, 1)",
       [](auto& units) { units[2].parameters[1] = at::ones({1}, at::kLong); });
  with("a complex parameter, unit 2's only one (index 2, 0)", [](auto& units) {
    units[2].parameters = {at::ones({4}, at::kComplexFloat).set_requires_grad(true)};
  });
  with("a parameter of unit 2 of another dtype than the first (index 2, 1)", [](auto& units) {
    units[2].parameters[1] = at::ones({1}, at::kDouble).set_requires_grad(true);
  });
  with("a parameter of unit 0 that is in unit 2, too (index 2, 1)",
       [](auto& units) { units[2].parameters[1] = units[0].parameters[0]; });
  with(
      "prefetch = -1", [](auto&) {}, -1);
  attempt(client, "a process group that is null",
          [&] { static_cast<void>(make_fully_sharded(units_for(client), nullptr)); });
  // Units may differ in dtype.
  std::vector<Unit> mixed = units_for(client);
  mixed[2].parameters = {at::ones({4}, at::kDouble).set_requires_grad(true)};
  static_cast<void>(make_fully_sharded(mixed, group));
}

void call_wrongly(Client& client) {
  const auto model = make(client);
  const at::Tensor x = input_of(kSmall, client.rank(), 0, 0);
  attempt(client, "forward() of unit 3 among three (index 3)", [&] { model->forward(3, x); });
  attempt(client, "forward() of an undefined tensor", [&] { model->forward(1, at::Tensor()); });
  for (const double max_norm : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    attempt(client, "clip_grad_norm(" + std::to_string(max_norm) + ")",
            [&] { model->clip_grad_norm(max_norm); });
  }
  for (const int root : {-1, 2}) {
    attempt(client, "whole_parameters(" + std::to_string(root) + ") of two ranks",
            [&] { static_cast<void>(model->whole_parameters(root)); });
  }
  {
    const NoSync scope(*model);
    attempt(client, "finish() inside NoSync", [&] { model->finish(); });
  }
  train(client, *model);
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& shards) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& shard : shards) {
    copies.push_back(shard.detach().clone());
  }
  return copies;
}

void load_wrongly(Client& client) {
  const auto model = make(client);
  const std::vector<at::Tensor> before = copies_of(model->shards());
  std::vector<SavedShards> good(2, model->save());
  for (int rank = 0; rank < 2; ++rank) {
    good[rank].rank = rank;
    for (at::Tensor& shard : good[rank].shards) {
      shard = shard + 1;
    }
  }
  const auto with = [&](const std::string& what,
                        const std::function<void(std::vector<SavedShards>&)>& spoil) {
    std::vector<SavedShards> saved = good;
    spoil(saved);
    attempt(client, what, [&] { model->load(saved); });
  };
  with("load() of nothing", [](auto& saved) { saved.clear(); });
  with("load() without rank 1's state", [](auto& saved) { saved.pop_back(); });
  with("load() of rank 0's state twice", [](auto& saved) { saved[1].rank = 0; });
  with("load() of a state whose rank is 2 of 2", [](auto& saved) { saved[1].rank = 2; });
  with("load() of a state whose rank is -1", [](auto& saved) { saved[1].rank = -1; });
  with("load() of a state of another world beside it", [](auto& saved) { saved[1].ranks = 3; });
  with("load() of a model with a unit less", [](auto& saved) {
    for (SavedShards& one : saved) {
      one.elements.pop_back();
      one.shards.pop_back();
    }
  });
  with("load() of a model whose unit has as many elements and padding, but not the same (index 1)",
       [](auto& saved) { saved[0].elements[1] = saved[1].elements[1] = 8; });
  with("load() of a shard that is longer than the others (index 2)", [](auto& saved) {
    saved[1].shards[2] = at::cat({saved[1].shards[2], at::ones({2})});
  });
  with("load() of a shard of another dtype (index 2)",
       [](auto& saved) { saved[1].shards[2] = saved[1].shards[2].to(at::kDouble); });
  compare(client, "shards after a load that was refused", model->shards(), before);
}

void load_whole_wrongly(Client& client) {
  const auto model = make(client);
  const std::vector<at::Tensor> before = copies_of(model->shards());
  const auto with = [&](const std::string& what,
                        const std::function<void(std::vector<at::Tensor>&)>& spoil) {
    std::vector<at::Tensor> whole;
    for (const auto& parameters : parameters_of(kSmall, 5)) {
      whole.insert(whole.end(), parameters.begin(), parameters.end());
    }
    spoil(whole);
    attempt(client, what, [&] { model->load_whole(whole); });
  };
  with("load_whole() of a parameter less", [](auto& whole) { whole.pop_back(); });
  with("load_whole() of a parameter more", [](auto& whole) { whole.push_back(at::ones({3})); });
  with("load_whole() of an undefined tensor (index 4)", [](auto& whole) { whole[4].reset(); });
  with("load_whole() of another shape (index 3)", [](auto& whole) {
    whole[3] = whole[3].detach().view({2, 8});
  });
  with("load_whole() of another dtype (index 5)",
       [](auto& whole) { whole[5] = whole[5].detach().to(at::kDouble); });
  compare(client, "shards after a load that was refused", model->shards(), before);
}

// Its backward needs no parameters, and so would go through without them.
at::Tensor add_sums(const at::Tensor& x, const std::vector<at::Tensor>& parameters) {
  at::Tensor sum = x;
  for (const at::Tensor& parameter : parameters) {
    sum = sum + parameter.sum();
  }
  return sum;
}

void destroy_with_a_graph(Client& client) {
  std::vector<Unit> units = units_for(client);
  for (Unit& unit : units) {
    unit.function = add_sums;
  }
  auto model = make_fully_sharded(std::move(units), make_group(client.shared_from_this()));
  {
    const NoSync scope(*model);  // leaves gradients that nobody will reduce
    loss_of(model->forward(2, input_of(kSmall, client.rank(), 0, 0))).backward();
  }
  at::Tensor x = model->forward(0, input_of(kSmall, client.rank(), 0, 0));
  x = model->forward(1, x);
  const std::vector<at::Tensor> shards = model->shards();
  const std::vector<at::Tensor> before = copies_of(shards);
  client.go_to({.phase = Phase::kDestruction});
  model.reset();
  client.go_to({.phase = Phase::kSetup});
  attempt(client, "the backward of a graph whose model is gone", [&] { loss_of(x).backward(); });
  compare(client, "shards that outlive their model", shards, before);
}

void one_after_the_other(Client& client) {
  const HeldMeter meter({});
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 150; ++j) {
      const auto model = make(client);
      if (j % 10 == 0) {
        train(client, *model);
      }
    }
    meter.count(client);
  }
}

}  // namespace

std::vector<Scenario> misuse() {
  return {{"wrong arguments", {.hold = false}, construct_wrongly, kErrorsTest},
          {"wrong calls", {.hold = false}, call_wrongly, kErrorsTest},
          {"states of other models", {.hold = false}, load_wrongly, kErrorsTest},
          {"whole parameters of other models", {.hold = false}, load_whole_wrongly, kErrorsTest}};
}

std::vector<Scenario> destruction() {
  return {
      {"a graph outlives its model", {.hold = false}, destroy_with_a_graph, kDestructionTest},
      {"450 models, one after the other", {.hold = false}, one_after_the_other, kDestructionTest}};
}

}  // namespace ddp::testing
