// Stages 01 to 04 in use: a small network is trained on CIFAR-100, data-parallel, with the lab's
// own code (--distributed-impl selfmade) and with PyTorch's (pytorch), several times each. It tests
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

#include <algorithm>
#include <cstdio>
#include <map>

#include "experiments/train_cifar100/cifar_log.h"
#include "experiments/train_cifar100/cifar_trainer.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/interleaved.h"
#include "harness/memory.h"
#include "harness/resumable_rows.h"

namespace {

using namespace ddp;

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

// How much train_cifar100 trains. Negative: the preset's.
struct CifarAmount {
  std::int64_t epochs = -1;  // of each training
  std::int64_t batch_size = -1;
  std::int64_t grad_accum_steps = -1;
  std::int64_t train_size = -1;
  std::int64_t test_size = -1;
  std::int64_t seeds = -1;  // trainings of each implementation
  double learning_rate = -1;
};

const CifarAmount kPublished = {.epochs = 16,
                                .batch_size = 256,
                                .grad_accum_steps = 4,
                                .train_size = kCifarTrain,
                                .test_size = kCifarTest,
                                .seeds = 5,
                                .learning_rate = 0.01};
const std::map<std::string, CifarAmount> kPresets = {
    {"quick",
     {.epochs = 4,
      .batch_size = 32,
      .grad_accum_steps = 4,
      .train_size = 1088,  // 17 micro-batches for each of two ranks: the last one is reported
      .test_size = 256,
      .seeds = 5,
      .learning_rate = 0.01}},
    {"full", kPublished},
    {"paper", kPublished},
};

struct Settings : BenchmarkOptions {
  std::string data;              // CIFAR-100's folder; empty: synthetic images
  std::string distributed_impl;  // empty: both
  std::string ddp;               // empty: the preset's
  CifarAmount amount;

  std::vector<std::string> implementations() const {
    return distributed_impl.empty() ? std::vector<std::string>{kSelfmade, kPytorch}
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

void apply_preset(CifarAmount& amount, const std::string& name) {
  const CifarAmount& preset = kPresets.at(name);
  for (std::int64_t CifarAmount::*field :
       {&CifarAmount::epochs, &CifarAmount::batch_size, &CifarAmount::grad_accum_steps,
        &CifarAmount::train_size, &CifarAmount::test_size, &CifarAmount::seeds}) {
    if (amount.*field < 0) {
      amount.*field = preset.*field;
    }
  }
  if (amount.learning_rate < 0) {
    amount.learning_rate = preset.learning_rate;
  }
}

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
  if (std::ranges::count(settings.implementations(), kSelfmade) > 0) {
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
             "Who trains: the lab's own code, or PyTorch's; default: both", {kSelfmade, kPytorch});
  add_choice(line, "--ddp", settings.ddp, "How selfmade averages gradients; default: the preset's",
             {"naive", "flat", "overlapped", "bucketed"});
  CifarAmount& amount = settings.amount;
  add_number_of_preset(line, "--num-epochs", amount.epochs, "How often each image is trained with");
  add_number_of_preset(line, "--batch-size", amount.batch_size, "Images of a rank's micro-batch", 1,
                       1 << 16);
  add_number_of_preset(line, "--grad-accum-steps", amount.grad_accum_steps,
                       "Micro-batches of a step", 1, 1 << 16);
  add_number_of_preset(line, "--train-size", amount.train_size,
                       "Number of training images, from the first on", 1, kCifarTrain);
  add_number_of_preset(line, "--test-size", amount.test_size,
                       "Number of validation images, from the first on", 1, kCifarTest);
  add_number_of_preset(line, "--num-seeds", amount.seeds,
                       "Trainings of each implementation, from --seed on", 1, 1000);
  line.add_option("--learning-rate", amount.learning_rate, "Of SGD; default: the preset's")
      ->check(CLI::PositiveNumber);
}

}  // namespace

int ddp_main(int argc, char** argv) {
  CLI::App line("Trains a network on CIFAR-100, with the lab's own code and with PyTorch's");
  Settings settings;
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
  apply_preset(settings.amount, settings.preset);
  if (settings.ddp.empty()) {
    settings.ddp = settings.preset == "quick" ? "bucketed" : "naive";
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
