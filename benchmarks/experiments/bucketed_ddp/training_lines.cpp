#include "experiments/bucketed_ddp/training_lines.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>

#include "ddp/meters/statistics.h"
#include "harness/variants.h"

namespace ddp {
namespace {

// One training variant, with one batch size and sequence length.
struct Training {
  std::int64_t batch = 0, length = 0;
  std::string variant;
  std::optional<std::int64_t> megabytes, cap_bytes;
  std::map<std::string, double> seconds;  // of each part: the mean, maximum over all ranks
};

template <typename T>
std::optional<T> label(const Series& series, const std::string& name) {
  for (const auto& [own_name, value] : series.labels) {
    if (own_name == name) {
      return std::get<T>(value);
    }
  }
  return std::nullopt;
}

// The series of one training are adjacent: its parts, each on all ranks.
std::vector<Training> trainings_of(const Result& result) {
  std::vector<Training> trainings;
  for (const Series& series : result.series) {
    const Training now = {.batch = *label<std::int64_t>(series, kBatchLabel),
                          .length = *label<std::int64_t>(series, kLengthLabel),
                          .variant = *label<std::string>(series, kVariantLabel),
                          .megabytes = label<std::int64_t>(series, kMegabytesLabel),
                          .cap_bytes = label<std::int64_t>(series, kCapLabel),
                          .seconds = {}};
    const auto same = [&](const Training& other) {
      return other.batch == now.batch && other.length == now.length &&
             other.variant == now.variant && other.megabytes == now.megabytes;
    };
    if (trainings.empty() || !same(trainings.back())) {
      trainings.push_back(now);
    }
    double& seconds = trainings.back().seconds[*label<std::string>(series, kPartLabel)];
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

std::string bucket_in_words(const Training& training) {
  std::ostringstream text;
  text << "bucket_size_mb: " << *training.megabytes;
  if (*training.cap_bytes != *training.megabytes << 20) {
    text << " (of xl's gradients; here " << *training.cap_bytes << " bytes)";
  }
  return text.str();
}

class Lines {
 public:
  explicit Lines(const Result& result)
      : device_(result.run.device), trainings_(trainings_of(result)) {}

  std::string text() {
    for (const bool bucketed : {true, false}) {
      for (const Training& training : trainings_) {
        if (training.megabytes.has_value() == bucketed) {
          add(training);
        }
      }
    }
    return text_.str();
  }

 private:
  void add(const Training& training) {
    text_ << "Training DDP model, local_bs: " << training.batch << ", seq_len: " << training.length
          << ", "
          << (training.megabytes ? bucket_in_words(training) : "variant: " + training.variant)
          << "\n";
    const double train = training.seconds.at("train");
    text_ << "total time train: " << as_tensor(train, device_) << "\n";
    if (training.variant == kComputeOnly) {
      return;
    }
    const bool inside = training.variant == "Reducer";
    const double reduce = inside ? beyond_computing(training) : training.seconds.at("all-reduce");
    const char* what = inside ? "backward beyond compute only" : "grad all reduce";
    text_ << "total time " << what << ": " << as_tensor(reduce, device_) << "\n"
          << "ratio " << what << " to train time: " << as_tensor(reduce / train, device_) << "\n";
  }

  double beyond_computing(const Training& training) const {
    for (const Training& other : trainings_) {
      if (other.variant == kComputeOnly && other.batch == training.batch &&
          other.length == training.length) {
        return training.seconds.at("backward") - other.seconds.at("backward");
      }
    }
    return std::nan("");
  }

  const std::string device_;
  const std::vector<Training> trainings_;
  std::ostringstream text_;
};

}  // namespace

std::string training_lines(const Result& result) { return Lines(result).text(); }

}  // namespace ddp
