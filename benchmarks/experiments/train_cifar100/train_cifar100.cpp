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

#include "experiments/train_cifar100/amount.h"
#include "experiments/train_cifar100/cifar_log.h"
#include "experiments/train_cifar100/cifar_trainer.h"
#include "harness/benchmark.h"
#include "harness/command_line.h"
#include "harness/interleaved.h"
#include "harness/peak_memory.h"
#include "harness/presets.h"
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
  const CifarSizes sizes = {settings.amount.train_size, settings.amount.test_size};
  return settings.data.empty() ? synthetic_cifar100(settings.seed, sizes)
                               : read_cifar100(settings.data, sizes);
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
  ResumableRows rows(settings, {run, parameters, {}}, device_context);
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
  line.add_option("--distributed-impl", settings.distributed_impl,
                  "Who trains: the lab's own code, or PyTorch's; default: both")
      ->check(CLI::IsMember({kSelfmade, kPytorch}));
  line.add_option("--ddp", settings.ddp, "How selfmade averages gradients; default: the preset's")
      ->check(CLI::IsMember({"naive", "flat", "overlapped", "bucketed"}));
  add_flags(line, settings.amount);
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
