#include <ATen/ATen.h>

#include "scenarios.h"

// Evaluation, and modules.

namespace ddp::testing {

namespace {

SyncBatchNormOptions evaluating(double eps = 0.02) { return {.training = false, .eps = eps}; }

// A forward and backward in evaluation. Each rank has other statistics and, unless the options say
// so, another number of samples: no rank may depend on another.
void evaluate(Uses& uses, UseOptions options) {
  options.mode = evaluating();
  for (int rank = 0; rank < uses.client().world().ranks && options.rows.size() < 8; ++rank) {
    options.rows.push_back(options.shape[0] + 2 * rank);
  }
  Use& use = *uses.add(options);
  if (use.tensors.running_mean.defined()) {
    use.tensors.running_mean.add_(uses.client().rank());
  }
  use.run();
}

using Dtypes = std::vector<at::ScalarType>;
const Dtypes kWideDtypes = {at::kFloat, at::kDouble};
const Dtypes kNarrowDtypes = {at::kHalf, at::kBFloat16};

// With running statistics, or those of the rank's own batch.
void evaluations(Uses& uses, const Dtypes& dtypes) {
  for (const at::ScalarType dtype : dtypes) {
    const auto of_tensors = dtype == at::kHalf ? at::kFloat : dtype;
    for (const bool running : {true, false}) {
      for (const Shape& shape : shapes()) {
        evaluate(uses, {.shape = shape,
                        .dtype = dtype,
                        .of_weight = of_tensors,
                        .of_bias = of_tensors,
                        .running = running});
        if (dtype == at::kFloat) {
          evaluate(uses, {.shape = shape, .dtype = dtype, .running = running, .graph = false});
        }
      }
      for (const Wanted wanted : {kInput, kWeight, kBias}) {
        evaluate(uses, {.dtype = dtype, .running = running, .wants = wanted});
      }
    }
    if (dtype != at::kDouble) {  // float32 statistics have not a double's digits
      evaluate(uses, {.dtype = dtype, .of_weight = at::kFloat, .of_bias = dtype, .graph = false});
    }
  }
}

void evaluations_without_some(Uses& uses, const Dtypes& dtypes) {
  for (const at::ScalarType dtype : dtypes) {
    for (const bool running : {true, false}) {
      for (int present = 0; present < 3; ++present) {
        evaluate(
            uses,
            {.dtype = dtype, .weight = present == 1, .bias = present == 2, .running = running});
      }
      for (int repeat = 0; repeat < 2; ++repeat) {
        evaluate(uses, {.dtype = dtype,
                        .weight = false,
                        .bias = false,
                        .running = running,
                        .wants = kWeight | kBias,
                        .graph = false,
                        .note = "without a graph"});
      }
    }
  }
}

void evaluations_of_nothing(Uses& uses, const Dtypes& dtypes) {
  for (const at::ScalarType dtype : dtypes) {
    evaluate(uses, {.shape = {0, 3, 2}, .rows = Shape(8, 0), .dtype = dtype});
    // Statistics of nothing are no numbers, and so may be what is multiplied by them.
    evaluate(uses, {.shape = {0, 3, 2},
                    .rows = Shape(8, 0),
                    .dtype = dtype,
                    .weight = false,
                    .bias = false,
                    .running = false});
  }
}

void evaluations_of_edge_cases(Uses& uses, const Dtypes& dtypes) {
  evaluations_without_some(uses, dtypes);
  evaluations_of_nothing(uses, dtypes);
}

void every_evaluation(Uses& uses) {
  for (const Dtypes& dtypes : {kWideDtypes, kNarrowDtypes}) {
    evaluations(uses, dtypes);
    evaluations_of_edge_cases(uses, dtypes);
  }
}

// As by a broadcast from rank 0, of which autograd knows nothing.
void statistics_are_loaded(Uses& uses) {
  Use& first = *uses.add({.mode = evaluating()});
  first.run();
  Use& second = *uses.add({.mode = evaluating(), .note = "statistics loaded between evaluations"});
  first.tensors.running_mean.variable_data().add_(3);
  first.tensors.running_var.variable_data().mul_(2);
  uses.client().fact(kCallerChanges, 1);
  second.replace_tensors(first.tensors);
  second.run();
}

// What backward needs of the statistics is as it was in forward.
void statistics_change(Uses& uses) {
  const std::string what =
      "the caller changed running_mean and running_var after forward; backward must not need them";
  for (const at::ScalarType dtype : kWideDtypes) {
    Use& use = *uses.add({.dtype = dtype, .mode = evaluating(), .note = what});
    use.forward();
    use.tensors.running_mean.add_(3);
    use.tensors.running_var.mul_(2);
    uses.client().fact(kCallerChanges, 1);
    try {
      use.backward();
    } catch (const c10::Error& error) {
      TORCH_CHECK(false, what, " (keep copies): ", error.what_without_backtrace());
    }
  }
}

// No update, not even by 0 times the batch.
void evaluates_not_a_number(Uses& uses) {
  uses.run({.mode = evaluating(), .nan = true, .wants = kWeight | kBias});
}

void one_rank_evaluates(Uses& uses) {
  if (uses.client().rank() == 0) {
    const NormModule module = uses.module({.num_features = 3});
    module->eval();
    uses.run({}, module);
    uses.run({.shape = {1, 3}}, module);
    uses.run({.shape = {0, 3, 4}}, module);
    uses.run({.mode = evaluating()});
    uses.run({.running = false, .mode = evaluating()});
  }
}

// --- Modules ---

void evaluate(Uses& uses, const NormModule& module, const UseOptions& options) {
  module->eval();
  uses.run(options, module);
  module->train();
}

// Holds a layer as a model does.
class Parent : public torch::nn::Module {
 public:
  explicit Parent(const NormModule& module) {
    register_module("norm", std::static_pointer_cast<BatchNorm>(module));
  }
};

// Its tensors will have changed at the end.
void run_before_conversion(Uses& uses, const NormModule& module) {
  Use& use = *uses.add({.shape = {5, 4}}, module);
  use.run();
  use.output.reset();
}

// The names of its state after a step, and those that it must have.
void tell_state(Uses& uses, const BatchNormOptions& options, const std::string& due) {
  const NormModule module = uses.module(options);
  run_before_conversion(uses, module);
  module->to(at::kHalf);
  std::string names;
  const auto add = [&](const auto& tensor) {
    names += tensor.key() + (tensor->scalar_type() == at::kHalf ? " " : ", not in half, ");
  };
  for (const auto& parameter : Parent(module).named_parameters()) {
    add(parameter);
  }
  for (const auto& buffer : Parent(module).named_buffers()) {
    add(buffer);
  }
  uses.client().threw("state: " + due, names);
}

void module_steps(Uses& uses, const std::optional<double>& momentum) {
  const at::ScalarType dtype = momentum ? at::kFloat : at::kDouble;  // also the counter's
  const NormModule module =
      uses.module({.num_features = 4, .eps = 0.3, .momentum = momentum}, dtype);
  evaluate(uses, module, {.shape = {3, 4}, .dtype = dtype});
  int step = 0;
  for (const Shape& shape :
       std::vector<Shape>{{9, 4}, {6, 4, 1}, {5, 4, 2, 2}, {8, 4, 1, 1, 1}, {6, 4}, {6, 4}}) {
    uses.run({.shape = shape,
              .dtype = dtype,
              .mean = 0.5 + step,
              .note = "step " + std::to_string(step) + " with momentum " +
                      (momentum ? std::to_string(*momentum) : "none")},
             module);
    ++step;
    evaluate(uses, module, {.shape = {3, 4}, .dtype = dtype});
    evaluate(uses, module, {.shape = {3, 4}, .dtype = dtype, .graph = false});
  }
  uses.run({.shape = {5, 4}, .dtype = dtype, .wants = kWeight | kBias}, module);
  uses.run({.shape = {5, 4}, .dtype = dtype, .graph = false}, module);
  module->num_batches_tracked.fill_(70);  // from a file
  module->running_mean.fill_(3);
  uses.run({.shape = {5, 4}, .dtype = dtype}, module);
  uses.run({.shape = {5, 4}, .dtype = dtype}, module);
  module->eval();
  for (const double mean : {1, 2}) {
    module->running_mean.fill_(mean);  // from a file, again
    module->running_var.fill_(3 * mean);
    uses.run({.shape = {5, 4}, .dtype = dtype}, module);
  }
}

const BatchNormOptions kBare = {
    .num_features = 4, .momentum = std::nullopt, .affine = false, .track_running_stats = false};

void bare_modules(Uses& uses) {
  tell_state(uses, kBare, "");
  for (const bool affine : {true, false}) {
    BatchNormOptions options = kBare;
    options.affine = affine;
    options.track_running_stats = !affine;
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const NormModule module = uses.module(options, dtype);
      for (int step = 0; step < 2; ++step) {
        uses.run({.shape = {5, 4, 3}, .dtype = dtype}, module);
        evaluate(uses, module, {.shape = {6, 4}, .dtype = dtype});
      }
    }
  }
}

void use_modules(Uses& uses) {
  tell_state(uses, {.num_features = 4},
             "norm.weight norm.bias norm.running_mean norm.running_var norm.num_batches_tracked ");
  for (const std::optional<double> momentum :
       {std::optional(0.25), std::optional(0.0), std::optional<double>()}) {
    module_steps(uses, momentum);
  }
  const NormModule switched = uses.module({.num_features = 4});
  Use& use = *uses.add({.shape = {5, 4}, .note = "eval() before backward"}, switched);
  use.forward();
  switched->eval();
  use.backward();
  const NormModule frozen = uses.module({.num_features = 4});
  frozen->weight.set_requires_grad(false);
  frozen->bias.set_requires_grad(false);
  uses.run({.shape = {5, 4}, .wants = kWeight | kBias}, frozen);
  const NormModule converted = uses.module({.num_features = 4});
  run_before_conversion(uses, converted);
  converted->to(at::kDouble);
  uses.run({.shape = {5, 4}, .dtype = at::kDouble, .note = "a module that has been converted"},
           converted);
}

// One normalizes over both ranks, one over its own alone.
Scenario modules_of_two_groups(const std::string& test) {
  Scenario scenario = scenario_of("modules of two groups", 2, test, [](Uses& uses) {
    const auto own = static_cast<GroupIndex>(1 + uses.client().rank());
    const NormModule of_both = uses.module({.num_features = 4});
    const NormModule of_one = uses.module({.num_features = 4}, at::kFloat, own);
    for (const GroupIndex group : {0, 1, 2, 0}) {
      uses.run({.shape = {5, 4}, .group = group}, group == 0 ? of_both : of_one);
    }
  });
  scenario.world.subgroups = {{0}, {1}};
  scenario.edge_cases.insert(kGroups);
  return scenario;
}

}  // namespace

std::vector<Scenario> evaluation() {
  const char* const test = "evaluation_is_local_and_changes_nothing";
  const char* const values = "evaluation_has_the_right_output_and_gradients";
  const auto some = [&](const std::string& name, void (*run)(Uses&, const Dtypes&),
                        const Dtypes& dtypes) {
    return with_ranks({2}, name, values, [run, dtypes](Uses& uses) { run(uses, dtypes); });
  };
  return joined({some("evaluation", evaluations, kWideDtypes),
                 some("evaluation without some tensors", evaluations_without_some, kWideDtypes),
                 some("evaluation of no samples", evaluations_of_nothing, kWideDtypes),
                 some("evaluation in half", evaluations, kNarrowDtypes),
                 some("more evaluation in half", evaluations_of_edge_cases, kNarrowDtypes),
                 with_ranks({1}, "evaluation", values, every_evaluation),
                 with_ranks({2}, "statistics change after forward", test, statistics_change),
                 with_ranks({2}, "statistics are loaded", test, statistics_are_loaded),
                 with_ranks({2}, "evaluation of a NaN", test, evaluates_not_a_number),
                 with_ranks({2}, "one rank evaluates", test, one_rank_evaluates)});
}

std::vector<Scenario> modules() {
  const char* const test = "module_keeps_the_state_of_batch_norm";
  return joined({with_ranks({2, 1}, "modules", test, use_modules),
                 with_ranks({2}, "modules without some tensors", test, bare_modules),
                 {modules_of_two_groups(test)}});
}

}  // namespace ddp::testing
