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
std::string in_words(const std::vector<std::int64_t>& bytes) {
  const auto number = [](std::int64_t each) { return std::to_string(each); };
  return bytes.empty() ? "nothing" : enumerated(bytes, number) + " bytes";
}

std::string in_words(const std::vector<Payload>& shards) {
  const auto words = [](const Payload& each) { return to_string(each); };
  return shards.empty() ? "nothing" : enumerated(shards, words, shards.size());
}

Finding wrong_bytes_of(const StepOfRank& step, const char* kind, const Events& launches,
                       std::size_t chunks, Compared how) {
  std::vector<std::int64_t> actual;
  std::vector<std::int64_t> expected;
  for (const Seen* launch : launches) {
    actual.push_back(launch->bytes);
  }
  for (const Bucket& bucket : step.buckets) {
    expected.push_back(bucket.bytes(bucket.chunk(step.ranks)) * static_cast<std::int64_t>(chunks));
  }
  const bool same_set = std::ranges::is_permutation(actual, expected);
  if (how == Compared::kInOrder) {
    const auto words = [](const std::vector<std::int64_t>& all) {
      std::vector<std::string> texts;
      std::ranges::transform(all, std::back_inserter(texts),
                             [](std::int64_t each) { return std::to_string(each) + " bytes"; });
      return texts;
    };
    return !same_set || actual == expected
               ? Finding()
               : Finding(std::string(kind) +
                         "s did not start in plan order, in which a bucket that is full early "
                         "waits its turn. Expected: " +
                         in_words(expected) + "; got: " + in_words(actual))
                     .in_order(words(expected), words(actual));
  }
  std::ranges::sort(actual);
  if (same_set) {
    return "";
  }
  return Finding("a step should make one " + std::string(kind) +
                 " for each bucket. Due: " + in_words(expected) + "; launched: " + in_words(actual))
      .at(launches.empty() ? nullptr : launches.back(),
          actual.size() < expected.size() ? "missing operation" : "extra operation");
}

// What is wrong with what is in a rank's shards after construction.
Finding wrong_values(const std::vector<TrainingOfRank>& ranks, const TrainingOfRank& training) {
  const Buckets buckets = full_buckets_of(training);
  const auto place = &training - ranks.data();
  return first_in(training[kShard], [&](const auto& shard) {
    const Bucket& bucket = buckets.at(shard.first);
    const std::int64_t chunk = bucket.chunk(ranks.size());
    at::Tensor flat = at::zeros({chunk * static_cast<std::int64_t>(ranks.size())}, bucket.dtype);
    std::int64_t offset = 0;
    for (const std::int64_t layer : bucket.layers) {
      const at::Tensor& start = ranks[0][kStart].at(layer);
      flat.narrow(0, offset, start.numel()).copy_(start.reshape({-1}));
      offset += start.numel();
    }
    const Subject subject{on(training.rank) + ": after construction the shard of " +
                          name_of(buckets, static_cast<std::size_t>(shard.first))};
    return said(is_bitwise_equal(subject, shard.second, flat.narrow(0, place * chunk, chunk)));
  });
}

}  // namespace

std::string name_of(const Buckets& buckets, std::size_t b) {
  return "bucket " + std::to_string(b) + " of " + std::to_string(buckets.size()) + ", of " +
         enumerated(buckets[b].layers, layer, 4);
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
          if (!has_ended(step) || (ranks == 1 && std::ranges::all_of(step.launches(), is_norm))) {
            return "";
          }
          StepOfRank own{evidence, training, step, ranks, full_buckets_of(training)};
          for (const Seen* launch : step.launches()) {
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
  Events others = step.others;
  const bool clips = step.training.tensor(kMaxNorm).item<double>() > 0;
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
  return first_training(evidence, [](const TrainingOfRank& training, const auto& ranks) -> Finding {
    if (training.last(kNoShard) != nullptr) {
      return on(training.rank) + ": the factory was given a " + std::string(kNoShard);
    }
    std::vector<Payload> actual;
    std::vector<Payload> expected;
    for (const Seen* shard : training[kShardMade]) {
      actual.push_back({shard->number, static_cast<at::ScalarType>(shard->index)});
    }
    for (const Bucket& bucket : full_buckets_of(training)) {
      expected.push_back({bucket.chunk(ranks.size()), bucket.dtype});
    }
    if (!training[kParameter].empty() && actual != expected) {
      return on(training.rank) + ": the factory made optimizers for shards of " + in_words(actual) +
             "; in plan order, and padded to " + std::to_string(ranks.size()) +
             " equal chunks, they have " + in_words(expected);
    }
    return wrong_values(ranks, training);
  });
}

}  // namespace ddp::testing
