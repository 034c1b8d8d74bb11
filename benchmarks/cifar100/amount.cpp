#include "cifar100/amount.h"

#include <string>

#include "cifar100/data.h"

namespace ddp {

void add_flags(CLI::App& app, CifarAmount& amount) {
  const auto sized = [&](const char* flag, std::int64_t& value, const char* what,
                         std::int64_t most) {
    app.add_option(flag, value, std::string(what) + "; default: the preset's")
        ->check(CLI::Range(std::int64_t{1}, most));
  };
  sized("--num-epochs", amount.epochs, "How often each image is trained with", 1 << 20);
  sized("--batch-size", amount.batch_size, "Images of a rank's micro-batch", 1 << 16);
  sized("--grad-accum-steps", amount.grad_accum_steps, "Micro-batches of a step", 1 << 16);
  sized("--train-size", amount.train_size, "The first so many images are trained with",
        kCifarTrain);
  sized("--test-size", amount.test_size, "The first so many validate", kCifarTest);
  sized("--num-seeds", amount.seeds, "Trainings of each implementation, from --seed on", 1000);
  app.add_option("--learning-rate", amount.learning_rate, "Of SGD; default: the preset's")
      ->check(CLI::PositiveNumber);
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
