// Stages 01 to 04 in use: a small network is trained on CIFAR-100, data-parallel, with the lab's
// own code (--distributed-impl custom) and with PyTorch's (pytorch), several times each. It tests
// the claim: "on average both implementations converge near to the same result".
//
// The same loop trains for both. They differ in the averaging of gradients and in batch
// normalization: PyTorch's side averages after each micro-batch and the lab's own once a step, as
// published. A row is an implementation and a seed; rows with the same seed begin with equal weights
// and see the same images in the same order, with the same dropout. With one thread per rank, a seed
// gives bitwise the same numbers in every run on the CPU.
//
// Loss and accuracy are those of the published program, of rank 0 in every 16th micro-batch of an
// epoch; the last ones are its result. In the published run that is the 97th of 98 micro-batches:
// 3.2136 is the sum of 97 losses over 98, and 0.2734375 is 70 of that micro-batch's 256 images.
// Validation is this program's own.
//
// A rank's time is that of its epochs of training, without validation; the published
// one includes reading the data set and one validation. Its memory is the peak of its tensors, as
// torch.cuda.max_memory_allocated() counts, without the data set. Two more things differ: each rank
// draws dropout masks of its own, where the published ranks, equally seeded, draw the same ones; and
// the published text swaps the two implementations' commands: it says that the one with "selfmade"
// reproduces PyTorch's version, and vice versa.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "baselines/batch_norms.h"
#include "ddp/meters/statistics.h"
#include "ddp/ranks/stage_library.h"
#include "experiments/train_cifar100/cifar_trainer.h"
#include "measuring/benchmark.h"
#include "measuring/command_line.h"
#include "measuring/interleaved.h"
#include "measuring/result.h"
#include "measuring/resumable_rows.h"
#include "measuring/variants.h"

namespace {

using namespace ddp;

// One training: an implementation (kCustom or kPytorch) and a seed.
struct CifarRun {
  std::string distributed_impl;
  std::int64_t seed = 0;

  Parameters labels() const { return {{"distributed_impl", distributed_impl}, {"seed", seed}}; }
};

// A record holds all ranks' numbers of each epoch: float64 [epochs, world, 7] on the CPU.

// What a run prints to stdout, on rank 0 only.
class CifarLog {
 public:
  struct Options {
    int rank = 0;
    std::int64_t epochs = 0;  // epochs per row
    std::string data;         // CifarData::kind
  };
  explicit CifarLog(Options options) : options_(std::move(options)) {}

  // The "Experimental setup" of the published text.
  void set_up(const Run& run, const Parameters& parameters) const;

  // Says how many rows will be trained.
  void expect(std::size_t rows) { rows_ = rows; }

  // Prints loss and accuracy as the published program does.
  void report(const CifarReport& report) const;

  // Prints a line: loss and accuracy in validation, and the time left for all rows.
  void epoch_done(const CifarRun& row, const at::Tensor& record);

  // Prints the published table: each rank's time and memory, and the last report.
  void row_done(const CifarRun& row, const at::Tensor& record, const at::Tensor& peaks) const;

  // Prints a line for each implementation: means and standard deviations over its seeds.
  void summary(const Result& result, const std::vector<std::string>& implementations) const;

 private:
  const Options options_;
  std::size_t rows_ = 0;
  std::int64_t done_ = 0;  // epochs
  Stopwatch watch_;
};

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

// Every rank's numbers, gathered on all ranks: [world, n], float64 on the CPU. Collective.
at::Tensor gather_numbers(const std::vector<double>& numbers, const DeviceContext& device_context) {
  return all_gather(at::tensor(numbers, at::kDouble).to(device_context.device),
                    device_context.group)
      .cpu();
}

at::Tensor empty_cifar_record(const DeviceContext& device_context) {
  return at::empty({0, device_context.group->getSize(), kNumbers}, at::kDouble);
}

// The record with one more epoch. Collective: numbers are gathered.
at::Tensor add_cifar_epoch(const at::Tensor& record, const CifarEpoch& trained,
                           const CifarValidation& validated, const DeviceContext& device_context) {
  const at::Tensor numbers =
      gather_numbers({trained.last_report.loss, trained.last_report.accuracy, trained.seconds,
                      validated.loss_sum, validated.correct, validated.images, validated.seconds},
                     device_context);
  return at::cat({record, numbers.unsqueeze(0)});
}

// The series of a row, for each epoch: what rank 0 reported last, "running loss" and "batch
// accuracy", the published metrics; loss and accuracy in validation, over all ranks' images; each
// rank's seconds of training and validation. For each rank also the peak memory in bytes, from
// `peaks` [world, 1].
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

// Checks that the code of assignments/ or solutions/ has what kCustom needs: the stage of `ddp`,
// and stage 04. Loads them. Collective. Throws c10::NotImplementedError that names what is
// unfinished.
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
      ". custom trains with one of stages 01 to 03, which --ddp chooses, and with stage 04; "
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
  const bool own = row.distributed_impl == kCustom;
  std::printf("\n%s (%s, seed %ld)\n",
              own ? "Custom distributed training" : "pytorch Distributed Data Parallel",
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

constexpr const char* kProgram = "train_cifar100";

const PresetsInWords kInWords = {
    .quick =
        "the published network, 4 epochs of 1,088 images (256 validate), of 21 classes where they "
        "are "
        "generated; 4 micro-batches of 32 a step, learning rate 0.01; --ddp bucketed; 5 seeds",
    .full =
        "16 epochs of 50,000 images (10,000 validate); 4 micro-batches of 256 a step, learning "
        "rate "
        "0.01; --ddp naive. As published, but 5 seeds, anywhere, and without --data on generated "
        "images",
    .paper = "as full, with --data, on 2 RTX A4000"};
const Hardware kPublishedHardware = {.gpus = 2, .model = "RTX A4000"};

// How much train_cifar100 trains.
struct CifarAmount {
  std::int64_t epochs;  // of each training
  std::int64_t batch_size, grad_accum_steps, train_size, test_size;
  std::int64_t seeds;  // trainings of each implementation
  double learning_rate;
  const char* ddp;  // how custom averages
};

const CifarAmount kPublished = {.epochs = 16,
                                .batch_size = 256,
                                .grad_accum_steps = 4,
                                .train_size = kCifarTrain,
                                .test_size = kCifarTest,
                                .seeds = 5,
                                .learning_rate = 0.01,
                                .ddp = "naive"};
const std::map<std::string, CifarAmount> kPresets = {
    {"quick",
     {.epochs = 4,
      .batch_size = 32,
      .grad_accum_steps = 4,
      .train_size = 1088,  // 17 micro-batches for each of two ranks: the last one is reported
      .test_size = 256,
      .seeds = 5,
      .learning_rate = 0.01,
      .ddp = "bucketed"}},
    {"full", kPublished},
    {"paper", kPublished},
};

struct Settings : BenchmarkOptions {
  std::string data;              // CIFAR-100's folder; empty: synthetic images
  std::string distributed_impl;  // empty: both
  std::string ddp;
  CifarAmount amount = {};

  std::vector<std::string> implementations() const {
    return distributed_impl.empty() ? std::vector<std::string>{kCustom, kPytorch}
                                    : std::vector<std::string>{distributed_impl};
  }

  CifarTrainerOptions trainer(const CifarRun& row) const {
    return {.distributed_impl = row.distributed_impl,
            .ddp = ddp,
            .seed = static_cast<std::uint64_t>(row.seed),
            .batch_size = amount.batch_size,
            .grad_accum_steps = amount.grad_accum_steps,
            .learning_rate = amount.learning_rate};
  }

  Parameters describe(const CifarData& images) const {
    return {{"data", images.kind},
            {"classes", images.classes},
            {"train_size", amount.train_size},
            {"test_size", amount.test_size},
            {"epochs", amount.epochs},
            {"batch_size", amount.batch_size},
            {"grad_accum_steps", amount.grad_accum_steps},
            {"learning_rate", amount.learning_rate},
            {"momentum", CifarTrainerOptions().momentum},
            {"ddp", ddp},
            {"rate_gbit", rate_gbit},
            {"latency_us", latency_us}};
  }
};

// Throws if the ranks' last micro-batches are one image together, of which batch normalization cannot
// take a variance.
void check_batches(const CifarAmount& amount, int world_size) {
  // Of several ranks, each has at least one image.
  TORCH_CHECK_VALUE(
      world_size > 1 || (amount.train_size - 1) % amount.batch_size != 0, "--train-size ",
      amount.train_size, " in batches of --batch-size ", amount.batch_size,
      " ends with a batch of one image on a single rank, of which batch normalization "
      "cannot take a variance; change one of them, or train with more ranks");
}

// The data sets, read or generated, on the device's side of a rank.
struct Images {
  Images(const CifarData& data, const at::Device& device)
      : train(data.train, device), test(data.test, device) {}
  CifarImages train, test;
};

std::vector<Series> train(const CifarRun& row, const Settings& settings, const Images& images,
                          const DeviceContext& device_context, CifarLog& log) {
  at::Tensor record = empty_cifar_record(device_context);
  const std::int64_t peak = peak_bytes(device_context.device, [&] {
    CifarTrainer trainer(settings.trainer(row), device_context);
    for (std::int64_t epoch = 0; epoch < settings.amount.epochs; ++epoch) {
      const CifarEpoch trained =
          trainer.train(images.train, epoch, [&](const CifarReport& one) { log.report(one); });
      record = add_cifar_epoch(record, trained, trainer.validate(images.test), device_context);
      log.epoch_done(row, record);
    }
  });
  const at::Tensor peaks = gather_numbers({static_cast<double>(peak)}, device_context);
  log.row_done(row, record, peaks);
  return cifar_series(record, peaks);
}

std::vector<CifarRun> all_rows(const Settings& settings) {
  std::vector<CifarRun> rows;
  for (std::int64_t i = 0; i < settings.amount.seeds; ++i) {
    for (const std::string& distributed_impl : settings.implementations()) {
      rows.push_back({distributed_impl, static_cast<std::int64_t>(settings.seed) + i});
    }
  }
  return rows;
}

CifarData make_data(const Settings& settings) {
  const auto [train, test] = std::pair(settings.amount.train_size, settings.amount.test_size);
  return settings.data.empty() ? synthetic_cifar100(settings.seed, train, test)
                               : read_cifar100(settings.data, train, test);
}

void run_rank(const RankContext& context, const Settings& settings, const CifarData& data) {
  const DeviceContext device_context = make_device_context(settings, context);
  keep_freed_memory();
  at::globalContext().setDeterministicCuDNN(true);
  check_batches(settings.amount, device_context.group->getSize());
  const Images images(data, device_context.device);
  if (std::ranges::count(settings.implementations(), kCustom) > 0) {
    require_cifar_stages(settings.ddp, settings.implementation, device_context);
  }
  const Run run = to_run(settings, kProgram, device_context.group);
  const Parameters parameters = settings.describe(data);
  ResumableRows rows(settings, {.run = run, .parameters = parameters}, device_context);
  CifarLog log({.rank = context.rank, .epochs = settings.amount.epochs, .data = data.kind});
  log.set_up(run, parameters);
  std::vector<CifarRun> left = all_rows(settings);
  std::erase_if(left, [&](const CifarRun& row) { return rows.has(row.labels()); });
  log.expect(left.size());
  for (const CifarRun& row : left) {
    rows.add(row.labels(), train(row, settings, images, device_context, log));
  }
  log.summary(rows.finish(), settings.implementations());
  save_trace(settings, context, device_context);
}

void add_flags(CLI::App& line, Settings& settings) {
  line.add_option(
      "--data", settings.data,
      "Folder of CIFAR-100's binary version, unpacked; without it, images are generated "
      "(\"synthetic\")");
  add_choice(line, "--distributed-impl", settings.distributed_impl,
             "Who trains: the lab's own code, or PyTorch's; default: both", {kCustom, kPytorch});
  add_choice(line, "--ddp", settings.ddp, "How custom averages gradients",
             {"naive", "flat", "overlapped", "bucketed"});
  CifarAmount& amount = settings.amount;
  add_number(line, "--num-epochs", amount.epochs, "How often each image is trained with");
  add_number(line, "--batch-size", amount.batch_size, "Images of a rank's micro-batch", 1, 1 << 16);
  add_number(line, "--grad-accum-steps", amount.grad_accum_steps, "Micro-batches of a step", 1,
             1 << 16);
  add_number(line, "--train-size", amount.train_size,
             "Number of training images, from the first on", 1, kCifarTrain);
  add_number(line, "--test-size", amount.test_size,
             "Number of validation images, from the first on", 1, kCifarTest);
  add_number(line, "--num-seeds", amount.seeds, "Trainings of each implementation, from --seed on",
             1, 1000);
  line.add_option("--learning-rate", amount.learning_rate, "Of SGD")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("Trains a network on CIFAR-100, with the lab's own code and with PyTorch's");
  Settings settings;
  settings.amount = chosen(kPresets, argc, argv);
  settings.ddp = settings.amount.ddp;
  add_flags(line, settings, argc, argv);
  add_resume_flag(line, settings);
  add_flags(line, settings);
  describe_presets(line, kInWords);
  if (const auto code = parse(line, argc, argv, settings, kPublishedHardware)) {
    return *code;
  }
  if (settings.preset == "paper" && settings.data.empty()) {
    std::fprintf(stderr, "--preset paper trains on CIFAR-100: give its folder with --data\n");
    return kRefused;
  }
  return run_and_report([&] {
    // Here, so that forked ranks share it, and errors are printed once; by one thread, since others
    // would be missing after the fork.
    at::set_num_threads(1);
    const CifarData data = make_data(settings);
    return run_benchmark(settings,
                         [&](RankContext& context) { run_rank(context, settings, data); });
  });
}
