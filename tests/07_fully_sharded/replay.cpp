#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "claims.h"
#include "ddp/flat_layout.h"
#include "grader/compare.h"
#include "grader/norm.h"
#include "grader/training_evidence.h"

// What an unsharded model computes, and whether the ranks have it.

namespace ddp::testing {

namespace {

at::Tensor flat_of(const std::vector<at::Tensor>& parameters) {
  return FlatLayout(parameters, 1, "unit").flatten(parameters);
}

// Undefined if no backward reached the unit.
at::Tensor flat_gradient(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  bool any = false;
  for (const at::Tensor& parameter : parameters) {
    any = any || parameter.grad().defined();
    gradients.push_back(parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter));
  }
  if (!any) {
    return {};
  }
  // Tied parameters share a gradient, and so a place.
  return FlatLayout(parameters, 1, "unit").flatten(gradients);
}

// What one process computes that trains with the mean of all ranks' gradients. Flat, by unit.
struct OfStep {
  std::vector<std::vector<at::Tensor>> outputs;  // by pass and rank; undefined if it throws
  std::vector<at::Tensor> gradients;             // undefined if no backward reached the unit
  std::vector<at::Tensor> last;                  // what the last backward that did has added
  double norm = 0;
  std::vector<at::Tensor> parameters;  // at the end
};

class Unsharded {
 public:
  explicit Unsharded(const Case& one)
      : case_(one), ranks_(ranks_of(one)), units_(parameters_of(one, first())) {}

  OfStep step(int number) {
    OfStep result;
    const Step& step = case_.steps[number];
    result.last.resize(units_.size());
    for (std::size_t place = 0; place < step.passes.size(); ++place) {
      const std::vector<at::Tensor> before = gradients();
      result.outputs.emplace_back();
      for (int rank = 0; rank < case_.ranks; ++rank) {
        result.outputs.back().push_back(pass(step.passes[place], rank, number, place));
      }
      const std::vector<at::Tensor> now = gradients();
      for (std::size_t i = 0; i < units_.size(); ++i) {
        if (now[i].defined() && !(before[i].defined() && now[i].equal(before[i]))) {
          result.last[i] = before[i].defined() ? now[i] - before[i] : now[i];
        }
      }
    }
    double squares = 0;
    result.gradients = gradients();
    for (const at::Tensor& gradient : result.gradients) {
      if (gradient.defined()) {
        squares += gradient.to(at::kDouble).square().sum().item<double>();
      }
    }
    result.norm = std::sqrt(squares);
    update(step, result);
    return result;
  }

 private:
  // Of all units, the means over the ranks.
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const auto& parameters : units_) {
      const at::Tensor gradient = flat_gradient(parameters);
      all.push_back(gradient.defined() ? gradient / ranks_ : gradient);
    }
    return all;
  }

  // The rank in the world whose values count.
  int first() const { return case_.group == 0 ? 0 : case_.subgroups[0][0]; }

  at::Tensor pass(const Pass& pass, int rank, int number, std::size_t place) {
    at::Tensor x = input_of(case_, rank, number, place);
    for (const std::size_t unit : pass.uses) {
      x = compute(case_, x, units_[unit]);
    }
    if (pass.how == How::kTrain || pass.how == How::kCheckpoint) {
      loss_of(x, case_.loss_scale).backward();
    }
    return pass.how == How::kThrows ? at::Tensor() : x.detach();
  }

  void update(const Step& step, OfStep& result) {
    const at::NoGradGuard no_grad;
    const double scale =
        step.max_norm > 0 ? std::min(1.0, step.max_norm / (result.norm + 1e-6)) : 1;
    for (std::vector<at::Tensor>& parameters : units_) {
      std::vector<const c10::TensorImpl*> done;
      for (at::Tensor& parameter : parameters) {
        const bool tied = std::ranges::count(done, parameter.unsafeGetTensorImpl()) > 0;
        done.push_back(parameter.unsafeGetTensorImpl());
        if (!tied && parameter.grad().defined()) {
          parameter.sub_(parameter.grad(), kRate * scale / ranks_);
        }
        if (step.clears) {
          parameter.mutable_grad().reset();
        }
      }
      result.parameters.push_back(flat_of(parameters));
    }
  }

  const Case& case_;
  const int ranks_;
  std::vector<std::vector<at::Tensor>> units_;
};

const std::vector<OfStep>& replayed(const Case& one) {
  static std::map<std::string, std::vector<OfStep>> all;
  const auto [place, is_new] = all.try_emplace(one.name);
  if (is_new) {
    Unsharded unsharded(one);
    for (std::size_t step = 0; step < one.steps.size(); ++step) {
      place->second.push_back(unsharded.step(static_cast<int>(step)));
    }
  }
  return place->second;
}

// A rank's chunk of a flat tensor, padded with zeros.
at::Tensor chunk_of(const at::Tensor& flat, std::int64_t ranks, std::int64_t place) {
  const std::int64_t chunk = (flat.numel() + ranks - 1) / ranks;
  at::Tensor padded = at::zeros({chunk * ranks}, flat.options());
  padded.narrow(0, 0, flat.numel()).copy_(flat);
  return padded.narrow(0, place * chunk, chunk);
}

// A unit's chunk on a rank, and the number of ranks.
struct Owner {
  std::int64_t ranks;
  std::int64_t place;
};

Owner owner_of(const Evidence& evidence, const Case& one, int rank) {
  const std::vector<int> members = members_of(evidence.world, one.group);
  return {static_cast<std::int64_t>(members.size()),
          std::ranges::find(members, rank) - members.begin()};
}

double tolerance_of(const Case& one, const at::Tensor& expected) {
  const double epsilon = one.dtype == at::kDouble     ? 1e-13
                         : one.dtype == at::kBFloat16 ? 0.02
                                                      : 1e-5;
  return epsilon * (1 + (expected.numel() == 0 ? 0 : expected.abs().max().item<double>()));
}

Finding difference(const Case& one, const std::string& name, const at::Tensor& actual,
                   const at::Tensor& expected, int ranks) {
  if (!expected.defined() || !actual.defined()) {
    return actual.defined() == expected.defined() ? ""
           : actual.defined() ? name + " is there, and no backward has reached the unit"
                              : name + " is undefined";
  }
  if (actual.sizes() != expected.sizes()) {
    return name + " has " + std::to_string(actual.numel()) + " elements, and should have " +
           std::to_string(expected.numel());
  }
  const Subject subject{.name = name, .world_size = ranks};
  return said(is_close(subject, actual, expected, tolerance_of(one, expected)));
}

std::string unit(std::int64_t index) { return " of unit " + std::to_string(index); }

// What else is known of a gradient that is wrong. `last`: what the last backward has added to it.
std::string why_wrong(const Evidence& evidence, const Case& one, const Seen& gradient, int rank,
                      const at::Tensor& last) {
  const auto unit = static_cast<std::size_t>(gradient.index);
  const auto [times, due] = reductions_of(evidence, rank, gradient.place.step, unit);
  if (times != due) {
    return "\n  unit " + std::to_string(unit) + " was reduced " + how_often(times) +
           " in this step; it is due " + how_often(due);
  }
  const bool is_last = last.defined() && gradient.value.defined() &&
                       last.sizes() == gradient.value.sizes() &&
                       is_close({}, gradient.value, last, tolerance_of(one, last));
  return is_last ? "\n  it is the last backward's alone: overwritten, and not added to?" : "";
}

Finding wrong_value(const Evidence& evidence, const Case& one, const Seen& seen, int rank) {
  const OfStep& step = replayed(one).at(seen.place.step);
  const Owner owner = owner_of(evidence, one, rank);
  const int ranks = static_cast<int>(owner.ranks);
  const auto of_chunk = [&](const std::vector<at::Tensor>& flat) {
    const at::Tensor& whole = flat.at(seen.index);
    return whole.defined() ? chunk_of(whole, owner.ranks, owner.place) : whole;
  };
  if (seen.text == kOutput.name) {
    return difference(one, where(seen, rank) + ": the output of pass " + std::to_string(seen.index),
                      seen.value, step.outputs.at(seen.index).at(rank), ranks);
  }
  if (seen.text == kGradient.name) {
    const at::Tensor expected = of_chunk(step.gradients);
    Finding found = difference(
        one, where(seen, rank) + ": after finish() the gradient of the shard" + unit(seen.index),
        seen.value, expected, ranks);
    if (!found.empty()) {
      found.text += why_wrong(evidence, one, seen, rank, of_chunk(step.last));
    }
    return found;
  }
  const std::string name =
      where(seen, rank) + ": after the optimizer's step the shard" + unit(seen.index);
  const at::Tensor expected = of_chunk(step.parameters);
  const std::int64_t elements = step.parameters.at(seen.index).numel();
  const std::int64_t own =
      std::clamp<std::int64_t>(elements - owner.place * expected.numel(), 0, expected.numel());
  const bool fits = seen.value.defined() && seen.value.sizes() == expected.sizes();
  return fits ? difference(one, name, seen.value.narrow(0, 0, own), expected.narrow(0, 0, own),
                           ranks)
              : Finding(name + " is no flat tensor of " + std::to_string(expected.numel()) +
                        " elements");
}

}  // namespace

Finding shards_are_rank_0s(const Evidence& evidence) {
  const Case& one = case_of(evidence);
  const int first = members_of(evidence.world, one.group)[0];
  Finding changed = first_event(evidence, kGivenChanged, [](const Seen& seen, int rank) {
    return on(rank) + ": construction has written to parameter " + std::to_string(seen.number) +
           unit(seen.index) + ", which it is to read alone";
  });
  if (!changed.empty()) {
    return changed;
  }
  return first_event(evidence, kInitialShard, [&](const Seen& seen, int rank) -> Finding {
    const std::string name = on(rank) + ": after construction the shard" + unit(seen.index);
    if (!seen.value.defined()) {
      return name + " is not there, or no flat leaf tensor that requires a gradient";
    }
    const Owner owner = owner_of(evidence, one, rank);
    const std::vector<at::Tensor> parameters = parameters_of(one, first).at(seen.index);
    return said(is_bitwise_equal({name}, seen.value,
                                 chunk_of(flat_of(parameters), owner.ranks, owner.place)));
  });
}

Finding values_are_the_unsharded_models(const Evidence& evidence) {
  const Case& one = case_of(evidence);
  return first_event(evidence, EventKind::kValue, [&](const Seen& seen, int rank) -> Finding {
    const bool known =
        seen.text == kOutput.name || seen.text == kGradient.name || seen.text == kShard.name;
    return known && seen.place.step >= 0 ? wrong_value(evidence, one, seen, rank) : Finding();
  });
}

Finding norm_is_that_of_all_units(const Evidence& evidence) {
  const Case& one = case_of(evidence);
  return first_event(evidence, kReturnedNorm, [&](const Seen& seen, int rank) -> Finding {
    const Owner owner = owner_of(evidence, one, rank);
    std::vector<double> squares(owner.ranks);
    for (const at::Tensor& gradient : replayed(one).at(seen.place.step).gradients) {
      for (std::int64_t place = 0; place < owner.ranks && gradient.defined(); ++place) {
        const at::Tensor chunk = chunk_of(gradient, owner.ranks, place).to(at::kDouble);
        squares[place] += chunk.square().sum().item<double>();
      }
    }
    const std::string text = wrong_norm(seen.value.item<double>(), squares, owner.place, 1e-4,
                                        "the gradients of all units together");
    return text.empty() ? "" : where(seen, rank) + ": " + text;
  });
}

}  // namespace ddp::testing
