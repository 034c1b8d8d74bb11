#include "plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "ddp/libtorch_versions.h"

namespace ddp::testing {

namespace {

using Indices = std::vector<std::size_t>;
// What all members of a bucket must have in common, such as "float32 on cpu".
using Common = std::string;

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
               ", and counts there, but it is in " + name_of(plan, b);
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
      return name_of(plan, b) + " does not have its members in reverse order of the parameters";
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
      return name + " has a parameter that is visited before the last one of " +
             name_of(plan, buckets[i - 1]) + ", which is of the same kind";
    }
    std::int64_t bytes = 0;
    for (const std::size_t index : bucket) {
      if (bytes >= cap_bytes) {
        return name + " had reached the cap of " + std::to_string(cap_bytes) + " bytes with " +
               std::to_string(bytes) + " bytes, before parameter " + std::to_string(index) +
               " was added";
      }
      bytes += bytes_of(parameters[index]);
    }
    if (bytes < cap_bytes && i + 1 < buckets.size()) {
      return name + " was closed with " + std::to_string(bytes) +
             " bytes, before it had reached the cap of " + std::to_string(cap_bytes) +
             " bytes, and more parameters of its kind follow";
    }
  }
  return "";
}

std::string broken_order(const Plan& plan) {
  for (std::size_t b = 1; b < plan.size(); ++b) {
    if (plan[b].back() > plan[b - 1].back()) {
      return name_of(plan, b) + " should come before " + name_of(plan, b - 1) +
             ": buckets go by their last member, descending";
    }
  }
  return "";
}

}  // namespace

std::size_t first_occurrence(const std::vector<at::Tensor>& parameters, std::size_t index) {
  std::size_t first = 0;
  while (!parameters[first].is_same(parameters[index])) {
    ++first;
  }
  return first;
}

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

at::Tensor as_tensor(const Plan& plan) {
  std::vector<std::int64_t> numbers;
  for (const auto& bucket : plan) {
    numbers.insert(numbers.end(), bucket.begin(), bucket.end());
    numbers.push_back(-1);
  }
  return at::tensor(numbers, at::kLong);
}

Plan as_plan(const at::Tensor& numbers) {
  Plan plan;
  std::vector<std::size_t> bucket;
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    const auto number = numbers[i].item<std::int64_t>();
    if (number >= 0) {
      bucket.push_back(number);
    } else {
      plan.push_back(std::exchange(bucket, {}));
    }
  }
  return plan;
}

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

}  // namespace ddp::testing
