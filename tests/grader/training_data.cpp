#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ddp/referee/access_watch.h"
#include "grader/settings.h"
#include "grader/training.h"

namespace ddp::testing {

at::Tensor laid_out(const at::Tensor& values, Layout layout) {
  switch (layout) {
    case Layout::kRowMajor:
      return values;
    case Layout::kSlice:  // does not begin with its storage, nor does the last
      return at::stack({values, values}).select(0, 1);
    case Layout::kTransposed:
      return values.transpose(0, 1).contiguous().transpose(0, 1);
    case Layout::kChannelsLast:
      return values.contiguous(at::MemoryFormat::ChannelsLast);
    case Layout::kEverySecond:
      return at::stack({values, values}, -1).select(-1, 1);
  }
  return values;
}

std::int64_t count_of(const Layer& layer) {
  std::int64_t count = 1;
  for (const std::int64_t size : layer.shape) {
    count *= size;
  }
  return count;
}

namespace {

template <typename T>
at::Tensor fractions(const Layer& layer, double first, double step) {
  at::Tensor made = at::empty(layer.shape, c10::CppTypeToScalarType<T>::value);
  T* values = made.mutable_data_ptr<T>();
  for (std::int64_t i = 0; i < made.numel(); ++i) {
    const double x = static_cast<double>(i) * step + first;
    values[i] = static_cast<T>(x - static_cast<double>(static_cast<std::int64_t>(x)) - 0.5);
  }
  return made;
}

}  // namespace

// A loop, as each step of each rank calls it, and ATen's operators would be six.
at::Tensor numbers(const Layer& layer, double first, double step) {
  const auto make = layer.dtype == at::kDouble ? fractions<double> : fractions<float>;
  return make(layer, first * 0.381966, step).to(settings().device, layer.dtype);
}

at::Tensor frozen_values(const Layer& layer, int rank) {
  const auto of = [&](std::int64_t bits, at::ScalarType dtype) {
    return at::full(layer.shape, bits + 77 + rank, settings().device).to(dtype);
  };
  switch (layer.dtype) {
    case at::kLong:
      return at::full(layer.shape, (std::int64_t{1} << 53) + 1 + rank,
                      at::TensorOptions(at::kLong).device(settings().device));
    case at::kHalf:
      return of(0x7E00, at::kShort).view(at::kHalf);
    default:
      return of(0x7FC0'0000, at::kInt).view(at::kFloat);
  }
}

namespace {

// One node of the graph, where multiplying, summing and adding would be three.
struct Term : torch::autograd::Function<Term> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& sum,
                            const at::Tensor& weight, const at::Tensor& factors) {
    context->save_for_backward({factors});
    return sum + (weight * factors).sum(at::kDouble);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor factors = context->get_saved_variables()[0];
    return {gradients[0], factors * gradients[0].to(factors.scalar_type()), at::Tensor()};
  }
};

}  // namespace

at::Tensor with_term(const at::Tensor& sum, const at::Tensor& weight, const at::Tensor& factors) {
  return Term::apply(sum, weight, factors);
}

namespace {

constexpr std::int64_t kRest = 2;  // elements of kOneTensor's storage that no weight has

}  // namespace

std::vector<at::Tensor> parameters_of(const TrainingOptions& options, int rank) {
  const OwnAccess own;
  at::Tensor storage;
  if (options.memory != TrainingOptions::Memory::kOwn) {
    std::int64_t total = kRest;
    for (const Layer& layer : options.layers) {
      total += count_of(layer);
    }
    storage = at::full({total}, 1.5 + rank, settings().device);
  }
  const std::size_t count = options.layers.size();
  std::vector<at::Tensor> parameters(count);
  std::int64_t used = 0;
  for (std::size_t made = 0; made < count; ++made) {
    // The order of their addresses is another one on each rank.
    const std::size_t i = rank % 2 == 0 ? made : count - 1 - made;
    const Layer& layer = options.layers[i];
    at::Tensor values;
    if (options.memory != TrainingOptions::Memory::kOwn) {
      values = storage.narrow(0, used, count_of(layer)).view(layer.shape);
      used += options.memory == TrainingOptions::Memory::kSame ? 0 : count_of(layer);
    } else if (layer.trainable) {
      values = numbers(layer, 1.0 + static_cast<double>(i) + 10.0 * rank, 0.618034);
    } else {
      values = frozen_values(layer, rank);
    }
    parameters[i] = laid_out(values, layer.layout).set_requires_grad(layer.trainable);
  }
  return parameters;
}

std::vector<Layer> layers_of_sizes(const std::vector<std::int64_t>& elements) {
  std::vector<Layer> layers;
  layers.reserve(elements.size());
  for (const std::int64_t count : elements) {
    layers.push_back({{count}});
  }
  return layers;
}

std::vector<Layer> equal_layers(int count, std::int64_t elements) {
  return std::vector<Layer>(count, {{elements}});
}

std::vector<at::Tensor> buffers_of(const TrainingOptions& options,
                                   const std::vector<at::Tensor>& parameters, int rank) {
  const auto of = [](at::IntArrayRef shape, const at::Scalar& value, at::ScalarType dtype) {
    return at::full(shape, value, at::TensorOptions(dtype).device(settings().device));
  };
  const at::Tensor table = of({2, 3}, 0.5 + rank, at::kFloat);
  std::vector<at::Tensor> buffers = {of({3}, 2.5 + rank, at::kFloat),
                                     numbers({{2, 2}}, 3.0 + rank, 0.618034)};
  const auto add = [&](const std::vector<at::Tensor>& more) {
    buffers.insert(buffers.end(), more.begin(), more.end());
  };
  switch (options.state) {
    case State::kPlain:
      break;
    case State::kStrided:
      add({numbers({{2, 3}}, 7.0 + rank, 0.618034).t(), table.select(1, 0), table.select(1, 2),
           laid_out(numbers({{3, 2}}, rank, 0.618034),
                    rank == 0 ? Layout::kTransposed : Layout::kRowMajor),
           laid_out(numbers({{2, 3, 2, 2}}, rank, 0.618034),
                    rank == 0 ? Layout::kRowMajor : Layout::kChannelsLast)});
      break;
    case State::kDtypes:
      add({of({3}, (std::int64_t{1} << 53) + 1 + rank, at::kLong), of({2}, rank == 0, at::kBool),
           of({4}, rank == 0 ? -0.0 : 0.0, at::kDouble), frozen_values({{2}}, rank),
           of({2, 3}, -7 * rank, at::kChar), of({5}, 200 + rank, at::kByte),
           of({}, 3 + rank, at::kInt), of({3, 2}, rank == 0 ? -0.0 : 0.0, at::kHalf)});
      break;
    case State::kEmpty:
      add({of({0}, 1, at::kFloat), of({0, 3}, 1, at::kFloat)});
      break;
    case State::kShared:
      add({table.select(0, 0), table});  // the first begins where the second does
      break;
  }
  if (options.memory == TrainingOptions::Memory::kOneTensor) {
    const auto elements = static_cast<std::int64_t>(parameters[0].storage().nbytes() / 4);
    buffers.push_back(parameters[0].detach().as_strided({kRest}, {1}, elements - kRest));
  }
  return buffers;
}

EdgeCases edge_cases_of(const TrainingOptions& options) {
  EdgeCases edge_cases;
  const auto add = [&](bool is, const char* what) {
    if (is) {
      edge_cases.insert(what);
    }
  };
  add(options.tied, kTied);
  add(options.memory != TrainingOptions::Memory::kOwn || options.state == State::kShared, kShared);
  add(options.state == State::kStrided, kStridedState);
  add(options.state == State::kDtypes, kDtype);
  add(options.state == State::kEmpty, kEmpty);
  for (const Layer& layer : options.layers) {
    const bool strided = layer.layout != Layout::kRowMajor;
    add(strided, kStridedState);
    add(strided && layer.trainable, kStridedGradients);
    add(layer.dtype != at::kFloat, kDtype);
    add(count_of(layer) == 0, kEmpty);
  }
  return edge_cases;
}

}  // namespace ddp::testing
