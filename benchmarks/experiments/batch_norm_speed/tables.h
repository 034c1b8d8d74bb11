#pragma once

#include <c10/core/MemoryFormat.h>

#include <array>
#include <string>
#include <vector>

#include "harness/result.h"

// What the benchmark of batch normalization's speed measures, and how it prints that.

namespace ddp {

struct Layout {
  const char* name;
  at::MemoryFormat format;
};
constexpr std::array kLayouts = {Layout{"contiguous", at::MemoryFormat::Contiguous},
                                 Layout{"channels_last", at::MemoryFormat::ChannelsLast}};

// The memory limit, as a variant that has times only.
constexpr const char* kMemoryLimit = "limit";
constexpr std::array kTimedParts = {"forward", "backward"};
constexpr std::array kPeakParts = {"forward", "forward + backward"};
/// The labels of a series, after its layout.
Parameters labels_of(const std::string& variant, const char* part, const char* quantity);

/// Prints medians of times and of peak memory, and how fast each batch normalization is as a part of
/// the memory limit's speed: the medians of the repetitions' ratios.
void print_tables(const Result& result, const std::vector<std::string>& batch_norms);

}  // namespace ddp
