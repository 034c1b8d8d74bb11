#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "buckets.h"
#include "ddp/backends/tensor_names.h"
#include "ddp/libtorch_versions.h"
#include "ddp/meters/memory_meter.h"
#include "grader/grading.h"
#include "grader/scenario.h"
#include "grader/settings.h"
#include "grader/training_evidence.h"
#include "scenarios.h"

namespace ddp::testing {

namespace {

using Indices = std::vector<std::size_t>;
// What all members of a bucket must have in common, such as "float32 on cpu".
using Common = std::string;

// The first index of the tensor that is at `index`: tied weights are listed for each use.
std::size_t first_occurrence(const std::vector<at::Tensor>& parameters, std::size_t index) {
  std::size_t first = 0;
  while (!parameters[first].is_same(parameters[index])) {
    ++first;
  }
  return first;
}

// "{{2, 1}, {0}}".
std::string to_string(const Plan& plan) {
  std::ostringstream out;
  for (const Indices& bucket : plan) {
    out << (out.tellp() > 0 ? ", {" : "{");
    for (std::size_t m = 0; m < bucket.size(); ++m) {
      out << (m > 0 ? ", " : "") << bucket[m];
    }
    out << "}";
  }
  return "{" + out.str() + "}";
}

Common kind_of(const at::Tensor& tensor) {
  return dtype_name(tensor.scalar_type()) + " on " + tensor.device().str();
}

std::int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.numel()) *
         static_cast<std::int64_t>(tensor.element_size());
}

std::string name_of(const Plan& plan, std::size_t bucket) {
  const std::string braces = to_string(Plan{plan[bucket]});
  return "bucket " + std::to_string(bucket) + " " + braces.substr(1, braces.size() - 2);
}

// Every trainable parameter exactly once, tied ones at their first occurrence, and nothing else.
std::string broken_membership(const Plan& plan, const std::vector<at::Tensor>& parameters) {
  std::vector<int> times(parameters.size(), 0);
  for (std::size_t b = 0; b < plan.size(); ++b) {
    if (plan[b].empty()) {
      return "bucket " + std::to_string(b) + " is empty";
    }
    for (const std::size_t index : plan[b]) {
      if (index >= parameters.size()) {
        return name_of(plan, b) + " has the index " + std::to_string(index) + ", but there are " +
               std::to_string(parameters.size()) + " parameters";
      }
      const std::string parameter = "parameter " + std::to_string(index);
      const std::size_t first = first_occurrence(parameters, index);
      if (!parameters[index].requires_grad()) {
        return parameter + " is frozen, but in " + name_of(plan, b);
      }
      if (first != index) {
        return parameter + " is the same tensor as parameter " + std::to_string(first) +
               " and belongs where that is, but is in " + name_of(plan, b);
      }
      if (++times[index] > 1) {
        return parameter + " is in the plan twice";
      }
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].requires_grad() && first_occurrence(parameters, i) == i && times[i] == 0) {
      return "parameter " + std::to_string(i) + " is in no bucket";
    }
  }
  return "";
}

// Within a bucket: members of one kind, in descending order.
std::string broken_bucket(const Plan& plan, std::size_t b,
                          const std::vector<at::Tensor>& parameters) {
  const Indices& bucket = plan[b];
  for (std::size_t m = 1; m < bucket.size(); ++m) {
    const Common kind = kind_of(parameters[bucket[m]]);
    if (kind != kind_of(parameters[bucket[0]])) {
      return name_of(plan, b) + " mixes " + kind_of(parameters[bucket[0]]) + " with " + kind;
    }
    if (bucket[m] > bucket[m - 1]) {
      return name_of(plan, b) + " does not list its members from the last parameter to the first";
    }
  }
  return "";
}

// The buckets of one kind must cut its parameters, in reverse order, where the cap is reached.
std::string broken_cuts(const Plan& plan, const std::vector<std::size_t>& buckets,
                        const std::vector<at::Tensor>& parameters, std::int64_t cap_bytes) {
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const Indices& bucket = plan[buckets[i]];
    const std::string name = name_of(plan, buckets[i]);
    if (i > 0 && bucket.front() > plan[buckets[i - 1]].back()) {
      return name + " has a parameter whose turn comes before that of the last one of " +
             name_of(plan, buckets[i - 1]) + ", a bucket of the same kind";
    }
    std::int64_t bytes = 0;
    for (const std::size_t index : bucket) {
      if (bytes >= cap_bytes) {
        return name + " was full (" + std::to_string(bytes) + " bytes, cap " +
               std::to_string(cap_bytes) + ") before parameter " + std::to_string(index) +
               " was added";
      }
      bytes += bytes_of(parameters[index]);
    }
    if (bytes < cap_bytes && i + 1 < buckets.size()) {
      return name + " was closed at " + std::to_string(bytes) + " bytes, below the cap of " +
             std::to_string(cap_bytes) + ", though more parameters of its kind follow";
    }
  }
  return "";
}

std::string broken_order(const Plan& plan) {
  for (std::size_t b = 1; b < plan.size(); ++b) {
    if (plan[b].back() > plan[b - 1].back()) {
      return name_of(plan, b) + " should come before " + name_of(plan, b - 1) +
             ": buckets are ordered by their last member, descending";
    }
  }
  return "";
}

}  // namespace

std::string broken_rule(const Plan& plan, const std::vector<at::Tensor>& parameters,
                        std::int64_t cap_bytes) {
  std::string broken = broken_membership(plan, parameters);
  std::map<Common, std::vector<std::size_t>> buckets_of_kind;
  for (std::size_t b = 0; b < plan.size() && broken.empty(); ++b) {
    broken = broken_bucket(plan, b, parameters);
    buckets_of_kind[kind_of(parameters[plan[b].front()])].push_back(b);
  }
  for (auto& [kind, buckets] : buckets_of_kind) {
    // Sorted by their members: their order in the plan is a separate rule.
    std::ranges::sort(buckets, std::greater{}, [&](std::size_t b) { return plan[b].front(); });
    broken = broken.empty() ? broken_cuts(plan, buckets, parameters, cap_bytes) : broken;
  }
  return broken.empty() ? broken_order(plan) : broken;
}

// Which parameters share a bucket: assign_buckets(), without any execution.

namespace {

struct Weight {
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  bool trainable = true;
  int tied_to = -1;  // an earlier index in the list: the same tensor again
  at::DeviceType device = at::kCPU;
};

std::vector<at::Tensor> make_weights(const std::vector<Weight>& weights) {
  std::vector<at::Tensor> tensors;
  for (const Weight& weight : weights) {
    if (weight.tied_to >= 0) {
      tensors.push_back(tensors[weight.tied_to]);
      continue;
    }
    // A part of a larger memory: the bytes that count are those of its elements.
    const at::Tensor values =
        at::zeros(weight.shape, at::TensorOptions(weight.dtype).device(weight.device));
    tensors.push_back(at::stack({values, values}).select(0, 1));
    tensors.back().set_requires_grad(weight.trainable);
  }
  return tensors;
}

std::string describe(const std::vector<at::Tensor>& parameters) {
  std::string text;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::size_t first = first_occurrence(parameters, i);
    text += "\n    " + std::to_string(i) + ": " + describe_tensor(parameters[i]) + " on " +
            parameters[i].device().str() + ", " + std::to_string(parameters[i].nbytes()) +
            " bytes" + (parameters[i].requires_grad() ? "" : ", frozen") +
            (first < i ? ", the same tensor as parameter " + std::to_string(first) : "");
  }
  return text;
}

struct PlanCase {
  std::string about;
  std::vector<Weight> weights;
  std::int64_t cap_bytes = 0;
  Plan expected;
  bool by_rules_alone = false;  // nothing is expected but that it keeps the rules
};

const std::vector<Weight> kToy = {{{10, 10}}, {{50, 10}}, {{5, 50}}};
const std::vector<Weight> kFourEqual = {{{100}}, {{100}}, {{100}}, {{100}}};

// float32, 4 bytes per element, unless stated otherwise.
const std::vector<PlanCase> kTable = {
    {"the header's example, 0.0016 MiB", kToy, 1677, {{2, 1}, {0}}},
    {"the header's example, 0.0001 MiB", kToy, 104, {{2}, {1}, {0}}},
    {"the header's example, 0.01 MiB", kToy, 10485, {{2, 1, 0}}},
    {"the smallest cap", kToy, 1, {{2}, {1}, {0}}},
    {"the largest cap", kToy, std::numeric_limits<std::int64_t>::max(), {{2, 1, 0}}},
    {"a cap that is reached exactly", kFourEqual, 800, {{3, 2}, {1, 0}}},
    {"a byte more than two parameters", kFourEqual, 801, {{3, 2, 1}, {0}}},
    {"four bytes less than a cap of 100 MiB",
     {{{1}, at::kFloat, true, -1, at::kMeta},
      {{1}, at::kFloat, true, -1, at::kMeta},
      {{(25 << 20) - 1}, at::kFloat, true, -1, at::kMeta}},
     100 << 20,
     {{2, 1}, {0}}},
    {"a parameter larger than the cap, after a small one",
     {{{10}}, {{1000}}, {{10}}},
     400,
     {{2, 1}, {0}}},
    {"a scalar and a matrix", {{{}}, {{3, 7}}}, 84, {{1}, {0}}},
    {"frozen parameters", {{{10}}, {{10}, at::kLong, false}, {{10}}}, 1000, {{2, 0}}},
    {"frozen parameters only", {{{10}, at::kFloat, false}}, 1000, {}},
    {"tied weights, listed first and last",
     {{{10}}, {{20}}, {{}, at::kFloat, true, 0}},
     60,
     {{1}, {0}}},
    {"tied weights side by side, one bucket",
     {{{10}}, {{20}}, {{}, at::kFloat, true, 1}},
     1000,
     {{1, 0}}},
    {"the same shapes, not tied", {{{10}}, {{20}}, {{20}}}, 1000, {{2, 1, 0}}},
    {"tied and frozen", {{{9}, at::kFloat, false}, {{9}}, {{}, at::kFloat, false, 0}}, 9, {{1}}},
    {"an empty tensor, which fills nothing", {{{10}}, {{0}}, {{10}}}, 1, {{2}, {1, 0}}},
    {"two empty tensors at the end", {{{0}}, {{0, 5}}, {{10}}}, 1, {{2}, {1, 0}}},
    {"alternating dtypes",
     {{{100}}, {{100}, at::kDouble}, {{100}}, {{100}, at::kDouble}},
     800,
     {{3}, {1}, {2, 0}}},
    {"alternating dtypes, one bucket each",
     {{{10}}, {{10}, at::kHalf}, {{10}, at::kBFloat16}, {{10}}, {{10}, at::kHalf}},
     1000,
     {{2}, {4, 1}, {3, 0}}},
    {"a bucket that stays open between two that are full",
     {{{100}}, {{10}, at::kDouble}, {{100}}},
     400,
     {{2}, {1}, {0}}},
    {"alternating devices",
     {{{10}},
      {{10}, at::kFloat, true, -1, at::kMeta},
      {{10}},
      {{10}, at::kFloat, true, -1, at::kMeta}},
     1000,
     {{3, 1}, {2, 0}}},
    {"more bytes than 32 bits can count",
     {{{10}, at::kFloat, true, -1, at::kMeta},
      {{std::int64_t{1} << 30}, at::kFloat, true, -1, at::kMeta},
      {{std::int64_t{1} << 30}, at::kFloat, true, -1, at::kMeta}},
     std::int64_t{1} << 33,
     {{2, 1}, {0}}},
    {"more elements than 32 bits can count, below the cap",
     {{{10}, at::kFloat, true, -1, at::kMeta},
      {{std::int64_t{1} << 33}, at::kFloat, true, -1, at::kMeta}},
     std::int64_t{1} << 40,
     {{1, 0}}},
};

Weight random_weight(std::mt19937_64& random, int index) {
  const auto below = [&](int limit) { return static_cast<int>(random() % limit); };
  constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kFloat, at::kDouble, at::kBFloat16};
  return {.shape = {below(8) == 0 ? 0 : 1 + below(200)},
          .dtype = kDtypes[below(4)],
          .trainable = below(6) > 0,
          .tied_to = index > 0 && below(8) == 0 ? below(index) : -1,
          .device = below(4) == 0 ? at::kMeta : at::kCPU};
}

// The table, and random lists that are the same for ranks and parent.
std::vector<PlanCase> all_cases() {
  constexpr int kLists = 300;
  std::vector<PlanCase> cases = kTable;
  std::mt19937_64 random(settings().seed);
  for (int list = 0; list < kLists; ++list) {
    PlanCase& one = cases.emplace_back();
    one.about = "a random list";
    one.by_rules_alone = true;
    const int length = 1 + static_cast<int>(random() % 24);
    for (int i = 0; i < length; ++i) {
      one.weights.push_back(random_weight(random, i));
    }
    one.cap_bytes = 1 + static_cast<std::int64_t>(random() % (std::uint64_t{1} << (list % 14)));
  }
  return cases;
}

void make_plans(Client& client) {
  std::int64_t index = 0;
  for (const PlanCase& one : all_cases()) {
    const at::AutoGradMode autograd(index % 2 == 0);  // which has no say in it
    client.value(kBucketPlan, as_tensor(assign_buckets(make_weights(one.weights), one.cap_bytes)),
                 index++);
  }
}

constexpr std::int64_t kNothingMuch = 1024;  // bytes; the parameters below have 840,000

// Whether it changes tensors or gradients, keeps a state or allocates, only the rank can see.
void look_at_purity(Client& client) {
  auto parameters = make_weights({{{300, 100}}, {{100, 100}}, {{70000}, at::kDouble}});
  parameters.push_back(at::zeros({100, 300}).t().set_requires_grad(true));
  std::vector<std::int64_t> versions;
  versions.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    versions.push_back(static_cast<std::int64_t>(parameter._version()));
  }
  const MemoryMeter meter;
  const Plan plan = assign_buckets(parameters, 50'000);
  client.fact("peak bytes", meter.peak_bytes());
  std::vector<at::Tensor> with_hole = parameters;
  with_hole.emplace(with_hole.begin());
  try {
    static_cast<void>(assign_buckets(with_hole, 1 << 30));  // what it has begun with is no more
  } catch (const c10::Error&) {                             // as it must; another test says so
  }
  client.fact("same again", plan == assign_buckets(parameters, 50'000));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool untouched = parameters[i].requires_grad() && !parameters[i].grad().defined() &&
                           parameters[i]._version() == versions[i];
    client.fact("untouched", untouched, static_cast<std::int64_t>(i));
  }
  const auto plan_again = [&] {
    client.fact("of what they are now",
                broken_rule(assign_buckets(parameters, 50'000), parameters, 50'000).empty());
  };
  parameters[1].set_requires_grad(false);
  plan_again();
  parameters[0].set_data(at::zeros({7}, at::kDouble));
  plan_again();
}

std::string wrong_plan(const PlanCase& one, const Plan& plan) {
  const auto parameters = make_weights(one.weights);
  const std::string broken = broken_rule(plan, parameters, one.cap_bytes);
  if (broken.empty() && (one.by_rules_alone || plan == one.expected)) {
    return "";
  }
  return "the plan for \"" + one.about + "\" (cap " + std::to_string(one.cap_bytes) +
         (one.cap_bytes == 1 ? " byte" : " bytes") + ") is " + to_string(plan) +
         (one.by_rules_alone ? "" : ", expected " + to_string(one.expected)) + ": " + broken +
         describe(parameters);
}

// Which rule a plan breaks: the message without its numbers and kinds.
std::string rule_of(const std::string& broken) {
  return std::regex_replace(broken, std::regex("\\w+ on \\w+|[0-9{}, :]"), "");
}

// The first plan that breaks each rule.
Finding wrong_plans(const Evidence& evidence) {
  const std::vector<PlanCase> cases = all_cases();
  std::set<std::string> rules;
  std::string text;
  first_event(evidence, EventKind::kValue, [&](const Seen& seen, int) {
    const PlanCase& one = cases.at(seen.index);
    const Plan plan = as_plan(seen.value);
    const std::string wrong = wrong_plan(one, plan);
    if (!wrong.empty() &&
        rules.insert(rule_of(broken_rule(plan, make_weights(one.weights), one.cap_bytes))).second) {
      text += (text.empty() ? "" : "\n  another rule is broken as well: ") + wrong;
    }
    return std::string();
  });
  return text;
}

Finding impure(const Evidence& evidence) {
  return first_event(evidence, EventKind::kFact, [](const Seen& seen, int) -> std::string {
    const std::string_view what = seen.text;
    if (what == "peak bytes" && seen.number > kNothingMuch) {
      return "assign_buckets() allocates tensors; a plan needs only their sizes in bytes";
    }
    if (what == "same again" && seen.number == 0) {
      return "assign_buckets() gave another plan when called again: it keeps a state between calls";
    }
    if (what == "of what they are now" && seen.number == 0) {
      return "assign_buckets() planned for what these tensors were at an earlier call; since then "
             "one was frozen, or got another shape and dtype";
    }
    return what == "untouched" && seen.number == 0
               ? "assign_buckets() has changed parameter " + std::to_string(seen.index)
               : "";
  });
}

constexpr const char* kPlans = "plan_follows_the_rules";

// What excuses other tests there must be paid for.
Finding another_plan_in_training(const Evidence& evidence) {
  Finding found = plan_is_wrong(evidence);
  found.text = found.empty()
                   ? ""
                   : "assign_buckets() follows the rules where it is called by itself, and "
                     "not for the parameters of a synchronizer";
  return found;
}

const GradedTest kPlan{
    {.name = kPlans,
     .title = "The plan follows the rules",
     .points = 3,
     .hint = "assign_buckets(): go through the parameters from the last to the first, one open "
             "bucket for each dtype and device; add first, then ask whether the cap is reached.",
     .more = "Do the failing list by hand, with a sheet of paper for each dtype and device: which "
             "buckets are open, how many bytes has each, when is one closed? Four rules are "
             "easily missed: add first, then compare; the order within a bucket; the order of "
             "buckets, also of those left open at the end; a tensor that is listed twice. Which "
             "one differs?"},
    [] {
      const auto run = [](Client& client) {
        make_plans(client);
        look_at_purity(client);
      };
      judge({{"plans, without any execution", {.ranks = 1}, run, kPlans}},
            all_of({wrong_plans, impure}));
      if (!::testing::Test::HasFailure()) {
        judge(joined({overlapping(), without_overlap(), timed()}), another_plan_in_training);
      }
    }};

}  // namespace

}  // namespace ddp::testing
