#pragma once

#include <cstdint>
#include <string>

#include "harness/command_line.h"

namespace ddp {

/// How much train_cifar100 trains. Negative: the preset's.
struct CifarAmount {
  std::int64_t epochs = -1;  // of each training
  std::int64_t batch_size = -1;
  std::int64_t grad_accum_steps = -1;
  std::int64_t train_size = -1;
  std::int64_t test_size = -1;
  std::int64_t seeds = -1;  // trainings of each implementation
  double learning_rate = -1;
};

/// The flags --num-epochs, --batch-size, --grad-accum-steps, --train-size, --test-size, --num-seeds
/// and --learning-rate.
void add_flags(CLI::App& line, CifarAmount& amount);

/// Sets what no flag has set from a preset: "quick", "full" or "paper".
void apply_preset(CifarAmount& amount, const std::string& name);

/// Throws c10::ValueError if the ranks' last micro-batches are one image together, of which batch
/// normalization cannot take a variance.
void check_batches(const CifarAmount& amount, int world_size);

}  // namespace ddp
