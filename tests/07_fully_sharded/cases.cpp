#include "cases.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "ddp/flat_layout.h"

namespace ddp::testing {

namespace {

constexpr std::int64_t kWidth = 6;

const std::vector<UnitShape> kFive = {
    {{{9}}}, {{{20}, {3}}}, {{{6, 6}}}, {{{50}, {2}}}, {{{4, 20}, {1}}}};
const std::vector<UnitShape> kLinear = {{{{kWidth, kWidth}, {kWidth}}},
                                        {{{kWidth, kWidth}}},
                                        {{{kWidth, kWidth}, {kWidth}}},
                                        {{{kWidth, kWidth}, {kWidth}}}};
const Pass kAll = {.uses = {0, 1, 2}};
const FullyShardedOptions kKept = {.prefetch = 1, .keep_last = true};

// With 0 units gathered ahead, and 1, 2, and more than there are.
std::vector<Case> ahead(const Case& one) {
  std::vector<Case> all;
  for (const int prefetch : {1, 0, 2, 9}) {
    all.push_back(one);
    all.back().options.prefetch = prefetch;
    all.back().name += ", prefetch " + std::to_string(prefetch);
  }
  return all;
}

std::vector<Case> make_cases() {
  std::vector<Case> all;
  const auto add = [&](const std::vector<Case>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  const std::vector<Step> five = steps_of(2, {{.uses = {0, 1, 2, 3, 4}}});
  add(ahead({.name = "three units"}));
  add(ahead({.name = "five units, four ranks", .ranks = 4, .units = kFive, .steps = five}));
  add({{.name = "the last unit is kept",
        .ranks = 3,
        .units = kFive,
        .steps = five,
        .options = kKept},
       {.name = "the last unit is kept, prefetch 0",
        .units = kFive,
        .steps = five,
        .options = {.prefetch = 0, .keep_last = true}},
       {.name = "a single unit",
        .units = {three_units()[0]},
        .steps = steps_of(3, {{.uses = {0}}})},
       {.name = "one rank", .ranks = 1, .edge_cases = {kOneRank}},
       {.name = "float64, five ranks",
        .ranks = 5,
        .units = kFive,
        .steps = five,
        .dtype = at::kDouble,
        .edge_cases = {kDtype}},
       {.name = "bfloat16", .dtype = at::kBFloat16, .edge_cases = {kDtype}},
       {.name = "the largest prefetch there is",
        .steps = steps_of(1, {kAll}),
        .options = {.prefetch = std::numeric_limits<int>::max()},
        .charged_to = "gathers_come_in_the_order_of_use",
        .edge_cases = {"a prefetch to which nothing can be added"}},
       {.name = "linear layers",
        .ranks = 3,
        .units = kLinear,
        .steps = steps_of(3, {{.uses = {0, 1, 2, 3}}}),
        .real_layers = true},
       {.name = "a tied weight in a unit",
        .ranks = 3,
        .units = {{{{5, 3}, {4}}, true}, {{{7}}}, {{{3, 3}, {5}}, true}},
        .edge_cases = {kTied}},
       {.name = "parameters of 0, 1 and few elements",
        .ranks = 4,
        .units = {{{{1}}}, {{{0}, {2}}}, {{{3}, {0, 5}}}},
        .edge_cases = {kEmpty}},
       {.name = "parameters that are not contiguous",
        .ranks = 3,
        .units = {{{{5, 3}, {4}}, false, true}, {{{7}}}, {{{3, 4}, {2, 6}}, false, true}},
        .edge_cases = {kStridedState}},
       {.name = "a group in another order",
        .ranks = 3,
        .edge_cases = {kGroups},
        .group = 1,
        .subgroups = {{2, 0, 1}}}});
  const auto odd = [&](const std::string& name, const std::vector<Pass>& passes) {
    add(ahead({.name = name, .steps = steps_of(3, passes)}));
  };
  odd("a unit that nobody uses", {{.uses = {0, 2}}});
  odd("the last unit is not used", {{.uses = {0, 1}}});
  odd("a unit is used twice", {{.uses = {0, 1, 0, 2}}});
  odd("a unit is used twice in a row", {{.uses = {0, 1, 1, 2}}});
  odd("units from the last to the first", {{.uses = {2, 1, 0}}});
  const Pass evaluation = {.uses = {0, 1, 2}, .how = How::kNoGrad};
  odd("without autograd first", {evaluation, kAll});
  odd("without autograd at the end", {kAll, {.uses = {0, 1}, .how = How::kNoGrad}});
  odd("a checkpoint around each unit", {{.uses = {0, 1, 2}, .how = How::kCheckpoint}});
  add({{.name = "results that require no gradient",
        .steps = steps_of(3, {{.uses = {0, 1, 2}, .how = How::kDetached}, kAll})}});
  odd("a function throws", {{.uses = {0, 1}, .how = How::kThrows}, kAll});
  odd("a forward without backward", {{.uses = {0, 1, 2}, .how = How::kForwardOnly}, kAll});
  odd("two backwards in a step", {kAll, kAll});
  add({{.name = "the kept unit is evaluated, too",
        .steps = steps_of(3, {evaluation, kAll}),
        .options = kKept}});
  add({{.name = "another model, which is inside NoSync, and destroyed before the last step",
        .charged_to = "each_use_is_gathered_and_each_gradient_reduced_once",
        .edge_cases = {kSeveral},
        .another = true}});
  Case kept{.name = "gradients are not cleared"};
  kept.steps[0].clears = kept.steps[1].clears = false;
  Case alone = kept;
  alone.name = "one rank, and gradients are not cleared";
  alone.ranks = 1;
  alone.edge_cases = {kOneRank};
  add({kept, alone});

  const char* const no_sync = "gradients_accumulate_inside_no_sync";
  const Pass inside = {.uses = {0, 1, 2}, .no_sync = true};
  for (const int prefetch : {1, 0}) {
    const auto accumulating = [&](const std::string& name, int ranks,
                                  const std::vector<Step>& steps) {
      add({{.name = "NoSync: " + name + ", prefetch " + std::to_string(prefetch),
            .ranks = ranks,
            .steps = steps,
            .options = {.prefetch = prefetch},
            .charged_to = no_sync}});
    };
    accumulating("two micro-batches", 2, steps_of(3, {inside, kAll}));
    accumulating("all micro-batches inside", 3, steps_of(2, {inside, inside}));
    accumulating("the last backward reaches other units", 2,
                 steps_of(3, {{.uses = {0, 1}, .no_sync = true}, {.uses = {1, 2}}}));
    accumulating("a scope around a backward alone, then around a forward", 2,
                 steps_of(2, {{.uses = {0, 1, 2}, .no_sync = true, .scope_turns = true},
                              {.uses = {0, 1, 2}, .scope_turns = true}}));
  }
  Pass with_inner = inside;
  with_inner.inner_scope = true;
  add({{.name = "NoSync: a scope within a scope",
        .steps = steps_of(2, {with_inner, kAll}),
        .charged_to = no_sync,
        .edge_cases = {"nested NoSync scopes"}}});
  const auto clipped = [&](double max_norm, Case one) {
    one.charged_to = "the_norm_is_over_all_shards";
    for (Step& step : one.steps) {
      step.max_norm = max_norm;
    }
    add({one});
  };
  for (const double max_norm : {0.5, 1e6}) {
    const std::string name = max_norm < 1 ? "clipped" : "too small to be clipped";
    clipped(max_norm, {.name = name, .units = kFive, .steps = five});
    clipped(max_norm, {.name = name + ", with a unit that nobody uses",
                       .steps = steps_of(3, {{.uses = {0, 2}}})});
  }
  clipped(0.5, {.name = "clipped, gradients whose squares overflow float32",
                .edge_cases = {"gradients of 1e24"},
                .loss_scale = 1e24});
  clipped(1e-6, {.name = "clipped, gradients that are hardly larger than 1e-6",
                 .dtype = at::kDouble,
                 .edge_cases = {"gradients of 1e-6"},
                 .loss_scale = 1e-7});
  return all;
}

}  // namespace

std::vector<UnitShape> three_units() { return {{{{5, 3}, {4}}}, {{{7}}}, {{{5, 5}, {1}, {3}}}}; }

std::vector<Step> steps_of(int count, const std::vector<Pass>& passes) {
  return std::vector<Step>(count, Step{.passes = passes});
}

int ranks_of(const Case& one) {
  return one.group == 0 ? one.ranks : static_cast<int>(one.subgroups[0].size());
}

Bytes bytes_of(const Case& one, std::size_t unit) {
  const FlatLayout layout(parameters_of(one, 0)[unit], ranks_of(one), "unit");
  const auto size = static_cast<std::int64_t>(c10::elementSize(one.dtype));
  return {layout.padded_elements() / ranks_of(one) * size, layout.padded_elements() * size};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = make_cases();
  return all;
}

bool is_determined(const Case& one) {
  std::set<std::int64_t> sizes;
  for (std::size_t i = 0; i < one.units.size(); ++i) {
    sizes.insert(bytes_of(one, i).shard);
  }
  if (sizes.size() < one.units.size()) {
    return false;  // the network sees no unit's name
  }
  return one.options.prefetch == 0 || std::ranges::all_of(one.steps, [&](const Step& step) {
           return std::ranges::all_of(step.passes, [&](const Pass& pass) {
             const bool all = pass.uses.size() == one.units.size();
             return (pass.how == How::kTrain || (pass.how == How::kNoGrad && all)) &&
                    std::ranges::adjacent_find(pass.uses, std::greater_equal()) == pass.uses.end();
           });
         });
}

bool gathers_in_vain(const Case& one) {
  return one.options.prefetch > 0 && std::ranges::any_of(one.steps, [&](const Step& step) {
           return std::ranges::any_of(
               step.passes, [&](const Pass& pass) { return pass.uses.size() != one.units.size(); });
         });
}

const std::vector<RankSaid>& ranks_in(const Evidence& evidence) {
  const auto by_model = [](const Evidence& all) {
    return parts_of(
        all, [](const Seen& seen) { return seen.place.model; }, [](const Said&) { return true; });
  };
  return sorted_once<Parts>(evidence, by_model).at(0);
}

const Case& case_of(const Evidence& evidence) {
  return cases().at(ranks_in(evidence).at(0).number(kCase).value());
}

bool accumulates(const Case& one) {
  return std::ranges::any_of(
      one.steps, [](const Step& step) { return std::ranges::any_of(step.passes, &Pass::no_sync); });
}

bool clips(const Case& one) {
  return std::ranges::any_of(one.steps, [](const Step& step) { return step.max_norm > 0; });
}

std::vector<std::vector<at::Tensor>> parameters_of(const Case& one, int rank) {
  std::vector<std::vector<at::Tensor>> units;
  double next = 0.3 + rank;
  for (const UnitShape& unit : one.units) {
    std::vector<at::Tensor>& parameters = units.emplace_back();
    for (const auto& shape : unit.shapes) {
      const auto count = c10::multiply_integers(shape);
      const auto options = at::TensorOptions(at::kDouble);
      at::Tensor values = at::arange(count, options).mul(0.7).add(next).sin().div(2 + count);
      values = values.view(shape).to(one.dtype);
      values = unit.strided && shape.size() == 2 ? values.t().contiguous().t() : values;
      parameters.push_back(values.set_requires_grad(true));
      next += 1.1;
    }
    if (unit.tied) {
      parameters.push_back(parameters[0]);
    }
  }
  return units;
}

at::Tensor input_of(const Case& one, int rank, int step, std::size_t pass) {
  const double first = 0.2 + 0.37 * rank + 0.11 * step + 0.23 * static_cast<double>(pass);
  const at::Tensor x = at::arange(kWidth, at::kDouble).mul(0.4).add(first).cos().to(one.dtype);
  return one.real_layers ? x.view({1, kWidth}) : x;
}

at::Tensor loss_of(const at::Tensor& output, double scale) {
  const at::Tensor factors = at::arange(1, kWidth + 1, output.options().requires_grad(false));
  return (output * factors.view_as(output)).sum() * scale;
}

at::Tensor compute(const Case& one, const at::Tensor& x,
                   const std::vector<at::Tensor>& parameters) {
  if (one.real_layers) {
    at::Tensor y = at::mm(x, parameters[0].t());
    return x + (parameters.size() > 1 ? y + parameters[1] : y).tanh();
  }
  at::Tensor sum = at::ones({}, x.options().requires_grad(false));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor flat = parameters[i].reshape({-1});
    const at::Tensor factors = at::arange(1, flat.numel() + 1, x.options().requires_grad(false)) *
                               (0.5 + static_cast<double>(i));
    sum = sum + (flat * flat * factors).sum() + (flat * factors).sum() / (1 + flat.numel());
  }
  return x + (x * sum).tanh() / 2;
}

}  // namespace ddp::testing
