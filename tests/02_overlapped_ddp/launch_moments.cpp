#include "launch_moments.h"

#include <algorithm>
#include <set>

#include "support/claim_tools.h"

namespace ddp::testing {

namespace {

bool in_backward(const Seen& seen) {
  return seen.place.phase == Phase::kBackward && !seen.place.no_sync;
}

// What was happening when an operation was launched.
std::string moment(const Seen& launch) {
  if (launch.place.phase == Phase::kFinish) {
    return "in finish()";
  }
  return launch.place.ready < 0 ? "before any gradient was ready"
                                : "when the gradient of layer " +
                                      std::to_string(launch.place.ready) + " was the latest";
}

std::string story(const std::vector<const Seen*>& launches) {
  return list_of(launches, [](const Seen& launch) { return " was launched " + moment(launch); });
}

std::string wrong_moment(const TrainingOfRank& training, int number, const TrainingStep& step) {
  for (const Seen* ready : step.ready) {
    if (!in_backward(*ready)) {
      continue;
    }
    std::vector<const Seen*> own;
    std::ranges::copy_if(step.launches, std::back_inserter(own), [&](const Seen* launch) {
      return in_backward(*launch) && launch->place.ready == ready->index;
    });
    const at::Tensor& parameter = training.parameter.at(ready->index);
    if (own.empty() && parameter.numel() == 0) {
      continue;
    }
    if (own.size() != 1 || !is_all_reduce(*own[0]) || own[0]->elements != parameter.numel()) {
      return in(training, number) + ": after the gradient of layer " +
             std::to_string(ready->index) + " (" + std::to_string(parameter.nbytes()) +
             " bytes) was accumulated and before backward went on, exactly its all-reduce is to be "
             "launched; it launched" +
             list_of(own) + "\n  in this step:" + story(step.launches);
    }
    const bool last = step.goes_on != nullptr && ready->order < step.goes_on->order;
    if (last && own[0]->order > step.goes_on->order) {
      return in(training, number) + ": " + describe_operation(*own[0]) +
             " was launched when backward had already gone on, and not in the hook of its gradient";
    }
  }
  return "";
}

// The layers whose gradients backward computed inside NoSync only.
std::set<std::int64_t> owed_in(const TrainingStep& step) {
  std::set<std::int64_t> layers;
  for (const Seen* ready : step.ready) {
    layers.insert(ready->index);
  }
  for (const Seen* ready : step.ready) {
    if (!ready->place.no_sync) {
      layers.erase(ready->index);
    }
  }
  return layers;
}

using Elements = std::vector<std::int64_t>;  // of tensors, by which they are told apart

// Of `layers`, each at its first place in `listed`; what has none need not be sent.
Elements in_order_of(const std::vector<std::int64_t>& listed, std::set<std::int64_t> layers,
                     const TrainingOfRank& training) {
  Elements elements;
  for (const std::int64_t layer : listed) {
    if (layers.erase(layer) > 0 && training.parameter.at(layer).numel() > 0) {
      elements.push_back(training.parameter.at(layer).numel());
    }
  }
  return elements;
}

// Whether `some` is `all` with gaps.
bool is_within(const Elements& some, const Elements& all) {
  auto place = all.begin();
  for (const std::int64_t elements : some) {
    place = std::find(place, all.end(), elements);
    if (place == all.end()) {
      return false;
    }
    ++place;
  }
  return true;
}

}  // namespace

std::string each_is_launched_when_ready(const Evidence& evidence) {
  return first_on_ranks(evidence,
                        [](const TrainingOfRank& training, const TrainingStep& step, int number,
                           std::size_t ranks) -> std::string {
                          // A backward that failed, or a single rank, which need not communicate.
                          const bool exempt = !step.ended || (ranks == 1 && step.launches.empty());
                          return exempt ? "" : wrong_moment(training, number, step);
                        });
}

std::string owed_gradients_go_in_order(const Evidence& evidence) {
  return first_on_ranks(
      evidence,
      [](const TrainingOfRank& training, const TrainingStep& step, int number,
         std::size_t ranks) -> std::string {
        const std::set<std::int64_t> layers = owed_in(step);
        Elements launched;  // missing gradients, too, if they are
        for (const Seen* launch : step.launches) {
          if (launch->place.phase == Phase::kFinish) {
            launched.push_back(launch->elements);
          }
        }
        // A tied weight may go at any of its places.
        std::vector<std::int64_t> listed = training.listed;
        const Elements by_first = in_order_of(listed, layers, training);
        std::ranges::reverse(listed);
        Elements by_last = in_order_of(listed, layers, training);
        std::ranges::reverse(by_last);
        const bool right = is_within(by_first, launched) || is_within(by_last, launched);
        return step.ended && ranks > 1 && !right
                   ? in(training, number) +
                         ": gradients that backward computed inside NoSync only are launched by "
                         "finish(), once each and in the order of `parameters`; launched was:" +
                         story(step.launches)
                   : "";
      });
}

}  // namespace ddp::testing
