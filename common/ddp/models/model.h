#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace ddp {

/// A tensor and the name its model gives it, such as "fc1.weight".
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// The tensors alone, in the same order: what the contracts of stages 01-03 take.
inline std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(named.size());
  for (const auto& entry : named) {
    tensors.push_back(entry.tensor);
  }
  return tensors;
}

/// What tests and benchmarks need from a model. It keeps the C++ frontend's headers, which take
/// seconds to compile, inside the models' own files.
class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  /// The output for a batch. For shapes see the function that makes the model.
  virtual at::Tensor forward(const at::Tensor& input) = 0;

  /// All parameters in the order of registration, including frozen ones (which require no
  /// gradient). Tied weights appear once for each use, as in torch::nn::Module::parameters().
  virtual std::vector<NamedTensor> named_parameters() const = 0;

  /// Persistent state that is not trained, such as BatchNorm's running statistics.
  virtual std::vector<NamedTensor> named_buffers() const = 0;

  /// Switches between training and evaluation mode, for layers that distinguish them.
  virtual void train(bool on) = 0;
};

}  // namespace ddp
