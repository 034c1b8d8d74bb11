#include "claims.h"

#include <map>
#include <string_view>

#include "grader/calls.h"
#include "grader/compare.h"
#include "grader/grading.h"
#include "grader/settings.h"
#include "grader/training_claims.h"
#include "grader/training_evidence.h"
#include "scenarios.h"

// What must be true of all that the ranks did, in every scenario.

namespace ddp::testing {

namespace {

const std::vector<std::string> kGradients = {"gradient of the input", "gradient of the weight",
                                             "gradient of the bias"};

// --- What only a rank can see; it handed in facts. ---

// GPU operators for parts of backward leave the sums to the caller.
bool is_libtorchs_backward(const std::string& name) {
  return name.find("norm") != std::string::npos && name.find("backward") != std::string::npos &&
         !name.ends_with("batch_norm_backward_reduce") &&
         !name.ends_with("batch_norm_backward_elemt");
}

Finding backward_is_its_own(const Batch& batch) {
  return first_in(batch, [&](const UseOnRank& use) {
    return first_in(use.facts(), [&](const auto& fact) {
      const auto name = rest_of(fact.first, "called: ");
      return name && is_libtorchs_backward(*name)
                 ? describe(batch, use) + ": " + shown(*name) +
                       " was called: the sums and the formula of backward should be your own"
                 : "";
    });
  });
}

Finding modules_have_the_names(const Evidence& evidence) {
  return first_event(evidence, EventKind::kThrew, [](const Seen& said, int rank) -> Finding {
    const auto state = rest_of(said.text, "state: ");
    return !state || *state == said.detail
               ? ""
               : on(rank) + ": a module's parameters and buffers are \"" + shown(said.detail) +
                     "\", expected \"" + *state + "\"";
  });
}

// --- Errors ---

// The running statistics are as they were before calls that must throw.
Finding errors_change_nothing(const Evidence& evidence) {
  return first_rank(evidence, [](const SeenList& said) -> Finding {
    std::map<std::string, at::Tensor> before;
    std::string call;
    for (const Seen& seen : said) {
      const auto moved = rest_of(seen.text, "moved: running");
      if (seen.kind == EventKind::kThrew) {
        call = rest_of(seen.text, kMustFail).value_or(seen.text);
      } else if (seen.kind == EventKind::kFact && moved && !call.empty()) {
        return "after " + call + ", which must only throw, the running" + *moved +
               " is another tensor than before";
      } else if (seen.kind != EventKind::kValue || !seen.text.starts_with("running")) {
        continue;
      } else if (seen.index == kBefore) {
        before[seen.text] = seen.value;
        call.clear();
      } else if (!call.empty()) {
        const Subject subject{"after " + call + ", which must only throw, " + seen.text};
        if (const auto same = is_bitwise_equal(subject, seen.value, before[seen.text]); !same) {
          return same.message();
        }
      }
    }
    return "";
  });
}

// The count travels with the only collective, and the error needs no other.
Finding an_error_takes_one_collective(const Evidence& evidence) {
  return first_rank(evidence, [](const SeenList& said) -> Finding {
    bool known = false;  // the count
    bool in_call = false;
    const Seen* later = nullptr;
    for (const Seen& seen : said) {
      if (seen.kind == EventKind::kFact && seen.text == kAttempt.name && !in_call) {
        in_call = true;
        known = false;
        later = nullptr;
      } else if (seen.kind == EventKind::kLaunch) {
        later = known ? &seen : nullptr;
        known = known || seen.bytes > 0;
      } else if (seen.kind == EventKind::kThrew && later != nullptr) {
        return seen.text + ": " + describe_operation(*later) +
               " was launched when the count was known and an error due";
      } else if (seen.kind == EventKind::kThrew) {
        in_call = false;
      }
    }
    return "";
  });
}

Finding too_few_values_are_refused(const Evidence& evidence) {
  return first_event(evidence, EventKind::kThrew, [](const Seen& threw, int rank) -> Finding {
    const std::string what = on(rank) + ": " + threw.text;
    const std::string_view exception = threw.detail;
    if (exception.empty()) {
      return what + ": no error; one is due on every rank";
    }
    return exception.starts_with("c10::Error")
               ? ""
               : what + ": threw another exception than c10::Error: " + shown(threw.detail);
  });
}

// --- The tests ---

const GradedTest kOutputs{
    {.name = "output_is_batch_norm_of_the_whole_batch",
     .title = "The output is batch norm of the whole batch",
     .points = 2,
     .hint = "Mean and variance are of all ranks' values together; from n, mean and M of each rank "
             "they follow by the handout's formulas. eps goes under the root.",
     .more = "Do the handout's miniature with your code: two ranks, (1, 3) and (5, 7, 9). Is the "
             "mean 5 and the variance 8? If it is 2.5 or 4.5, the ranks were weighted equally; if "
             "the variance is too small, the distances between the ranks' means are missing. "
             "Right for [N, C] and wrong for more dimensions: over which of them do you add up, "
             "and which is the channel?"},
    [] { judge(plain(), right(kTraining, {"output"})); }};

const GradedTest kOfWholeBatch{
    {.name = "gradients_are_those_of_the_whole_batch",
     .title = "Gradients are those of the whole batch",
     .points = 2,
     .hint = "The two means in the handout's formula are over all ranks: sums of this rank, one "
             "collective, divided by the global count. Weight and bias: this rank's sums only.",
     .more = "Check on one rank first, against central differences. If that holds, ask for each "
             "sum in the backward formula: of this rank or of all? Weight and bias are DDP's to "
             "average later. A weight of 0 must not be divided by. If other ranks' losses do not "
             "reach this rank's input, what does your collective carry?"},
    [] {
      judge(joined({plain(), upstreams()}),
            all_of({right(kTraining, kGradients), graph_keeps_the_group}),
            [](const Evidence& evidence) {
              Finding wrong = right(kTraining, {"output"})(evidence);
              if (!wrong.empty()) {
                wrong.text =
                    "outputs are wrong: see \"The output is batch norm of the whole batch\"";
              }
              return wrong;
            });
    }};

const GradedTest kRunning{
    {.name = "running_statistics_are_those_of_the_whole_batch",
     .title = "Running statistics are those of the whole batch",
     .points = 1,
     .hint = "running = (1 - momentum) * running + momentum * batch, in place, and nothing else "
             "changes. The variance is over n - 1, n being the global count. Same bits everywhere.",
     .more = "Three details: n - 1 with the global n, momentum on the new value, and writing into "
             "the tensor that the caller gave you. If only the last bits differ between ranks: "
             "does each rank compute them from the same numbers in the same order? If another "
             "tensor is named: which operator of yours ends in an underscore?"},
    [] {
      judge(plain(), all_of({right(kTraining, {"running_mean", "running_var"}),
                             in_batches(kTraining, same_on_all_ranks)}));
      judge(all_uses(),
            all_of({in_batches(kTraining, nothing_else_changes), surroundings_are_left_alone}));
    }};

const GradedTest kSilence{
    {.name = "evaluation_is_local_and_changes_nothing",
     .title = "Evaluation is local and changes nothing",
     .points = 1,
     .hint = "training = false: no collective, in backward neither, no update, no count, nothing "
             "written over: not the input, not the upstream gradient, not an earlier output.",
     .more = "Follow training = false from the first line of your function to the end of "
             "backward: which branch leads to the collective, and which to the running "
             "statistics? A tensor that to() returns may be the very tensor that it was given: "
             "what do you write into afterwards?"},
    [] {
      judge(all_uses(), all_of({in_batches(kEvaluation, something_is_normalized),
                                in_batches(kEvaluation, evaluation_is_silent),
                                in_batches(kEvaluation, nothing_else_changes)}));
    }};

const GradedTest kOfEvaluation{
    {.name = "evaluation_has_the_right_output_and_gradients",
     .title = "Evaluation has the right output and gradients",
     .points = 1,
     .hint = "In evaluation the running statistics are constants, so the gradient has one term; "
             "where there are none, the statistics are those of this rank's batch, and it has all.",
     .more = "Of the three paths in \"The idea\", which exist if mean and variance are constants? "
             "And if there are no running statistics, whose batch is it, and how many ranks does "
             "n count? Test both with momentum and affine off."},
    [] {
      judge(joined({evaluation(), plain(), modules()}), right(kEvaluation),
            evaluation_communicates);
    }};

const GradedTest kModule{
    {.name = "module_keeps_the_state_of_batch_norm",
     .title = "The module has the state of BatchNorm",
     .points = 1,
     .hint = "Each forward in training counts one batch, in num_batches_tracked itself, and then "
             "uses options().momentum, or 1 / that count if it is none.",
     .more = "Read the last paragraph of sync_batch_norm.h with batch_norm.h beside it. When is "
             "the counter raised, before or after the momentum is taken from it? It is a tensor "
             "that to(dtype) converts: do you write into it, or put another in its place? What "
             "does eval() change, and what does track_running_stats = false?"},
    [] {
      judge(modules(), all_of({modules_have_the_names, life_is_silent, right(kTraining)}));
    }};

const GradedTest kShards{
    {.name = "shards_may_be_unequal_or_empty",
     .title = "Shards may be unequal or empty",
     .points = 1,
     .hint = "Weight a rank's statistics by its number of values. A rank without any has no mean: "
             "it contributes zeros, takes part in both collectives, and its results are empty or "
             "zero.",
     .more = "The mean of no numbers is NaN, and NaN times 0 is NaN: what does a rank without "
             "samples put into its message? With shards of 1 and 3, put p * n_r in the place of "
             "every n: which of your lines would not notice? What shapes do output and gradient "
             "have for an input of [0, C]?"},
    [] { judge(shards(), all_right()); }};

const GradedTest kCount{
    {.name = "a_global_count_of_one_is_an_error_on_all_ranks",
     .title = "One value in all is an error on all ranks",
     .points = 1,
     .hint = "Before the collective no rank knows the total number of values; after it, all do: "
             "TORCH_CHECK() the global count there, before the running statistics change.",
     .more = "Which ranks can know, and when? A rank that throws before the collective leaves the "
             "others waiting in it. Which of your lines come between the collective and the "
             "check, and do they change anything?"},
    [] {
      judge(counts(), all_of({too_few_values_are_refused, an_error_takes_one_collective,
                              errors_change_nothing, surroundings_are_left_alone}));
    }};

const GradedTest kLargeMean{
    {.name = "a_large_mean_costs_no_digits",
     .title = "A large mean costs no digits",
     .points = 1,
     .hint =
         "With a mean of 10000 and a deviation of 1, mean(x^2) - mean(x)^2 is noise in float32, "
         "has lost half its digits in float64, and so has sum(g x) - mean sum(g). Subtract the "
         "mean first: sums of squares about zero lose digits whoever adds them up.",
     .more = "Print mean and variance of one channel for values 10000 +- 1, in float32, and for "
             "1000000 +- 1 in float64. Look for a difference of two large numbers anywhere: in "
             "the variance, when ranks are combined, in x * scale - mean * scale, and in "
             "backward. In which dtype are the sums of your message? And can what all ranks add "
             "up be right at all, if each of them knows only its own mean?"},
    [] {
      judge(large_means(), all_right(), evaluation_communicates);
      judge(large_products(), right(kTraining, {"gradient of the weight"}));
    }};

const GradedTest kLowPrecision{
    {.name = "half_and_bfloat16_keep_float32_statistics",
     .title = "float16 and bfloat16 keep float32 statistics",
     .points = 1,
     .hint = "Convert to float32 before anything is subtracted, added up or sent, in backward too. "
             "Only returned tensors have the input's dtype.",
     .more = "Where does a half-precision tensor become float32, and is anything added up, "
             "subtracted or divided before? 2049 cannot be written in half: is a count sent in "
             "it? In backward there are two half-precision tensors that come in. Parameters may "
             "be float32 while the input is half."},
    [] { judge(low_precision(), all_right()); }};

const GradedTest kLayouts{
    {.name = "strides_do_not_matter",
     .title = "Strides do not matter",
     .points = 1,
     .hint = "Go by shape and strides, or make contiguous what you read by pointer: the input, and "
             "the gradient from upstream, which after a sum has stride 0 everywhere.",
     .more = "Which lines use data_ptr(), view() or a fixed order of dimensions? In which layout "
             "is the result, and does what you multiply have the same? The gradient of sum() is "
             "one number, expanded to a shape: what does its stride say to code that counts "
             "elements?"},
    [] { judge(layouts(), all_right()); }};

const GradedTest kCollectives{
    {.name = "one_collective_each_way",
     .title = "One collective in forward, one in backward",
     .points = 2,
     .hint = "Put a rank's count, means and Ms into one flat tensor, 2C + 1 numbers, for one "
             "all-gather (an all-reduce would need sums). Backward: 2C sums, if needs_input_grad.",
     .more = "Count what one layer sends in forward and in backward: how many calls, how many "
             "elements? The failure lists them. Could two messages be one tensor? In which dtype "
             "do they go? When the input needs no gradient, who would need backward's sums?"},
    [] {
      judge(all_uses(), all_of({in_batches(kTraining, one_collective_each_way),
                                nothing_in_flight_is_touched, nothing_is_left_in_flight}));
    }};

const GradedTest kOwnBackward{
    {.name = "backward_is_your_own",
     .title = "Backward is your own",
     .points = 1,
     .hint = "A torch::autograd::Function with the handout's formula, in evaluation and on one "
             "rank, too; do not call libtorch's own batch norm in it, least of all its backward.",
     .more = "The failure names the operator that was called. Look at every operator between "
             "forward's first line and its result: is one of them libtorch's batch norm, perhaps "
             "only in evaluation, or where the group has one rank? Handout 04 shows what a "
             "function with a backward of its own looks like."},
    [] {
      judge(all_uses(), all_of({in_batches(kTraining, something_is_normalized),
                                in_batches(kTraining, backward_is_its_own),
                                in_batches(kEvaluation, backward_is_its_own)}));
    }};

const GradedTest kMemory{
    {.name = "backward_keeps_no_more_than_the_input",
     .title = "Backward keeps no more than the input",
     .points = 1,
     .hint = "save_for_backward() the input, the mean and the inverse deviation: x-hat follows "
             "from them, so do not keep it, nor a converted copy of the input: convert again.",
     .more = "List what your function saves between forward and backward, with sizes. Whatever "
             "can be computed again from the input and O(C) numbers should be. A float32 copy of "
             "a half-precision input is as large as two inputs, and backward can make it again. "
             "If it grows from step to step: what does the module keep?"},
    [] {
      if (!settings().device.is_cpu()) {
        GTEST_SKIP() << "memory is counted on the CPU only";
      }
      judge(memory(), all_of({little_is_kept, nothing_grows, something_is_communicated}));
    }};

const GradedTest kErrors{
    {.name = "errors_come_before_communication",
     .title = "Errors come before communication",
     .points = 1,
     .hint = "TORCH_CHECK() what the header lists, first of all, in training and in evaluation: a "
             "rank that throws later leaves the others waiting.",
     .more = "Put the header's last paragraph beside the beginning of your function, and tick "
             "off: dimensions, dtype, shapes of four tensors, their dtype and device, one running "
             "statistic without the other, eps, group. Does evaluation go through the same "
             "checks? What has been changed by the time you throw?"},
    [] {
      judge(misuse(), all_of({misuse_is_refused, errors_change_nothing}));
    }};

const GradedTest kTrainingTogether{
    {.name = "training_on_many_ranks_is_training_on_one",
     .title = "Training on many ranks is training on one",
     .points = 1,
     .hint =
         "Several layers, and one layer several times, go forward before any goes backward: "
         "what backward needs belongs to the graph, not to the module or a variable of its own.",
     .more = "If all the other tests pass, it is state that is shared between calls. Call the "
             "layer twice, then go backward once: which variable was overwritten by the second "
             "call? What belongs to one call lives in its AutogradContext."},
    [] {
      judge(networks(), network_is_trained_as_by_one);
      judge(interleaved(), right(kTraining));
    }};

}  // namespace

}  // namespace ddp::testing
