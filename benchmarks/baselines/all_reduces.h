#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ddp/collectives.h"

namespace ddp {

/// The name of stage 05.
constexpr const char* kRingStage = "05_ring_all_reduce";
constexpr const char* kRing = "ring";

/// One of the all-reduces that benchmarks compare. Replaces the tensor in place.
struct AllReduce {
  const char* name = "";
  void (*run)(const at::Tensor& tensor, const ProcessGroupPtr& group, ReduceOp op) = nullptr;
};

/// Throws c10::ValueError for an unknown name.
const AllReduce& all_reduce_named(const std::string& name);

/// Throws c10::Error if `tensor` is not the sum of ones over so many ranks: then there is no point in
/// measuring the all-reduce of that name.
void expect_sum_of_ones(const std::string& name, const at::Tensor& tensor, int ranks);

/// Those of `names` that can be measured, in the same order: stage 05's "ring", whose library
/// must be loaded; the given "butterfly", "recursive doubling" and "tree"; and "all_reduce", the
/// group's own. Collective: each sums a few elements. For a stub its c10::NotImplementedError is
/// thrown. Throws c10::ValueError for an unknown name, c10::Error if a sum is wrong: then it is not
/// worth measuring.
std::vector<AllReduce> usable_all_reduces(const std::vector<std::string>& names,
                                          const at::Device& device, const ProcessGroupPtr& group);

}  // namespace ddp
