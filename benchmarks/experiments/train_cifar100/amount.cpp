#include "experiments/train_cifar100/amount.h"

#include <string>

#include "experiments/train_cifar100/data.h"
#include "harness/command_line.h"

namespace ddp {

void add_flags(CommandLine& line, CifarAmount& amount) {
  const auto sized = [&](const char* flag, std::int64_t& value, const char* what,
                         std::int64_t most) {
    line.add(flag, value, std::string(what) + "; default: the preset's")
        .in_range(std::int64_t{1}, most);
  };
  sized("--num-epochs", amount.epochs, "How often each image is trained with", 1 << 20);
  sized("--batch-size", amount.batch_size, "Images of a rank's micro-batch", 1 << 16);
  sized("--grad-accum-steps", amount.grad_accum_steps, "Micro-batches of a step", 1 << 16);
  sized("--train-size", amount.train_size, "Number of training images, from the first on",
        kCifarTrain);
  sized("--test-size", amount.test_size, "Number of validation images, from the first on",
        kCifarTest);
  sized("--num-seeds", amount.seeds, "Trainings of each implementation, from --seed on", 1000);
  line.add("--learning-rate", amount.learning_rate, "Of SGD; default: the preset's").positive();
}

void apply_preset(CifarAmount& amount, const CifarAmount& preset) {
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

}  // namespace ddp
