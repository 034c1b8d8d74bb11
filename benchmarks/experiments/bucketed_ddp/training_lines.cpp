#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>

#include "ddp/meters/statistics.h"
#include "experiments/bucketed_ddp/bucketed_ddp.h"

namespace ddp {
namespace {

// One training variant, with one batch size and sequence length.
struct Training {
  std::int64_t batch = 0, length = 0;
  std::string variant;
  std::optional<std::int64_t> megabytes, cap_bytes;
  std::map<std::string, double> seconds = {};  // of each part: the mean, maximum over all ranks

  bool same_data(const Training& other) const {
    return batch == other.batch && length == other.length;
  }
};

// The series of one training are adjacent: its parts, each on all ranks.
std::vector<Training> trainings_of(const Result& result) {
  std::vector<Training> trainings;
  for (const Series& series : result.series) {
    const Training now = {.batch = *label_of<std::int64_t>(series, kBatchLabel),
                          .length = *label_of<std::int64_t>(series, kLengthLabel),
                          .variant = *label_of<std::string>(series, kVariantLabel),
                          .megabytes = label_of<std::int64_t>(series, kMegabytesLabel),
                          .cap_bytes = label_of<std::int64_t>(series, kCapLabel)};
    if (trainings.empty() || !trainings.back().same_data(now) ||
        trainings.back().variant != now.variant || trainings.back().megabytes != now.megabytes) {
      trainings.push_back(now);
    }
    double& seconds = trainings.back().seconds[*label_of<std::string>(series, kPartLabel)];
    seconds = std::max(seconds, summarize(series.values).mean);
  }
  return trainings;
}

// In the form in which torch prints a tensor of one element.
std::string as_tensor(double value, const std::string& device) {
  char text[64];
  const bool tiny = value != 0 && std::abs(value) < 1e-4;
  std::snprintf(text, sizeof(text), tiny ? "%.4e" : "%.4f", value);
  return std::string("tensor([") + text + "]" + (device == "cuda" ? ", device='cuda:0'" : "") + ")";
}

void print(const Training& training, const std::vector<Training>& all, const std::string& device,
           std::ostream& text) {
  text << "Training DDP model, local_bs: " << training.batch << ", seq_len: " << training.length;
  if (training.megabytes) {
    text << ", bucket_size_mb: " << *training.megabytes;
    if (*training.cap_bytes != *training.megabytes << 20) {
      text << " (of xl's gradients; here " << *training.cap_bytes << " bytes)";
    }
  } else {
    text << ", variant: " << training.variant;
  }
  const double train = training.seconds.at("train");
  text << "\ntotal time train: " << as_tensor(train, device) << "\n";
  if (training.variant == kComputeOnly) {
    return;
  }
  const char* what = "grad all reduce";
  double reduce = training.seconds.at("all-reduce");
  if (training.variant == kReducerVariant) {
    what = "backward beyond compute only";
    const auto alone = std::ranges::find_if(all, [&](const Training& other) {
      return other.variant == kComputeOnly && other.same_data(training);
    });
    reduce = training.seconds.at("backward") - alone->seconds.at("backward");
  }
  text << "total time " << what << ": " << as_tensor(reduce, device) << "\n"
       << "ratio " << what << " to train time: " << as_tensor(reduce / train, device) << "\n";
}

}  // namespace

std::string training_lines(const Result& result) {
  const std::vector<Training> trainings = trainings_of(result);
  std::ostringstream text;
  for (const bool bucketed : {true, false}) {
    for (const Training& training : trainings) {
      if (training.megabytes.has_value() == bucketed) {
        print(training, trainings, result.run.device, text);
      }
    }
  }
  return text.str();
}

}  // namespace ddp
