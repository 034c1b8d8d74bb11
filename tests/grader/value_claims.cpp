#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <limits>
#include <set>

#include "grader/calls.h"
#include "grader/compare.h"
#include "grader/training.h"
#include "grader/training_claims.h"
#include "grader/training_evidence.h"

// Claims on what tensors hold.

namespace ddp::testing {

namespace {

using Ranks = std::vector<TrainingOfRank>;

const at::Tensor& local_of(const TrainingOfRank& training, int step, std::int64_t index) {
  return training.steps.at(step)[kLocal].at(index);
}

// The mean over the ranks; undefined if none has a gradient.
at::Tensor mean_of(const Ranks& ranks, int step, std::int64_t index) {
  at::Tensor sum;
  at::ScalarType dtype{};
  for (const TrainingOfRank& training : ranks) {
    if (const at::Tensor& local = local_of(training, step, index); local.defined()) {
      dtype = local.scalar_type();
      sum = sum.defined() ? sum + local : local.to(at::kDouble);
    }
  }
  return sum.defined() ? (sum / static_cast<double>(ranks.size())).to(dtype) : sum;
}

// How far from the mean a result may be however it was rounded: N - 1 additions, a division, and a
// rounding before them.
at::Tensor tolerance_of(const Ranks& ranks, int step, std::int64_t index, at::ScalarType dtype) {
  at::Tensor magnitude = at::zeros({}, at::kDouble);
  for (const TrainingOfRank& training : ranks) {
    if (const at::Tensor& local = local_of(training, step, index); local.defined()) {
      magnitude = magnitude + local.to(at::kDouble).abs();
    }
  }
  const auto size = static_cast<double>(ranks.size());
  const double smallest = dtype == at::kHalf ? 0x1p-24 : std::numeric_limits<float>::min();
  return magnitude / size * ((size + 2) * epsilon_of(dtype)) + smallest;
}

// What it means if a gradient is as it was before communication.
std::string why_local(const TrainingStep& taken, std::int64_t index) {
  const auto of_parameter = std::ranges::find_if(taken.launches(), [&](const Seen* launch) {
    return is_all_reduce(*launch) && launch->text == layer(index);
  });
  return of_parameter == taken.launches().end()
             ? Subject().if_local
             : describe_operation(**of_parameter) + " reduced the parameter, and not its gradient";
}

std::string of_layouts(const Ranks& ranks, int step, std::int64_t index) {
  std::set<std::int64_t> layouts;
  for (const TrainingOfRank& training : ranks) {
    layouts.insert(training.steps.at(step).number(kStridedGradient, index).value_or(0));
  }
  return layouts.size() > 1
             ? "the strides of this gradient differ between the ranks: what is sent in "
               "the order of memory is in another order on each"
             : "";
}

Finding wrong_gradient(const Ranks& ranks, int step, std::int64_t index) {
  const at::Tensor mean = mean_of(ranks, step, index);
  return first_in(ranks, [&](const TrainingOfRank& training) -> Finding {
    const TrainingStep& taken = training.steps.at(step);
    const at::Tensor& gradient = taken[kGradient].at(index);
    const at::Tensor& local = taken[kLocal].at(index);
    const std::string name = in(training, step) + ": the gradient of " + layer(index);
    if (!trainable(training).contains(index)) {
      const std::string frozen = name + ", which was frozen at construction,";
      return said(is_bitwise_equal({frozen}, gradient, local));
    }
    if (!mean.defined()) {
      return gradient.defined() && gradient.ne(0).any().item<bool>()
                 ? Finding(name + ", which no rank has, is neither undefined nor zero")
                       .at(taken.last(kGradient), "wrong gradient")
                 : Finding();
    }
    if (is_identical(gradient, mean)) {
      return "";  // as most are, without a look at tolerances
    }
    const Subject subject{name, static_cast<int>(ranks.size()), local, why_local(taken, index),
                          of_layouts(ranks, step, index)};
    const at::Tensor tolerance = tolerance_of(ranks, step, index, mean.scalar_type());
    Finding text = said(is_close(subject, gradient, mean, tolerance));
    return text.empty() ? text : std::move(text).at(taken.last(kGradient), "wrong gradient");
  });
}

Finding wrong_mean(const Ranks& ranks, int step) {
  return first_in(ranks[0].steps.at(step)[kLocal],
                  [&](const auto& local) { return wrong_gradient(ranks, step, local.first); });
}

// Whether a rank's backward ran inside NoSync in this step.
bool accumulates(const Ranks& ranks, int step) {
  return std::ranges::any_of(ranks, [&](const TrainingOfRank& training) {
    return std::ranges::any_of(ready_in(training.steps.at(step)),
                               [](const Seen* ready) { return ready->place.no_sync; });
  });
}

Finding other_bits(const Ranks& ranks, int step, std::int64_t index) {
  const at::Tensor& first = ranks[0].steps.at(step)[kGradient].at(index);
  for (const TrainingOfRank& training : ranks) {
    const at::Tensor& gradient = training.steps.at(step)[kGradient].at(index);
    if (!first.defined() || !gradient.defined() || !trainable(training).contains(index) ||
        is_identical(gradient, first)) {
      continue;
    }
    const std::string name = in(training, step) + ": the gradient of " + layer(index) +
                             ", compared with rank " + std::to_string(ranks[0].rank) + "'s,";
    // Adding 0 makes -0 one with 0, which no parameter can drift by.
    const Subject subject{name, static_cast<int>(ranks.size())};
    if (auto text = said(is_bitwise_equal(subject, gradient + 0, first + 0)); !text.empty()) {
      const bool means = wrong_gradient(ranks, step, index).empty();
      return means ? std::move(text) : Finding();  // else another claim says so
    }
  }
  return "";
}

// Operations that construction launched.
Events construction_of(const TrainingOfRank& training) {
  Events launches = training.launches();
  std::erase_if(launches,
                [](const Seen* seen) { return seen->place.phase != Phase::kConstruction; });
  return launches;
}

// Why a rank has its own state after construction, by what it launched.
std::string why_own(const TrainingOfRank& training, ValueKey what, std::int64_t index,
                    const at::Tensor& state) {
  const bool sent = std::ranges::any_of(construction_of(training), [&](const Seen* launch) {
    return launch->elements == state.numel() && launch->dtype == state.scalar_type();
  });
  return sent ? "broadcast into a copy, and not written back?" +
                    std::string(training.number(FactKey{kStrided + std::string(what)}, index)
                                    ? " It is not contiguous, so contiguous() makes a copy."
                                    : "")
              : "not broadcast?";
}

// After construction, when what had been `before` is called `what`.
Finding wrong_state(const TrainingOfRank& training, const TrainingOfRank& rank_0, ValueKey before,
                    ValueKey what) {
  return first_in(rank_0[before], [&](const auto& expected) -> Finding {
    const std::int64_t index = expected.first;
    const auto actual = training[what].find(index);
    if (actual == training[what].end()) {
      return "";  // construction threw, as it may have had to
    }
    const std::string name = on(training.rank) + ": after construction " + std::string(what) + " " +
                             std::to_string(index);
    const Subject subject{name, 2, training[before].at(index),
                          why_own(training, what, index, actual->second)};
    return said(is_bitwise_equal(subject, actual->second, expected.second));
  });
}

// Each tensor is sent once; a tied weight may be sent for each use. Where all go in one message, each
// may begin at an address that suits any dtype.
Finding too_much_at_construction(const TrainingOfRank& training) {
  constexpr std::int64_t kAlignment = 16;
  std::int64_t bytes = 0;
  for (const ValueKey state : {kParameter, kBuffer}) {
    for (const auto& [index, tensor] : training[state]) {
      const auto uses =
          state.name == kParameter.name ? std::ranges::count(listed(training), index) : 1;
      const auto size = static_cast<std::int64_t>(tensor.nbytes());
      bytes += (size + kAlignment - 1) / kAlignment * kAlignment * uses;
    }
  }
  std::int64_t sent = 0;
  for (const Seen* launch : construction_of(training)) {
    // What is passed on by messages is received and sent.
    sent += c10d::isP2POp(launch->type) ? 0 : launch->bytes;
  }
  return bytes > 0 && sent > bytes
             ? on(training.rank) + ": construction sent " + std::to_string(sent) +
                   " bytes, and all " + "parameters and buffers are " + std::to_string(bytes) +
                   ", each padded to " + std::to_string(kAlignment) +
                   "; it launched:" + list_of(construction_of(training))
             : "";
}

std::string touched_state(const Seen& fact, int rank) {
  if (const auto when = rest_of(fact.text, kTouchedGradient)) {
    return fact.place.no_sync  // then no_sync_is_silent() says so
               ? ""
               : where(fact, rank) + ": the gradient of " + layer(fact.index) +
                     " has changed after " + *when + ", when it was the caller's";
  }
  const auto state = rest_of(fact.text, "touched ");
  return state ? where(fact, rank) + ": " + *state + " " + std::to_string(fact.index) +
                     " has changed: a synchronizer writes gradients only"
               : "";
}

}  // namespace

Finding state_is_rank_0s(const Evidence& evidence) {
  for (const auto& [model, ranks] : trainings_in(evidence)) {
    bool reduced = false;
    bool due = false;
    for (const TrainingOfRank& training : ranks) {
      Finding text = wrong_state(training, ranks[0], kStart, kParameter);
      text = text.empty() ? wrong_state(training, ranks[0], kInitialBuffer, kBuffer) : text;
      if (!text.empty()) {
        return text;
      }
      if (Finding finding = too_much_at_construction(training); !finding.empty()) {
        return finding;
      }
      for (const auto& [number, step] : training.steps) {
        due = due || (has_ended(step) && std::ranges::any_of(ready_in(step), [](const Seen* ready) {
                        return !ready->place.no_sync;
                      }));
        reduced = reduced || std::ranges::any_of(step.launches(), [](const Seen* launch) {
                    return is_all_reduce(*launch) || is_reduce_scatter(*launch);
                  });
      }
    }
    if (ranks.size() > 1 && due && !reduced) {
      return "construction broadcast the state, but nothing was ever reduced: what it returns must "
             "have hooks on the parameters, or reduce in finish()";
    }
  }
  return first_event(evidence, EventKind::kFact, [](const Seen& fact, int rank) {
    const auto what = rest_of(fact.text, kMoved);
    return what ? on(rank) + ": after construction " + *what + " " + std::to_string(fact.index) +
                      " has another storage: its values must be written into its own"
                : "";
  });
}

Finding state_is_left_alone(const Evidence& evidence) {
  if (!launched_inside_no_sync(evidence).empty()) {
    return "";  // no_sync_is_silent() says so
  }
  Finding touched = first_event(evidence, EventKind::kFact, touched_state);
  return touched.empty() ? surroundings_are_left_alone(evidence) : touched;
}

Finding gradients_are_means(const Evidence& evidence) {
  return reduced_inside_no_sync(evidence) ? "" : first_in_steps(evidence, wrong_mean);
}

Finding accumulated_sums_are_averaged(const Evidence& evidence) {
  if (!misused_in_flight(evidence).empty()) {
    return "";
  }
  bool plain = false;
  const auto check = [&](bool accumulated) {
    return first_in_steps(evidence, [&](const Ranks& ranks, int step) -> Finding {
      if (accumulates(ranks, step) != accumulated) {
        return "";
      }
      plain = plain || !accumulated;
      Finding found = wrong_mean(ranks, step);
      if (!found.empty() && accumulated) {
        found.text +=
            "\n  after micro-batches inside NoSync: expected is the mean of all that "
            "backward has added to the gradient; the steps without NoSync are right";
      }
      return found;
    });
  };
  const bool right = check(/*accumulated=*/false).empty() && plain;
  return right ? check(/*accumulated=*/true) : "";
}

Finding gradients_have_the_same_bits(const Evidence& evidence) {
  if (reduced_inside_no_sync(evidence)) {
    return "";
  }
  return first_in_steps(evidence, [](const auto& ranks, int step) {
    return first_in(ranks[0].steps.at(step)[kLocal],
                    [&](const auto& local) { return other_bits(ranks, step, local.first); });
  });
}

}  // namespace ddp::testing
