#include "shards.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "support/compare.h"
#include "support/training_claims.h"
#include "support/training_evidence.h"

namespace ddp::testing {

namespace {

bool is_norm(const Seen* launch) {
  return is_all_reduce(*launch) && launch->elements == 1 && launch->dtype == at::kDouble;
}

}  // namespace

std::string first_in_buckets(const Evidence& evidence, const StepCheck& check) {
  if (!launched_inside_no_sync(evidence).empty()) {
    return "";  // no_sync_is_silent() says so
  }
  return first_on_ranks(
      evidence,
      [&](const TrainingOfRank& training, const TrainingStep& step, int number,
          std::size_t ranks) -> std::string {
        const bool alone = ranks == 1 && std::ranges::all_of(step.launches, is_norm);
        const std::string text =
            !step.ended || alone ? "" : check(training, step, buckets_of(training, ranks));
        return text.empty() ? "" : in(training, number) + ": " + text;
      });
}

std::string name_of(const std::vector<Bucket>& buckets, std::size_t b) {
  std::string text =
      "bucket " + std::to_string(b) + " of " + std::to_string(buckets.size()) + ", of ";
  for (std::size_t i = 0; i < std::min<std::size_t>(buckets[b].layers.size(), 4); ++i) {
    text += (i > 0 ? ", " : "") + layer(buckets[b].layers[i]);
  }
  return text + (buckets[b].layers.size() > 4 ? " ..." : "");
}

std::string listed(const std::vector<std::int64_t>& bytes) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(bytes.size(), 12); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(bytes[i]);
  }
  return bytes.empty() ? "nothing" : text + (bytes.size() > 12 ? " ..." : "") + " bytes";
}

std::vector<std::int64_t> bytes_of(const std::vector<const Seen*>& launches) {
  std::vector<std::int64_t> bytes;
  for (const Seen* launch : launches) {
    bytes.push_back(launch->bytes);
  }
  return bytes;
}

std::vector<std::int64_t> bytes_of(const std::vector<Bucket>& buckets, std::size_t chunks) {
  std::vector<std::int64_t> bytes;
  for (const Bucket& bucket : buckets) {
    bytes.push_back(bucket.chunk_bytes() * static_cast<std::int64_t>(chunks));
  }
  return bytes;
}

std::size_t ranks_of(const Evidence& evidence, const TrainingOfRank& training) {
  return members_of(evidence.world, training.group).size();
}

namespace {

// What is wrong with the launches of one kind, as a set.
std::string wrong_set(const char* kind, std::vector<std::int64_t> actual,
                      std::vector<std::int64_t> expected) {
  const auto in_order = expected;
  std::ranges::sort(actual);
  std::ranges::sort(expected);
  if (actual == expected) {
    return "";
  }
  return std::to_string(actual.size()) + " " + kind + "s, and there are " +
         std::to_string(expected.size()) + " buckets" +
         (actual.size() == expected.size() ? ", of other sizes" : "") +
         "; expected (in plan order): " + listed(in_order) + "; got: " + listed(actual);
}

// What is wrong with what is in a rank's shards after construction.
std::string wrong_values(const Evidence& evidence, const std::vector<TrainingOfRank>& ranks,
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

Launches launches_of(const TrainingStep& step) {
  Launches launches;
  for (const Seen* launch : step.launches) {
    const bool empty = launch->bytes == 0 && launch->type != c10d::OpType::BARRIER;
    if (empty || launch->place.no_sync || launch->place.phase == Phase::kDestruction) {
      continue;  // nothing, or other claims' business
    }
    auto& kind = is_reduce_scatter(*launch) ? launches.reduce_scatters
                 : is_all_gather(*launch)   ? launches.all_gathers
                                            : launches.others;
    kind.push_back(launch);
  }
  return launches;
}

std::string each_bucket_once(const Evidence& evidence) {
  return first_in_buckets(
      evidence,
      [&](const TrainingOfRank& training, const TrainingStep& step,
          const std::vector<Bucket>& buckets) -> std::string {
        const std::size_t ranks = ranks_of(evidence, training);
        Launches launches = launches_of(step);
        const bool clips = training.others.at("max norm").item<double>() > 0;
        const auto norm = std::ranges::find_if(launches.others, is_norm);
        if (clips && norm != launches.others.end()) {
          launches.others.erase(norm);
        }
        if (!launches.others.empty()) {
          return describe_operation(*launches.others.front()) +
                 " is neither needed nor allowed: a step makes one reduce-scatter and one "
                 "all-gather "
                 "for each bucket" +
                 (clips ? ", and for the norm one all-reduce of one float64 number" : "");
        }
        std::string text = wrong_set("reduce-scatter", bytes_of(launches.reduce_scatters),
                                     bytes_of(buckets, ranks));
        return text.empty()
                   ? wrong_set("all-gather", bytes_of(launches.all_gathers), bytes_of(buckets, 1))
                   : text;
      });
}

std::string each_bucket_has_a_shard(const Evidence& evidence) {
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
        std::string text = on(training) + ": the factory made optimizers for shards of";
        for (const auto& [elements, dtype] : actual) {
          text += " " + std::to_string(elements);
        }
        text += " elements; in plan order, and padded to " + std::to_string(ranks.size()) +
                " equal chunks, they have";
        for (const auto& [elements, dtype] : expected) {
          text += " " + std::to_string(elements);
        }
        return text;
      }
      if (std::string text = wrong_values(evidence, ranks, training, model); !text.empty()) {
        return text;
      }
    }
  }
  return "";
}

}  // namespace ddp::testing
