#include "support/misuse_bodies.h"

#include <ATen/ATen.h>

#include "ddp/collectives.h"
#include "ddp/gradient_hooks.h"
#include "ddp/referee/client_group.h"
#include "support/attempt.h"
#include "support/held_meter.h"
#include "support/settings.h"

namespace ddp::testing {

namespace {

using RunWith = void (*)(Client& client, const Factory& make);

Body body_of(const SynchronizerUnderTest& subject, const std::string& name, int ranks, RunWith run,
             const std::string& charged_to) {
  return {subject.form + name,
          {.ranks = ranks},
          [make = subject.make, run](Client& client) { run(client, make); },
          charged_to};
}

constexpr std::size_t kBad = 7;  // the index of the bad element, in a list of ten

std::vector<at::Tensor> ten_parameters() {
  std::vector<at::Tensor> parameters;
  for (std::size_t i = 0; i < 10; ++i) {
    parameters.push_back(at::ones({2, 3}, settings().device).set_requires_grad(i != 2));
  }
  parameters[5] = parameters[1];  // tied
  return parameters;
}

// Construction with each argument that must be refused.
void construct_wrongly(Client& client, const Factory& make) {
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  const auto with = [&](const std::string& what, const std::vector<at::Tensor>& parameters,
                        const std::vector<at::Tensor>& buffers, const ProcessGroupPtr& in) {
    attempt(client, what, [&] { static_cast<void>(make(client, parameters, buffers, in)); });
  };
  const std::vector<at::Tensor> good = ten_parameters();
  std::vector<at::Tensor> hole = good;
  hole[kBad] = at::Tensor();
  std::vector<at::Tensor> inner = good;
  inner[kBad] = good[kBad] * 2;
  std::vector<at::Tensor> buffers(10, at::ones({2}, settings().device));
  buffers[kBad] = at::Tensor();
  with("an empty list of parameters", {}, {}, group);
  with("an empty list of parameters beside a buffer", {}, {at::ones({2})}, group);
  with("a process group that is null", good, {}, nullptr);
  with("an undefined parameter (index 7)", hole, {}, group);
  with("an undefined buffer (index 7)", good, buffers, group);
  with("a trainable parameter that is not a leaf (index 7)", inner, {}, group);
}

// Only the parameter at kBad is trainable: a table, of which backward reads two rows.
struct Table {
  Table() : parameters(ten_parameters()) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] = at::ones({2, 3}, settings().device).set_requires_grad(i == kBad);
    }
  }

  void backward(bool sparse) const {
    parameters[kBad].mutable_grad().reset();  // a dense one would make the sum dense
    at::embedding(parameters[kBad],
                  at::arange(2, at::TensorOptions(at::kLong).device(settings().device)),
                  /*padding_idx=*/-1,
                  /*scale_grad_by_freq=*/false, sparse)
        .sum()
        .backward();
  }

  std::vector<at::Tensor> parameters;
};

void train_with_sparse_gradients(Client& client, const Factory& make) {
  const Table table;
  const auto synchronizer =
      make(client, table.parameters, {}, make_group(client.shared_from_this()));
  attempt(client, "a sparse gradient (index 7)", [&] {
    table.backward(/*sparse=*/true);
    synchronizer->finish();
  });
}

// `late`: in finish() only, not by the hook of the backward inside the scope.
void accumulate_sparse_gradients(Client& client, const Factory& make, bool late) {
  const Table table;
  const auto synchronizer =
      make(client, table.parameters, {}, make_group(client.shared_from_this()));
  const auto accumulate = [&] {
    const NoSync scope(*synchronizer);
    table.backward(/*sparse=*/true);
  };
  if (late) {
    accumulate();
  }
  attempt(client, "a sparse gradient that was accumulated inside NoSync (index 7)", [&] {
    if (!late) {
      accumulate();
    }
    synchronizer->finish();
  });
}

void construct_wrongly_on_one_rank(Client& client, const Factory& make) {
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  const at::Tensor weight = at::ones({3}, settings().device).set_requires_grad(true);
  if (client.rank() == 1) {
    attempt(client, "an undefined parameter on this rank only",
            [&] { static_cast<void>(make(client, {at::Tensor()}, {}, group)); });
  } else {
    expect_failure(client, "construction",
                   [&] { static_cast<void>(make(client, {weight}, {}, group)); });
  }
}

void finish_wrongly_on_one_rank(Client& client, const Factory& make) {
  const Table table;
  const auto synchronizer =
      make(client, table.parameters, {}, make_group(client.shared_from_this()));
  const bool errs = client.rank() == 1;
  const auto step = [&] {
    table.backward(/*sparse=*/errs);
    synchronizer->finish();
  };
  if (errs) {
    attempt(client, "a sparse gradient on this rank only (index 7)", step);
  } else {
    expect_failure(client, "a step", step);
  }
}

void end_early_on_one_rank(Client& client, const Factory& make) {
  const Table table;
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  const auto synchronizer = make(client, table.parameters, {}, group);
  if (client.rank() != 1) {
    expect_failure(client, "a step", [&] {
      table.backward(/*sparse=*/false);
      try {
        all_reduce(at::ones({1}), group);  // now all know that rank 1 is gone
      } catch (const c10::Error&) {
      }
      synchronizer->finish();
    });
  }
}

}  // namespace

std::vector<Body> misuse_bodies(const SynchronizerUnderTest& subject) {
  const auto body = [&](const std::string& name, int ranks, RunWith run) {
    return body_of(subject, name, ranks, run, subject.charged.errors);
  };
  return {body("construction with wrong arguments", 2, construct_wrongly),
          body("construction with wrong arguments, on one rank", 1, construct_wrongly),
          body("a sparse gradient", 2, train_with_sparse_gradients),
          body("a sparse gradient on the only rank", 1, train_with_sparse_gradients),
          body("a sparse gradient inside NoSync", 2,
               [](Client& client, const Factory& make) {
                 accumulate_sparse_gradients(client, make, /*late=*/false);
               }),
          body("rank 1 is given a wrong argument", 3, construct_wrongly_on_one_rank),
          body("rank 1 has a sparse gradient", 3, finish_wrongly_on_one_rank),
          body("rank 1 ends before the step", 3, end_early_on_one_rank)};
}

Body late_refusal_body(const SynchronizerUnderTest& subject) {
  return body_of(
      subject, "a sparse gradient inside NoSync is refused by finish()", 2,
      [](Client& client, const Factory& make) {
        accumulate_sparse_gradients(client, make, /*late=*/true);
      },
      subject.charged.errors);
}

namespace {

using Layers = std::vector<std::size_t>;

void backward_twice(Training& training, const Layers& first, const Layers& second,
                    const std::function<void()>& between) {
  // With create_graph autograd does not accumulate in place, so nothing in flight is overwritten:
  // the error has to come from the synchronizer itself.
  training.loss_in_order(first).backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  between();
  attempt(training.client(), "a second backward outside NoSync before finish()", [&] {
    training.loss_in_order(second).backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  });
}

// The backward of the second step fails.
void train_after_a_failure(Client& client, const Factory& make,
                           const std::function<void(Training&)>& train) {
  Training training(client, {}, make);
  bool fails = false;
  const GradientHook hook = on_gradient_ready(training.parameters()[1], [&](const at::Tensor&) {
    TORCH_CHECK(!fails, "a hook of somebody else fails");
  });
  training.construct();
  training.step();
  fails = true;
  try {
    training.backward();
  } catch (const c10::Error&) {
    fails = false;
  }
  training.abandon();
  train(training);
}

}  // namespace

std::vector<Body> second_backward_bodies(const SynchronizerUnderTest& subject) {
  const auto body = [&](const std::string& what, const std::function<void(Client&)>& run) {
    return Body{"a second backward before finish()" + what, {}, run, subject.charged.errors};
  };
  const auto of_layers = [&](const std::string& what, const Layers& first, const Layers& second,
                             bool complete = false) {
    return body(what, [make = subject.make, first, second, complete](Client& client) {
      Training training(client, {}, make);
      training.construct();
      backward_twice(training, first, second, [&] {
        if (complete) {  // what was launched before this one
          all_reduce(at::ones({1}), make_group(client.shared_from_this()));
        }
      });
    });
  };
  const Layers all = {2, 1, 0};
  return {of_layers("", all, all),
          of_layers(", of the first layer", all, {0}),
          of_layers(", of the layer in the middle", all, {1}),
          of_layers(", each of one layer", {2}, {2}),
          of_layers(" when the first's operations are complete", all, all, true),
          body(", after a backward that failed", [all, make = subject.make](Client& client) {
            train_after_a_failure(client, make, [&](Training& training) {
              training.clear(Clear::kNone);
              backward_twice(training, all, all, [] {});
            });
          })};
}

namespace {

// The synchronizer exists during forward, but no longer during backward.
void destroy_before_backward(Client& client, const Factory& make) {
  Training training(client, {}, make);
  training.construct();
  training.step();
  training.clear(Clear::kNone);
  const at::Tensor loss = training.loss();
  training.destroy();
  client.fact("destroyed", 1);
  try {
    training.backward(loss);
  } catch (const std::exception& error) {
    client.threw("a backward after the synchronizer was destroyed", error.what());
  }
  training.hand_in_local();
  training.hand_in("alone");
}

// Several synchronizers hook the same parameters. Destroying one removes only its own hooks.
void destroy_one_of_two(Client& client, const Factory& make) {
  Training training(client, {}, make);
  training.construct();
  auto second =
      make(client, training.listed(), training.buffers(), make_group(client.shared_from_this()));
  second.reset();
  training.step();
  auto third =
      make(client, training.listed(), training.buffers(), make_group(client.shared_from_this()));
  training.replace_synchronizer(std::move(third));
  training.step();
}

void destroy_many(Client& client, const Factory& make) {
  Training training(client, {}, make);
  training.construct();
  training.step();
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  const HeldMeter held(training.parameters());
  for (int count = 1; count <= 450; ++count) {
    static_cast<void>(make(client, training.listed(), {}, group));
    if (count % 150 == 0) {
      held.count(client);
    }
  }
}

}  // namespace

std::vector<Body> destruction_bodies(const SynchronizerUnderTest& subject) {
  const auto body = [&](const std::string& name, int ranks, RunWith run) {
    return body_of(subject, name, ranks, run, subject.charged.lifetime);
  };
  return {
      body("the synchronizer is destroyed before backward", 2, destroy_before_backward),
      body("the only rank's synchronizer is destroyed before backward", 1, destroy_before_backward),
      body("one of several synchronizers is destroyed", 3, destroy_one_of_two),
      body("450 more synchronizers, one after another", 2, destroy_many)};
}

Body failing_hook_body(const SynchronizerUnderTest& subject) {
  return {subject.form + "a hook of somebody else throws",
          {},
          [make = subject.make](Client& client) {
            train_after_a_failure(client, make, [](Training& training) { training.step(); });
          },
          subject.charged.mean};
}

}  // namespace ddp::testing
