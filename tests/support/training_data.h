#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ddp/referee/event.h"
#include "support/body.h"

// The numbers that a Training computes with.

namespace ddp::testing {

/// Where a parameter's elements lie in memory. Of more than two dimensions the first two are
/// transposed: the last stride is 1 then, as it is in row-major order.
enum class Layout { kRowMajor, kSlice, kTransposed, kChannelsLast, kEverySecond };

/// A layer with one parameter.
struct Layer {
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  bool trainable = true;  // else it is NaN, and no part of the loss
  Layout layout = Layout::kRowMajor;
};

/// What the buffers are.
enum class State {
  kPlain,    // float32, contiguous
  kStrided,  // beside these: a column, and ones that are transposed, on all ranks or on rank 0
  kDtypes,   // integers beyond the floats', a negative zero, a NaN with a payload
  kEmpty,    // one without elements
  kShared    // views of one tensor
};

struct TrainingOptions {
  std::vector<Layer> layers = {{{65, 3}}, {{4}}, {{7, 2}}};
  /// Whether the last layer's weight is used twice, and listed again after the first one.
  bool tied = false;
  enum class Memory {
    kOwn,
    kOneTensor,  // all weights are views of one tensor, and equal in the beginning
    kSame        // all weights, which have one shape, are the same memory, and yet different leaves
  } memory = Memory::kOwn;
  /// Tells several models of one body apart.
  int model = 0;
  GroupIndex group = 0;
  State state = State::kPlain;
};

/// What is rare about such a model.
Rare rare_of(const TrainingOptions& options);

/// The weights of a rank before construction.
std::vector<at::Tensor> parameters_of(const TrainingOptions& options, int rank);

/// A layer of so many elements each; `count` layers of `elements` elements.
std::vector<Layer> layers_of_sizes(const std::vector<std::int64_t>& elements);
std::vector<Layer> equal_layers(int count, std::int64_t elements);

/// The same values with another layout in memory.
at::Tensor laid_out(const at::Tensor& values, Layout layout);

/// The elements of a layer's weight.
std::int64_t count_of(const Layer& layer);

/// Values for a layer, different in every element, and with all digits.
at::Tensor numbers(const Layer& layer, double first, double step);

/// A layer's part of the loss, added to that of those before it: sum + <weight, factors>, in float64.
at::Tensor with_term(const at::Tensor& sum, const at::Tensor& weight, const at::Tensor& factors);

/// Of a layer that is not trained: NaNs whose payload says the rank, so that only their bits tell
/// ranks apart, or integers beyond the floats'.
at::Tensor frozen_values(const Layer& layer, int rank);

/// The model's buffers, and a view of the weights' tensor where they are views, too.
std::vector<at::Tensor> buffers_of(const TrainingOptions& options,
                                   const std::vector<at::Tensor>& parameters, int rank);

}  // namespace ddp::testing
