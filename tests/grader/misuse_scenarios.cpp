#include <ATen/ATen.h>

#include "ddp/collectives.h"
#include "ddp/referee/client.h"
#include "grader/calls.h"
#include "grader/settings.h"
#include "grader/training_scenarios.h"

namespace ddp::testing {

Scenario scenario_of(const SynchronizerUnderTest& subject, const std::string& name, int ranks,
                     RunWith run, const std::string& charged_to) {
  return {subject.form + name,
          {.ranks = ranks},
          [make = subject.make, run](Client& client) { run(client, make); },
          charged_to,
          edge_cases_of(World{.ranks = ranks})};
}

namespace {

constexpr std::size_t kBad = 7;  // the index of the bad element, in a list of ten

std::vector<at::Tensor> ten_parameters(bool tied) {
  std::vector<at::Tensor> parameters;
  for (std::size_t i = 0; i < 10; ++i) {
    parameters.push_back(at::ones({2, 3}, settings().device).set_requires_grad(i != 2));
  }
  if (tied) {
    parameters[5] = parameters[1];
  }
  return parameters;
}

// Construction with each argument that must be refused.
void construct_with(Client& client, const Factory& make, bool tied) {
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  const auto with = [&](const std::string& what, const std::vector<at::Tensor>& parameters,
                        const std::vector<at::Tensor>& buffers, const ProcessGroupPtr& in) {
    attempt(client, what, [&] { static_cast<void>(make(client, parameters, buffers, in)); });
  };
  const std::vector<at::Tensor> good = ten_parameters(tied);
  std::vector<at::Tensor> hole = good;
  hole[kBad] = at::Tensor();
  std::vector<at::Tensor> inner = good;
  inner[kBad] = good[kBad] * 2;
  std::vector<at::Tensor> inner_with_gradient = good;
  inner_with_gradient[kBad] = good[kBad] * 2;
  inner_with_gradient[kBad].retain_grad();
  std::vector<at::Tensor> buffers(10, at::ones({2}, settings().device));
  buffers[kBad] = at::Tensor();
  with("an empty list of parameters", {}, {}, group);
  with("an empty list of parameters beside a buffer", {}, {at::ones({2})}, group);
  with("a process group that is null", good, {}, nullptr);
  with("an undefined parameter (index 7)", hole, {}, group);
  with("an undefined buffer (index 7)", good, buffers, group);
  with("an undefined first parameter (index 0)", {at::Tensor(), good[1]}, {}, group);
  with("an undefined first buffer (index 0)", good, {at::Tensor(), good[1]}, group);
  with("a trainable parameter that is not a leaf (index 7)", inner, {}, group);
  with("a parameter that is not a leaf and retains its gradient (index 7)", inner_with_gradient, {},
       group);
  const at::NoGradGuard no_grad;
  with("a trainable parameter that is not a leaf, while autograd is off (index 7)", inner, {},
       group);
}

void construct_wrongly(Client& client, const Factory& make) {
  construct_with(client, make, /*tied=*/false);
}

// Only the parameter at kBad is trainable: a table, of which backward reads `rows` rows. A frozen one
// has a sparse gradient of the caller's. Made on all ranks together, with its synchronizer.
struct Table {
  Table(Client& client, const Factory& make, bool tied = false) : parameters(ten_parameters(tied)) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].set_requires_grad(i == kBad);
    }
    parameters[0].mutable_grad() = at::ones({2, 3}, settings().device).to_sparse();
    synchronizer = make(client, parameters, {}, make_group(client.shared_from_this()));
  }

  void backward(bool sparse, int rows = 2) const {
    parameters[kBad].mutable_grad().reset();  // a dense one would make the sum dense
    at::embedding(parameters[kBad],
                  at::arange(rows, at::TensorOptions(at::kLong).device(settings().device)),
                  /*padding_idx=*/-1,
                  /*scale_grad_by_freq=*/false, sparse)
        .sum()
        .backward();
  }

  std::vector<at::Tensor> parameters;
  std::unique_ptr<GradientSynchronizer> synchronizer;
};

void train_with_sparse_gradients(Client& client, const Factory& make, bool tied) {
  for (const int rows : {2, 0}) {
    const Table table(client, make, tied);
    attempt(client,
            std::string("a sparse gradient") + (rows > 0 ? "" : " without values") + " (index 7)",
            [&] {
              table.backward(/*sparse=*/true, rows);
              table.synchronizer->finish();
            });
  }
}

void train_with_a_sparse_gradient(Client& client, const Factory& make) {
  train_with_sparse_gradients(client, make, /*tied=*/false);
}

// The index is the place in the list, in which a tied weight has two.
void err_beside_a_tied_weight(Client& client, const Factory& make) {
  construct_with(client, make, /*tied=*/true);
  train_with_sparse_gradients(client, make, /*tied=*/true);
}

// By the hook inside the scope or by finish() after it: both come before anything is sent.
void accumulate_sparse_gradients(Client& client, const Factory& make) {
  const Table table(client, make);
  attempt(client, "a sparse gradient that was accumulated inside NoSync (index 7)", [&] {
    {
      const NoSync scope(*table.synchronizer);
      table.backward(/*sparse=*/true);
    }
    table.synchronizer->finish();
  });
}

void construct_wrongly_on_one_rank(Client& client, const Factory& make) {
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  const at::Tensor weight = at::ones({3}, settings().device).set_requires_grad(true);
  if (client.rank() == 1) {
    attempt(client, "an undefined parameter on this rank only",
            [&] { static_cast<void>(make(client, {at::Tensor()}, {}, group)); });
  } else {
    expect_failure(client, "a construction that rank 1 takes no part in",
                   [&] { static_cast<void>(make(client, {weight}, {}, group)); });
  }
}

void finish_wrongly_on_one_rank(Client& client, const Factory& make) {
  const Table table(client, make);
  const bool errs = client.rank() == 1;
  const auto step = [&] {
    table.backward(/*sparse=*/errs);
    table.synchronizer->finish();
  };
  if (errs) {
    attempt(client, "a sparse gradient on this rank only (index 7)", step);
  } else {
    expect_failure(client, "a step that rank 1 takes no part in", step);
  }
}

void end_early_on_one_rank(Client& client, const Factory& make) {
  const Table table(client, make);
  if (client.rank() != 1) {
    expect_failure(client, "a step that rank 1 takes no part in", [&] {
      table.backward(/*sparse=*/false);
      try {
        // Now all know that rank 1 is gone.
        all_reduce(at::ones({1}), make_group(client.shared_from_this()));
      } catch (const c10::Error&) {
      }
      table.synchronizer->finish();
    });
  }
}

void construct_in_vain(Client& client, const Factory& make) {
  const at::Tensor weight = at::ones({3}, settings().device).set_requires_grad(true);
  expect_lost_connection(client, "a construction of which a broadcast fails", [&] {
    static_cast<void>(make(client, {weight}, {at::ones({2}, settings().device)},
                           make_group(client.shared_from_this())));
  });
}

void step_in_vain(Client& client, const Factory& make) {
  Training training(client, {}, make);
  training.construct();
  expect_lost_connection(client, "a step of which an all-reduce fails", [&] { training.step(); });
}

void step_beside_a_sparse_gradient(Client& client, const Factory& make) {
  const Table table(client, make);
  table.backward(/*sparse=*/false);
  table.synchronizer->finish();
}

// Whoever refuses it in the hook does so here, too.
void make_a_sparse_gradient_dense(Client& client, const Factory& make) {
  const Table table(client, make);
  try {
    const NoSync scope(*table.synchronizer);
    table.backward(/*sparse=*/true);
  } catch (const c10::Error&) {
    return;
  }
  table.parameters[kBad].mutable_grad() = table.parameters[kBad].grad().to_dense();
  table.synchronizer->finish();
}

std::vector<Scenario> lost_connection_scenarios(const SynchronizerUnderTest& subject) {
  const auto scenario = [&](const std::string& name, RunWith run, const Failure& failure) {
    Scenario lost = scenario_of(subject, name, 2, run, subject.charged.errors);
    lost.world.failure = failure;
    return lost;
  };
  return {scenario("the first broadcast fails", construct_in_vain, {.operation = 0}),
          scenario("a buffer's broadcast fails", construct_in_vain, {.operation = 1}),
          scenario("the first all-reduce fails", step_in_vain, {.step = 0, .operation = 0}),
          scenario("the second all-reduce fails", step_in_vain, {.step = 0, .operation = 1}),
          scenario("an all-reduce cannot be launched", step_in_vain,
                   {.step = 0, .operation = 0, .at_launch = true})};
}

}  // namespace

std::vector<Scenario> misuse_scenarios(const SynchronizerUnderTest& subject) {
  const auto scenario = [&](const std::string& name, int ranks, RunWith run) {
    return scenario_of(subject, name, ranks, run, subject.charged.errors);
  };
  std::vector<Scenario> scenarios = {
      scenario("construction with wrong arguments", 2, construct_wrongly),
      scenario("construction with wrong arguments, on one rank", 1, construct_wrongly),
      scenario("a sparse gradient", 2, train_with_a_sparse_gradient),
      scenario("a sparse gradient on the only rank", 1, train_with_a_sparse_gradient),
      scenario("wrong arguments and a sparse gradient beside a tied weight", 2,
               err_beside_a_tied_weight),
      scenario("a sparse gradient inside NoSync", 2, accumulate_sparse_gradients),
      scenario("a frozen parameter has a sparse gradient", 2, step_beside_a_sparse_gradient),
      scenario("rank 1 is given a wrong argument", 3, construct_wrongly_on_one_rank),
      scenario("rank 1 has a sparse gradient", 3, finish_wrongly_on_one_rank),
      scenario("rank 1 ends before the step", 3, end_early_on_one_rank)};
  scenarios[4].edge_cases.insert(kTied);
  return joined({scenarios, lost_connection_scenarios(subject)});
}

Scenario refused_in_backward(const SynchronizerUnderTest& subject) {
  return scenario_of(
      subject, "a sparse gradient is refused by backward", 2,
      [](Client& client, const Factory& make) {
        const Table table(client, make);
        attempt(client, "backward() of a sparse gradient (index 7)",
                [&] { table.backward(/*sparse=*/true); });
      },
      subject.charged.errors);
}

Scenario sparse_made_dense(const SynchronizerUnderTest& subject) {
  return scenario_of(subject, "a sparse gradient inside NoSync is dense before finish()", 2,
                     make_a_sparse_gradient_dense, subject.charged.errors);
}

}  // namespace ddp::testing
