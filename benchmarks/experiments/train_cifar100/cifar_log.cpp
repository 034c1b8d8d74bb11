#include "experiments/train_cifar100/cifar_log.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>

#include "ddp/ranks/stage_library.h"
#include "harness/machine.h"
#include "harness/variants.h"
#include "peers/batch_norms.h"

namespace ddp {
namespace {

// The columns of a record: the numbers of a CifarPass of training, then those of validation.
enum Number : std::int64_t { kLossSum, kCorrect, kImages, kSeconds, kNumbers };
constexpr std::int64_t kValidation = kNumbers;

void append(std::vector<double>& numbers, const CifarPass& pass) {
  numbers.insert(numbers.end(), {pass.loss_sum, pass.correct, pass.images, pass.seconds});
}

// Over all ranks' images, for each epoch; `pass` is 0 or kValidation.
at::Tensor mean_over_images(const at::Tensor& record, std::int64_t pass, Number number) {
  return record.select(2, pass + number).sum(1) / record.select(2, pass + kImages).sum(1);
}

std::vector<double> to_vector(const at::Tensor& values) {
  const at::Tensor dense = values.contiguous();
  return {dense.const_data_ptr<double>(), dense.const_data_ptr<double>() + dense.numel()};
}

// A space and the stage, if it is a stub; else nothing.
std::string unfinished(const std::string& stage, const std::function<void()>& use) {
  try {
    use();
    return "";
  } catch (const c10::NotImplementedError& error) {
    return " " + stage;
  }
}

}  // namespace

at::Tensor gather_numbers(const std::vector<double>& numbers, const DeviceContext& device_context) {
  return all_gather(at::tensor(numbers, at::kDouble).to(device_context.device),
                    device_context.group)
      .cpu();
}

at::Tensor empty_cifar_record(const DeviceContext& device_context) {
  return at::empty({0, device_context.group->getSize(), 2 * kNumbers}, at::kDouble);
}

at::Tensor add_cifar_epoch(const at::Tensor& record, const CifarPass& trained,
                           const CifarPass& validated, const DeviceContext& device_context) {
  std::vector<double> numbers;
  append(numbers, trained);
  append(numbers, validated);
  return at::cat({record, gather_numbers(numbers, device_context).unsqueeze(0)});
}

std::vector<Series> cifar_series(const at::Tensor& record, const at::Tensor& peaks) {
  std::vector<Series> series;
  for (const auto& [name, pass] : {std::pair("train", 0L), std::pair("validation", kValidation)}) {
    for (const auto& [what, number] :
         {std::pair("loss", kLossSum), std::pair("accuracy", kCorrect)}) {
      series.push_back({.labels = {{"quantity", std::string(name) + " " + what}},
                        .unit = "1",
                        .values = to_vector(mean_over_images(record, pass, number))});
    }
  }
  for (std::int64_t rank = 0; rank < record.size(1); ++rank) {
    const auto add = [&](const char* quantity, const char* unit, const at::Tensor& values) {
      series.push_back({.labels = {{"quantity", quantity}, {"rank", rank}},
                        .unit = unit,
                        .values = to_vector(values)});
    };
    const at::Tensor own = record.select(1, rank);
    add("train time", "s", own.select(1, kSeconds));
    add("validation time", "s", own.select(1, kValidation + kSeconds));
    add("peak memory", "bytes", peaks[rank]);
  }
  return series;
}

void require_cifar_stages(const std::string& ddp, const std::string& implementation,
                          const DeviceContext& device_context) {
  std::string missing =
      unfinished(stage_of(ddp), [&] { usable_variants({ddp}, implementation, device_context); });
  missing += unfinished(kBatchNormStage, [&] {
    load_stage_library(stage_library(implementation, kBatchNormStage));
    make_batch_norm(kStageBatchNorm, {.num_features = 1}, device_context.group)
        ->forward(at::ones({2, 1}));
  });
  TORCH_CHECK_NOT_IMPLEMENTED(
      missing.empty(), "unfinished in ", implementation, "/:", missing,
      ". selfmade trains with one of stages 01 to 03, which --ddp chooses, and with stage 04; "
      "--distributed-impl pytorch needs none");
}

bool CifarLog::expects(const CifarRun& row) const {
  return std::ranges::find(rows_, row) != rows_.end();
}

void CifarLog::set_up(const Run& run, const Parameters& parameters) const {
  if (options_.rank != 0) {
    return;
  }
  std::printf("# Experimental setup\n\n* torch version: %s\n", TORCH_VERSION);
  std::printf("* device: %s\n",
              run.device == "cuda"
                  ? gpu_names().c_str()
                  : (std::to_string(std::thread::hardware_concurrency()) + " CPU cores").c_str());
  std::printf("* number of processes: %d, by %s\n", run.world_size, run.backend.c_str());
  for (const auto& [name, value] : parameters) {
    std::printf("* %s: ", name.c_str());
    std::visit([](const auto& plain) { std::printf("%s\n", c10::str(plain).c_str()); }, value);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void CifarLog::epoch_done(const CifarRun& row, const at::Tensor& record) {
  ++done_;
  if (options_.rank != 0) {
    return;
  }
  const auto last = [&](std::int64_t pass, Number number) {
    return mean_over_images(record, pass, number)[-1].item<double>();
  };
  const auto all = static_cast<std::int64_t>(rows_.size()) * options_.epochs;
  const double left =
      watch_.seconds() / static_cast<double>(done_) * static_cast<double>(all - done_ - skipped_);
  std::printf(
      "%s, seed %ld, %s, epoch %ld of %ld: train loss %.4f, validation loss %.4f, "
      "accuracy %.4f; %.0f s left\n",
      row.distributed_impl.c_str(), row.seed, options_.data.c_str(), record.size(0),
      options_.epochs, last(0, kLossSum), last(kValidation, kLossSum), last(kValidation, kCorrect),
      left);
  std::fflush(stdout);
}

void CifarLog::summary(const Result& result,
                       const std::vector<std::string>& implementations) const {
  if (options_.rank != 0) {
    return;
  }
  // The values of the last epoch of each seed.
  const auto mean_and_deviation = [&](const std::string& implementation,
                                      const std::string& quantity) {
    std::vector<double> values;
    for (const Series& series : result.series) {
      if (std::get<std::string>(series.labels[0].second) == implementation &&
          std::get<std::string>(series.labels[2].second) == quantity) {
        values.push_back(series.values.back());
      }
    }
    const at::Tensor all = at::tensor(values, at::kDouble);
    const double deviation = values.size() > 1 ? all.std().item<double>() : 0;
    return std::pair(all.mean().item<double>(), deviation);
  };
  std::printf("%s, after %ld epochs, mean +- standard deviation over seeds\n",
              options_.data.c_str(), options_.epochs);
  for (const std::string& implementation : implementations) {
    const auto [loss, loss_deviation] = mean_and_deviation(implementation, "validation loss");
    const auto [right, right_deviation] = mean_and_deviation(implementation, "validation accuracy");
    std::printf("%-10sloss %.4f +- %.4f   accuracy %.4f +- %.4f\n", implementation.c_str(), loss,
                loss_deviation, right, right_deviation);
  }
}

}  // namespace ddp
