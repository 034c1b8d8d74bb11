#include <algorithm>
#include <cctype>
#include <string_view>

#include "bodies.h"
#include "support/claim_tools.h"
#include "support/compare.h"
#include "support/grading.h"
#include "support/settings.h"
#include "support/training_claims.h"
#include "use_evidence.h"

// What must be true of all that the ranks did, in every body.

namespace ddp::testing {

namespace {

const std::vector<std::string> kGradients = {"gradient of the input", "gradient of the weight",
                                             "gradient of the bias"};
const std::vector<std::string> kState = {"running_mean", "running_var", "num_batches_tracked"};
const std::vector<std::string> kAll = {"output",
                                       "running_mean",
                                       "running_var",
                                       "num_batches_tracked",
                                       "gradient of the input",
                                       "gradient of the weight",
                                       "gradient of the bias"};

enum Mode { kEvaluation, kTraining };

// What `check` finds in the first batch of a mode.
Predicate in_batches(Mode mode, std::function<std::string(const Batch&)> check) {
  return [mode, check = std::move(check)](const Evidence& evidence) -> std::string {
    for (const Batch& batch : batches_in(evidence)) {
      if (batch[0].training == (mode == kTraining)) {
        if (std::string text = check(batch); !text.empty()) {
          return text;
        }
      }
    }
    return "";
  };
}

Predicate right(Mode mode, const std::vector<std::string>& names) {
  return in_batches(mode, [names](const Batch& batch) { return wrong_values(batch, names); });
}

Predicate all_right() { return all_of({right(kTraining, kAll), right(kEvaluation, kAll)}); }

// What does nothing communicates nothing, changes nothing and calls no one.
std::string something_is_normalized(const Batch& batch) {
  for (const UseOnRank& use : batch) {
    const at::Tensor input = use.at("input", kBefore);
    if (input.numel() > 0 && is_bitwise_equal({}, use.at("output", kAfterForward), input)) {
      return describe(batch, use) + ": the output is the input";
    }
  }
  return "";
}

std::string something_is_communicated(const Evidence& evidence) {
  const bool silent =
      std::ranges::any_of(evidence.launches, [](const auto& l) { return l.empty(); });
  return silent && evidence.world.ranks > 1 ? "a rank communicated nothing" : "";
}

// --- State ---

std::string changed(const Batch& batch, const UseOnRank& use, const std::string& name) {
  const bool is_state = std::ranges::find(kState, name) != kState.end();
  const bool comes_later = name == "output" || name == "upstream";
  at::Tensor before = use.at(name, comes_later ? kAfterForward : kBefore);
  for (const Moment moment : {kAfterForward, kAfterBackward, kAtEnd}) {
    const bool skip = is_state && (moment == kAtEnd || (use.training && moment == kAfterForward) ||
                                   use.facts.contains("the caller changes the running statistics"));
    const at::Tensor now = use.at(name, moment);
    if (!skip && now.defined() && before.defined()) {
      const char* const when[] = {"", "forward", "backward", "later uses"};
      const Subject subject{describe(batch, use) + ": after " + when[moment] + " the " + name +
                            ", which nobody may change,"};
      if (const auto same = is_bitwise_equal(subject, now, before); !same) {
        return same.message();
      }
    }
    before = now.defined() && moment == kAfterForward ? now : before;
  }
  return "";
}

// Running statistics and counter are changed by forward in training, in place; nothing else is.
std::string nothing_else_changes(const Batch& batch) {
  for (const UseOnRank& use : batch) {
    for (const auto& [name, moments] : use.tensors) {
      if (std::string text = changed(batch, use, name); !text.empty()) {
        return text;
      }
    }
    for (const std::string& fact : use.facts) {
      if (fact.starts_with("moved: ")) {
        return describe(batch, use) + ": " + fact.substr(7) +
               " has been replaced by another tensor, or moved to another storage: write the new "
               "values into the old one";
      }
      if (fact == "grad mode changed") {
        return describe(batch, use) + ": autograd's grad mode was left switched over";
      }
    }
  }
  return "";
}

// Sums in a different order on each rank would not have the same bits.
std::string same_on_all_ranks(const Batch& batch) {
  for (const UseOnRank& use : batch) {
    for (const std::string& name : {"running_mean", "running_var"}) {
      const Subject subject{describe(batch, use) + ": the " + name + ", compared with rank " +
                            std::to_string(batch[0].rank) + "'s,"};
      const at::Tensor first = batch[0].at(name, kAfterForward);
      if (const auto same = is_bitwise_equal(subject, use.at(name, kAfterForward), first); !same) {
        return same.message();
      }
    }
  }
  return "";
}

// --- Communication ---

// How many numbers a rank contributes. Whole structures may travel as bytes; their contents are
// unknown, so they count as float64.
std::int64_t numbers_in(const Seen& launch) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(launch.dtype));
  return size == 1 ? launch.bytes / 8 : launch.elements;
}

// Operations that carry data; the price of others is another claim's business.
std::vector<const Seen*> with_data(std::vector<const Seen*> launches) {
  std::erase_if(launches, [](const Seen* launch) { return launch->bytes == 0; });
  return launches;
}

std::string wrong_launches(const std::vector<const Seen*>& launches, int due, std::int64_t most,
                           std::size_t ranks) {
  const auto sent = with_data(launches);
  const bool alone = ranks == 1 && sent.empty();
  if (due == 0 && !sent.empty()) {
    return " communicated, and nobody needs it:" + list_of(sent);
  }
  if (!alone &&
      (static_cast<int>(sent.size()) != due || (due > 0 && c10d::isP2POp(sent[0]->type)))) {
    return " should be one collective; here it was:" + list_of(sent);
  }
  const auto large =
      std::ranges::find_if(sent, [&](const Seen* launch) { return numbers_in(*launch) > most; });
  return large == sent.end() ? ""
                             : ": a rank should put in at most " + std::to_string(most) +
                                   " elements; here it was:" + list_of(sent);
}

std::string one_collective_each_way(const Batch& batch) {
  for (const UseOnRank& use : batch) {
    const std::int64_t channels = use.at("input", kBefore).size(1);
    auto text = wrong_launches(use.forward, 1, 2 * channels + 1, batch.size());
    if (!text.empty()) {
      return describe(batch, use) + ": forward" + text;
    }
    text = wrong_launches(use.backward, use.wants_input ? use.backwards : 0, 2 * channels,
                          batch.size());
    if (!text.empty()) {
      return describe(batch, use) + ": backward" +
             (use.wants_input ? "" : ", where the input requires no gradient,") + text;
    }
  }
  return "";
}

std::string evaluation_is_silent(const Batch& batch) {
  for (const UseOnRank& use : batch) {
    for (const auto* launches : {&use.forward, &use.backward}) {
      if (!launches->empty()) {
        return describe(batch, use) + " communicated:" + list_of(*launches);
      }
    }
  }
  return "";
}

std::string evaluation_communicates(const Evidence& evidence) {
  return in_batches(kEvaluation, evaluation_is_silent)(evidence).empty()
             ? ""
             : "evaluation communicates, which another test reports";
}

std::string construction_is_silent(const Evidence& evidence) {
  return first_event(evidence, EventKind::kLaunch, [](const Seen& launch, int rank) {
    return launch.place.phase == Phase::kConstruction
               ? where(launch, rank) + ": construction of a module launched " +
                     describe_operation(launch)
               : "";
  });
}

std::string nothing_in_flight_is_touched(const Evidence& evidence) {
  return first_event(evidence, EventKind::kTouch, [&](const Seen& touch, int rank) {
    return where(touch, rank) + ": " + touch.text + " was in flight, between the launch of " +
           describe_operation(evidence.launch_of(rank, touch.operation)) +
           " and the wait for it, when " + touch.detail;
  });
}

std::string graph_keeps_the_group(const Evidence& evidence) {
  return first_event(evidence, EventKind::kFact, [](const Seen& fact, int rank) {
    return std::string_view(fact.text) == "the group is gone"
               ? where(fact, rank) +
                     ": after forward, when the caller had dropped its handle, nobody had the "
                     "process group any more: what backward needs the graph must keep alive"
               : "";
  });
}

// --- What only a rank can see; it handed in facts. ---

// GPU operators for parts of backward leave the sums to the caller.
bool is_libtorchs_backward(const std::string& name) {
  return name.find("norm") != std::string::npos && name.find("backward") != std::string::npos &&
         !name.ends_with("batch_norm_backward_reduce") &&
         !name.ends_with("batch_norm_backward_elemt");
}

std::string backward_is_its_own(const Batch& batch) {
  for (const UseOnRank& use : batch) {
    for (const std::string& fact : use.facts) {
      if (fact.starts_with("called: ") && is_libtorchs_backward(fact)) {
        return describe(batch, use) + ": " + fact.substr(8) +
               " was called: the sums and the formula of backward should be your own";
      }
    }
  }
  return "";
}

std::string little_is_kept(const Evidence& evidence) {
  constexpr std::int64_t kFewNumbers = 16'384;
  return first_event(evidence, EventKind::kFact, [](const Seen& fact, int rank) -> std::string {
    const std::string_view text = fact.text;
    if (!text.starts_with("kept: ") || fact.number <= fact.index + kFewNumbers) {
      return "";
    }
    return "rank " + std::to_string(rank) + ": for backward of " + std::string(text.substr(6)) +
           ", " + std::to_string(fact.number) + " bytes are kept, where " +
           std::to_string(fact.index) +
           (fact.index > 0 ? " (the input's) and a few numbers for each channel are enough"
                           : " and a few are enough");
  });
}

std::string modules_have_the_names(const Evidence& evidence) {
  return first_event(evidence, EventKind::kThrew, [](const Seen& said, int rank) -> std::string {
    const std::string_view call = said.text;
    if (!call.starts_with("state: ") || call.substr(7) == said.detail) {
      return "";
    }
    return "rank " + std::to_string(rank) + ": a module's parameters and buffers are \"" +
           said.detail + "\", expected \"" + std::string(call.substr(7)) + "\"";
  });
}

// --- Errors ---

// The running statistics are as they were before calls that must throw.
std::string errors_change_nothing(const Evidence& evidence) {
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    std::map<std::string, at::Tensor> before;
    std::string call;
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind == EventKind::kThrew) {
        call = seen.text;
      } else if (seen.kind != EventKind::kValue ||
                 !std::string_view(seen.text).starts_with("running")) {
        continue;
      } else if (seen.index == kBefore) {
        before[seen.text] = seen.value;
        call.clear();
      } else if (!call.empty()) {
        const Subject subject{"rank " + std::to_string(rank) + ": after " + call +
                              ", which is an error, the " + seen.text};
        if (const auto same = is_bitwise_equal(subject, seen.value, before[seen.text]); !same) {
          return same.message();
        }
      }
    }
  }
  return "";
}

std::string too_few_values_are_refused(const Evidence& evidence) {
  return first_event(evidence, EventKind::kThrew, [](const Seen& threw, int rank) -> std::string {
    const std::string what = "rank " + std::to_string(rank) + ": " + threw.text;
    const std::string_view exception = threw.detail;
    if (exception.empty()) {
      return what + " should be an error on every rank; nothing was thrown";
    }
    return exception.starts_with("c10::Error")
               ? ""
               : what + " should throw c10::Error; it threw: " + std::string(exception);
  });
}

// --- The tests ---

const GradedTest kOutputs{
    {.name = "output_is_batch_norm_of_the_whole_batch",
     .points = 2,
     .hint = "Mean and variance are of all ranks' values together; from n, mean and M of each rank "
             "they follow by the handout's formulas. eps goes under the root."},
    [] { judge(plain(), right(kTraining, {"output"})); }};

const GradedTest kOfWholeBatch{
    {.name = "gradients_are_those_of_the_whole_batch",
     .points = 2,
     .hint = "The two means in the handout's formula are over all ranks: sums of this rank, one "
             "collective, divided by the global count. Weight and bias: this rank's sums only."},
    [] {
      judge(joined({plain(), upstreams()}),
            all_of({right(kTraining, kGradients), graph_keeps_the_group}),
            [](const Evidence& evidence) {
              return right(kTraining, {"output"})(evidence).empty()
                         ? ""
                         : "outputs are wrong, which another test reports";
            });
    }};

const GradedTest kRunning{
    {.name = "running_statistics_are_those_of_the_whole_batch",
     .points = 1,
     .hint =
         "running = (1 - momentum) * running + momentum * batch, in place, and nothing else "
         "changes. The variance is over n - 1, n being the global count. Same bits everywhere."},
    [] {
      judge(plain(), all_of({right(kTraining, kState), in_batches(kTraining, same_on_all_ranks)}));
      judge(all_uses(), in_batches(kTraining, nothing_else_changes));
    }};

const GradedTest kSilence{
    {.name = "evaluation_is_local_and_changes_nothing",
     .points = 1,
     .hint = "training = false: no collective, in backward neither, no update, no count, nothing "
             "written over: not the input, not the upstream gradient, not an earlier output."},
    [] {
      judge(all_uses(), all_of({in_batches(kEvaluation, something_is_normalized),
                                in_batches(kEvaluation, evaluation_is_silent),
                                in_batches(kEvaluation, nothing_else_changes)}));
    }};

const GradedTest kOfEvaluation{
    {.name = "evaluation_has_the_right_output_and_gradients",
     .points = 1,
     .hint =
         "In evaluation the running statistics are constants, so the gradient has one term; "
         "where there are none, the statistics are those of this rank's batch, and it has all."},
    [] {
      judge(joined({evaluation(), plain(), modules()}), right(kEvaluation, kAll),
            evaluation_communicates);
    }};

const GradedTest kModule{
    {.name = "module_keeps_the_state_of_batch_norm",
     .points = 1,
     .hint = "Each forward in training counts one batch, in num_batches_tracked itself, and then "
             "uses options().momentum, or 1 / that count if it is none."},
    [] {
      judge(modules(),
            all_of({modules_have_the_names, construction_is_silent, right(kTraining, kAll)}));
    }};

const GradedTest kShards{
    {.name = "shards_may_be_unequal_or_empty",
     .points = 1,
     .hint = "Weight a rank's statistics by its number of values. A rank without any has no mean: "
             "it contributes zeros, takes part in both collectives, and its results are empty or "
             "zero."},
    [] { judge(shards(), all_right()); }};

const GradedTest kCount{
    {.name = "a_global_count_of_one_is_an_error_on_all_ranks",
     .points = 1,
     .hint = "Before the collective no rank knows the total number of values; after it, all do: "
             "TORCH_CHECK() the global count there, before the running statistics change."},
    [] {
      judge(counts(), all_of({too_few_values_are_refused, errors_change_nothing}));
    }};

const GradedTest kLargeMean{
    {.name = "a_large_mean_costs_no_digits",
     .points = 1,
     .hint = "With a mean of 10000 and a deviation of 1, mean(x^2) - mean(x)^2 in float32 is "
             "noise, and so is sum(g x) - mean sum(g). Subtract the mean first."},
    [] {
      judge(large_means(), all_right(), evaluation_communicates);
      judge(large_products(), right(kTraining, {"gradient of the weight"}));
    }};

const GradedTest kLowPrecision{
    {.name = "half_and_bfloat16_keep_float32_statistics",
     .points = 1,
     .hint = "Convert to float32 before anything is subtracted, added up or sent, in backward too. "
             "Only returned tensors have the input's dtype."},
    [] { judge(low_precision(), all_right()); }};

const GradedTest kLayouts{
    {.name = "strides_do_not_matter",
     .points = 1,
     .hint = "Go by shape and strides, or make contiguous what you read by pointer: the input, and "
             "the gradient from upstream, which after a sum has stride 0 everywhere."},
    [] { judge(layouts(), all_right()); }};

const GradedTest kCollectives{
    {.name = "one_collective_each_way",
     .points = 2,
     .hint =
         "Put a rank's count, means and Ms into one flat tensor, for one all-gather or (as sums) "
         "all-reduce: 2C + 1 numbers. Backward: 2C sums, if needs_input_grad."},
    [] {
      judge(all_uses(),
            all_of({in_batches(kTraining, one_collective_each_way), nothing_in_flight_is_touched}));
    }};

const GradedTest kOwnBackward{
    {.name = "backward_is_your_own",
     .points = 1,
     .hint = "A torch::autograd::Function with the handout's formula, in evaluation and on one "
             "rank, too; do not call libtorch's own batch norm in it, least of all its backward."},
    [] {
      judge(all_uses(), all_of({in_batches(kTraining, something_is_normalized),
                                in_batches(kTraining, backward_is_its_own),
                                in_batches(kEvaluation, backward_is_its_own)}));
    }};

const GradedTest kMemory{
    {.name = "backward_keeps_no_more_than_the_input",
     .points = 1,
     .hint = "save_for_backward() the input, the mean and the inverse deviation: x-hat follows "
             "from them, so do not keep it, nor a converted copy of the input."},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "memory is counted on the CPU only";
      }
      judge(memory(), all_of({little_is_kept, nothing_grows, something_is_communicated}));
    }};

const GradedTest kErrors{
    {.name = "errors_come_before_communication",
     .points = 1,
     .hint = "TORCH_CHECK() what the header lists, first of all, in training and in evaluation: a "
             "rank that throws later leaves the others waiting."},
    [] {
      judge(misuse(), all_of({misuse_is_refused, errors_change_nothing}));
    }};

const GradedTest kTrainingTogether{
    {.name = "training_on_many_ranks_is_training_on_one",
     .points = 1,
     .hint =
         "Several layers, and one layer several times, go forward before any goes backward: "
         "what backward needs belongs to the graph, not to the module or a variable of its own."},
    [] {
      judge(networks(), network_is_trained_as_by_one);
      judge(interleaved(), right(kTraining, kAll));
    }};

}  // namespace

}  // namespace ddp::testing
