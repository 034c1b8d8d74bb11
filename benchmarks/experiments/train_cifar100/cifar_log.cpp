#include "experiments/train_cifar100/cifar_log.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <cstdio>
#include <thread>

#include "ddp/ranks/stage_library.h"
#include "harness/result.h"
#include "harness/variants.h"
#include "peers/batch_norms.h"

namespace ddp {
namespace {

// The columns of a record.
enum Number : std::int64_t {
  kRunningLoss,
  kBatchAccuracy,
  kTrainSeconds,
  kLossSum,  // from here on of the validation
  kCorrect,
  kImages,
  kValidationSeconds,
  kNumbers
};

// What rank 0 reported last in each epoch.
at::Tensor reported(const at::Tensor& record, Number number) {
  return record.select(1, 0).select(1, number);
}

// Over all ranks' images, for each epoch.
at::Tensor mean_over_images(const at::Tensor& record, Number number) {
  return record.select(2, number).sum(1) / record.select(2, kImages).sum(1);
}

double last(const at::Tensor& of_epochs) { return of_epochs[-1].item<double>(); }

void print_report(double loss, double accuracy) {
  std::printf("loss: %.4f, acc: %.8g\n", loss, accuracy);
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
  return at::empty({0, device_context.group->getSize(), kNumbers}, at::kDouble);
}

at::Tensor add_cifar_epoch(const at::Tensor& record, const CifarEpoch& trained,
                           const CifarValidation& validated, const DeviceContext& device_context) {
  const at::Tensor numbers =
      gather_numbers({trained.last_report.loss, trained.last_report.accuracy, trained.seconds,
                      validated.loss_sum, validated.correct, validated.images, validated.seconds},
                     device_context);
  return at::cat({record, numbers.unsqueeze(0)});
}

std::vector<Series> cifar_series(const at::Tensor& record, const at::Tensor& peaks) {
  std::vector<Series> series;
  for (const auto& [quantity, values] :
       {std::pair("running loss", reported(record, kRunningLoss)),
        std::pair("batch accuracy", reported(record, kBatchAccuracy)),
        std::pair("validation loss", mean_over_images(record, kLossSum)),
        std::pair("validation accuracy", mean_over_images(record, kCorrect))}) {
    series.push_back(
        {.labels = {{"quantity", quantity}}, .unit = "1", .values = to_vector(values)});
  }
  for (std::int64_t rank = 0; rank < record.size(1); ++rank) {
    const auto add = [&](const char* quantity, const char* unit, const at::Tensor& values) {
      series.push_back({.labels = {{"quantity", quantity}, {"rank", rank}},
                        .unit = unit,
                        .values = to_vector(values)});
    };
    const at::Tensor own = record.select(1, rank);
    add("train time", "s", own.select(1, kTrainSeconds));
    add("validation time", "s", own.select(1, kValidationSeconds));
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

void CifarLog::report(const CifarReport& report) const {
  if (options_.rank == 0) {
    print_report(report.loss, report.accuracy);
  }
}

void CifarLog::epoch_done(const CifarRun& row, const at::Tensor& record) {
  ++done_;
  if (options_.rank != 0) {
    return;
  }
  const std::int64_t all = static_cast<std::int64_t>(rows_) * options_.epochs;
  const double left =
      watch_.seconds() / static_cast<double>(done_) * static_cast<double>(all - done_);
  std::printf(
      "%s, seed %ld, %s, epoch %ld of %ld: validation loss %.4f, accuracy %.4f; %.0f s left\n",
      row.distributed_impl.c_str(), row.seed, options_.data.c_str(), record.size(0),
      options_.epochs, last(mean_over_images(record, kLossSum)),
      last(mean_over_images(record, kCorrect)), left);
  std::fflush(stdout);
}

void CifarLog::row_done(const CifarRun& row, const at::Tensor& record,
                        const at::Tensor& peaks) const {
  if (options_.rank != 0) {
    return;
  }
  const bool own = row.distributed_impl == kSelfmade;
  std::printf("\n%s (%s, seed %ld)\n",
              own ? "Selfmade distributed training" : "pytorch Distributed Data Parallel",
              options_.data.c_str(), row.seed);
  std::printf("| Rank | Time           | Max Memory Allocated |\n");
  std::printf("|------|----------------|----------------------|\n");
  for (std::int64_t rank = 0; rank < record.size(1); ++rank) {
    const double seconds = record.select(1, rank).select(1, kTrainSeconds).sum().item<double>();
    std::printf("| %-4ld | %.3f seconds | %.0f bytes |\n", rank, seconds,
                peaks[rank].item<double>());
  }
  print_report(last(reported(record, kRunningLoss)), last(reported(record, kBatchAccuracy)));
  std::printf("\n");
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
      if (label_of<std::string>(series, "distributed_impl") == implementation &&
          label_of<std::string>(series, "quantity") == quantity) {
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
    const auto [loss, loss_deviation] = mean_and_deviation(implementation, "running loss");
    const auto [right, right_deviation] = mean_and_deviation(implementation, "batch accuracy");
    std::printf("%-10sloss %.4f +- %.4f   accuracy %.4f +- %.4f\n", implementation.c_str(), loss,
                loss_deviation, right, right_deviation);
  }
}

}  // namespace ddp
