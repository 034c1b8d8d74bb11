#include <ATen/ATen.h>

#include <algorithm>

#include "claims.h"
#include "grader/compare.h"
#include "grader/training_claims.h"
#include "grader/training_evidence.h"

// Buckets and their shards: what each step launches for them, and what they hold.

namespace ddp::testing {

namespace {

bool is_norm(const Seen* launch) {
  return is_all_reduce(*launch) && launch->elements == 1 && launch->dtype == at::kDouble;
}

// "12, 24 bytes".
std::string listed(const std::vector<std::int64_t>& bytes) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(bytes.size(), 12); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(bytes[i]);
  }
  return bytes.empty() ? "nothing" : text + (bytes.size() > 12 ? " ..." : "") + " bytes";
}

// "107 float32, 3 bfloat16", which are elements and dtypes.
std::string listed(const std::vector<std::pair<std::int64_t, std::int64_t>>& shards) {
  std::string text;
  for (const auto& [elements, dtype] : shards) {
    text += (text.empty() ? "" : ", ") + std::to_string(elements) + " " +
            dtype_name(static_cast<at::ScalarType>(dtype));
  }
  return text.empty() ? "nothing" : text;
}

Finding wrong_bytes_of(const StepOfRank& step, const char* kind,
                       const std::vector<const Seen*>& launches, std::size_t chunks, Compared how) {
  std::vector<std::int64_t> actual;
  std::vector<std::int64_t> expected;
  for (const Seen* launch : launches) {
    actual.push_back(launch->bytes);
  }
  for (const Bucket& bucket : step.buckets) {
    expected.push_back(bucket.chunk_bytes() * static_cast<std::int64_t>(chunks));
  }
  const bool same_set = std::ranges::is_permutation(actual, expected);
  if (how == Compared::kInOrder) {
    return !same_set || actual == expected
               ? ""
               : std::string(kind) +
                     "s did not start in the order of the plan, in which a bucket that is complete "
                     "early waits its turn. Expected: " +
                     listed(expected) + "; got: " + listed(actual);
  }
  std::ranges::sort(actual);
  if (same_set) {
    return "";
  }
  return Finding(std::to_string(actual.size()) + " " + kind + "s, and there are " +
                 std::to_string(expected.size()) + " buckets" +
                 (actual.size() == expected.size() ? ", of other sizes" : "") +
                 "; expected (in plan order): " + listed(expected) + "; got: " + listed(actual))
      .at(launches.empty() ? nullptr : launches.back(),
          actual.size() < expected.size() ? "missing operation" : "extra operation");
}

// What is wrong with what is in a rank's shards after construction.
Finding wrong_values(const Evidence& evidence, const std::vector<TrainingOfRank>& ranks,
                     const TrainingOfRank& training, int model) {
  const std::vector<Bucket> buckets = buckets_of(training, ranks.size());
  const auto place = &training - ranks.data();
  for (const Seen& seen : evidence.of[training.rank]) {
    if (seen.kind != EventKind::kValue || seen.text != "shard" || seen.place.model != model) {
      continue;
    }
    const Bucket& bucket = buckets.at(seen.index);
    const auto count = static_cast<std::int64_t>(ranks.size());
    at::Tensor flat = at::zeros({bucket.chunk * count}, bucket.dtype);
    std::int64_t offset = 0;
    for (const std::int64_t layer : bucket.layers) {
      const at::Tensor& start = ranks[0].start.at(layer);
      flat.narrow(0, offset, start.numel()).copy_(start.reshape({-1}));
      offset += start.numel();
    }
    const Subject subject{on(training) + ": after construction the shard of " +
                          name_of(buckets, static_cast<std::size_t>(seen.index))};
    if (auto text = said(is_bitwise_equal(subject, seen.value,
                                          flat.narrow(0, place * bucket.chunk, bucket.chunk)));
        !text.empty()) {
      return text;
    }
  }
  return "";
}

}  // namespace

std::vector<Bucket> buckets_of(const TrainingOfRank& training, std::size_t ranks) {
  std::vector<Bucket> buckets;
  const auto plan = training.others.find("plan");
  if (plan == training.others.end()) {
    return buckets;
  }
  Bucket bucket;
  for (std::int64_t i = 0; i < plan->second.numel(); ++i) {
    if (const auto index = plan->second[i].item<std::int64_t>(); index >= 0) {
      const std::int64_t layer = training.listed[index];
      bucket.layers.push_back(layer);
      bucket.dtype = training.parameter.at(layer).scalar_type();
      bucket.elements += training.parameter.at(layer).numel();
      continue;
    }
    const auto count = static_cast<std::int64_t>(ranks);
    bucket.chunk = (bucket.elements + count - 1) / count;
    Bucket next;
    if (bucket.elements > 0) {
      buckets.push_back(bucket);
    } else {
      next.empty_before = std::move(bucket.empty_before);
      std::ranges::copy(bucket.layers, std::back_inserter(next.empty_before));
    }
    bucket = std::move(next);
  }
  return buckets;
}

std::string name_of(const std::vector<Bucket>& buckets, std::size_t b) {
  std::string text =
      "bucket " + std::to_string(b) + " of " + std::to_string(buckets.size()) + ", of ";
  for (std::size_t i = 0; i < std::min<std::size_t>(buckets[b].layers.size(), 4); ++i) {
    text += (i > 0 ? ", " : "") + layer(buckets[b].layers[i]);
  }
  return text + (buckets[b].layers.size() > 4 ? " ..." : "");
}

Predicate in_each_step(Finding (*check)(const StepOfRank& step)) {
  return [check](const Evidence& evidence) -> Finding {
    if (!launched_inside_no_sync(evidence).empty()) {
      return "";  // no_sync_is_silent() says so
    }
    return first_on_ranks(
        evidence,
        [&](const TrainingOfRank& training, const TrainingStep& step,
            std::size_t ranks) -> Finding {
          if (!step.ended || (ranks == 1 && std::ranges::all_of(step.launches, is_norm))) {
            return "";
          }
          StepOfRank own{evidence, training, step, ranks, buckets_of(training, ranks)};
          for (const Seen* launch : step.launches) {
            const bool empty = launch->bytes == 0 && launch->type != c10d::OpType::BARRIER;
            if (empty || launch->place.no_sync || launch->place.phase == Phase::kDestruction) {
              continue;  // nothing, or other claims' business
            }
            auto& kind = is_reduce_scatter(*launch) ? own.reduce_scatters
                         : is_all_gather(*launch)   ? own.all_gathers
                                                    : own.others;
            kind.push_back(launch);
          }
          return check(own);
        });
  };
}

Finding wrong_bytes(const StepOfRank& step, Compared how) {
  const Finding text =
      wrong_bytes_of(step, "reduce-scatter", step.reduce_scatters, step.ranks, how);
  return text.empty() ? wrong_bytes_of(step, "all-gather", step.all_gathers, 1, how) : text;
}

Finding each_bucket_once(const StepOfRank& step) {
  std::vector<const Seen*> others = step.others;
  const bool clips = step.training.others.at("max norm").item<double>() > 0;
  const auto norm = std::ranges::find_if(others, is_norm);
  if (clips && norm != others.end()) {
    others.erase(norm);
  }
  if (!others.empty()) {
    return Finding(describe_operation(*others.front()) +
                   " is neither needed nor allowed: a step makes one reduce-scatter and one "
                   "all-gather for each bucket" +
                   (clips ? ", and for the norm one all-reduce of one float64 number" : ""))
        .at(others.front(), "extra operation");
  }
  return wrong_bytes(step, Compared::kAsSet);
}

Finding each_bucket_has_a_shard(const Evidence& evidence) {
  for (const auto& [model, ranks] : trainings_in(evidence)) {
    for (const TrainingOfRank& training : ranks) {
      std::vector<std::pair<std::int64_t, std::int64_t>> actual;
      std::vector<std::pair<std::int64_t, std::int64_t>> expected;
      for (const Seen& seen : evidence.of[training.rank]) {
        if (seen.kind != EventKind::kFact || seen.place.model != model) {
          continue;
        }
        if (seen.text == "shard that is not a flat leaf with a gradient") {
          return on(training) + ": the factory was given a " + seen.text;
        }
        if (seen.text == "shard") {
          actual.emplace_back(seen.number, seen.index);
        }
      }
      for (const Bucket& bucket : buckets_of(training, ranks.size())) {
        expected.emplace_back(bucket.chunk, static_cast<std::int64_t>(bucket.dtype));
      }
      if (!training.parameter.empty() && actual != expected) {
        return on(training) + ": the factory made optimizers for shards of " + listed(actual) +
               "; in plan order, and padded to " + std::to_string(ranks.size()) +
               " equal chunks, they have " + listed(expected);
      }
      if (Finding text = wrong_values(evidence, ranks, training, model); !text.empty()) {
        return text;
      }
    }
  }
  return "";
}

}  // namespace ddp::testing
