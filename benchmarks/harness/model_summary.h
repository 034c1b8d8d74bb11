#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddp/meters/statistics.h"
#include "ddp/model.h"
#include "harness/result.h"

namespace ddp {

/// How large a model is, in elements.
struct ModelSummary {
  std::int64_t tensors = 0;
  std::int64_t total = 0;      // elements of all parameters
  std::int64_t trainable = 0;  // of those that get a gradient
  // The parameter with the most elements; if there are several, the first.
  std::string largest;
  std::string largest_shape;  // such as "512x512x3x3"
  std::int64_t largest_elements = 0;
};

/// `parameters` must be distinct.
ModelSummary summarize_model(const std::vector<NamedTensor>& parameters);

/// The summary as a result stores it.
Parameters describe(const ModelSummary& summary);

/// Prints a table to stdout. M stands for 2^20 elements.
void print(const std::string& model, const ModelSummary& summary);

}  // namespace ddp
