#include "experiments/train_cifar100/amount.h"

#include <c10/util/Exception.h>

#include <map>

#include "experiments/train_cifar100/data.h"
#include "harness/command_line.h"

namespace ddp {
namespace {

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

}  // namespace

void add_flags(CLI::App& line, CifarAmount& amount) {
  const auto sized = [&](const char* flag, std::int64_t& value, const char* what,
                         std::int64_t most) {
    line.add_option(flag, value, std::string(what) + "; default: the preset's")
        ->check(CLI::Range(std::int64_t{1}, most));
  };
  sized("--num-epochs", amount.epochs, "How often each image is trained with", 1 << 20);
  sized("--batch-size", amount.batch_size, "Images of a rank's micro-batch", 1 << 16);
  sized("--grad-accum-steps", amount.grad_accum_steps, "Micro-batches of a step", 1 << 16);
  sized("--train-size", amount.train_size, "Number of training images, from the first on",
        kCifarTrain);
  sized("--test-size", amount.test_size, "Number of validation images, from the first on",
        kCifarTest);
  sized("--num-seeds", amount.seeds, "Trainings of each implementation, from --seed on", 1000);
  line.add_option("--learning-rate", amount.learning_rate, "Of SGD; default: the preset's")
      ->check(CLI::PositiveNumber);
}

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

void check_batches(const CifarAmount& amount, int world_size) {
  // Of several ranks, each has at least one image.
  TORCH_CHECK_VALUE(
      world_size > 1 || (amount.train_size - 1) % amount.batch_size != 0, "--train-size ",
      amount.train_size, " in batches of --batch-size ", amount.batch_size,
      " ends with a batch of one image on a single rank, of which batch normalization "
      "cannot take a variance; change one of them, or train with more ranks");
}

}  // namespace ddp
