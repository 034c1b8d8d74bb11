#include "ddp/models/toy_models.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <initializer_list>
#include <random>
#include <utility>

namespace ddp {
namespace {

constexpr std::int64_t kBatchSize = 8;
constexpr std::int64_t kInputs = 6;
constexpr std::int64_t kHidden = 8;
constexpr std::int64_t kOutputs = 4;

enum Stream : std::uint32_t { kWeights, kData };

// A generator that is independent of the global one, and of those of every other (stream, seed,
// rank, step).
at::Generator make_generator(Stream stream, std::uint64_t seed, int rank = 0, int step = 0) {
  std::seed_seq mix{static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(seed),
                    static_cast<std::uint32_t>(seed >> 32), static_cast<std::uint32_t>(rank),
                    static_cast<std::uint32_t>(step)};
  std::uint32_t mixed[1];
  mix.generate(std::begin(mixed), std::end(mixed));
  return at::detail::createCPUGenerator(mixed[0]);
}

class ToyModel : public Model {
 public:
  explicit ToyModel(const ToyOptions& options)
      : options_(options), generator_(make_generator(kWeights, options.seed)) {}

  std::vector<NamedTensor> named_parameters() const override { return parameters_; }
  std::vector<NamedTensor> named_buffers() const override { return buffers_; }
  void train(bool on) override { training_ = on; }

 protected:
  struct Linear {
    at::Tensor weight, bias;
    at::Tensor operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }
  };

  // Always drawn in float64 on the CPU, so that dtypes and devices agree up to rounding.
  at::Tensor random(at::IntArrayRef shape, double low, double high) {
    return at::empty(shape, at::kDouble)
        .uniform_(low, high, generator_)
        .to(options_.device, options_.dtype);
  }

  at::Tensor add_parameter(const std::string& name, at::Tensor tensor) {
    tensor.set_requires_grad(true);
    parameters_.push_back({name, tensor});
    return tensor;
  }

  at::Tensor add_buffer(const std::string& name, const at::Tensor& tensor) {
    buffers_.push_back({name, tensor});
    return tensor;
  }

  Linear add_linear(const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    const double bound = 1 / std::sqrt(inputs);
    at::Tensor weight = add_parameter(name + ".weight", random({outputs, inputs}, -bound, bound));
    at::Tensor bias = add_parameter(name + ".bias", random({outputs}, -bound, bound));
    return {weight, bias};
  }

  const ToyOptions options_;
  at::Generator generator_;
  std::vector<NamedTensor> parameters_, buffers_;
  bool training_ = true;
};

class Mlp : public ToyModel {
 public:
  using ToyModel::ToyModel;
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = at::tanh(fc1_(input));
    x = at::tanh(fc2_(x));
    return fc3_(x);
  }

 protected:
  Linear fc1_ = add_linear("fc1", kInputs, kHidden);
  Linear fc2_ = add_linear("fc2", kHidden, kHidden);
  Linear fc3_ = add_linear("fc3", kHidden, kOutputs);
};

class FrozenBias : public Mlp {
 public:
  explicit FrozenBias(const ToyOptions& options) : Mlp(options) {
    fc2_.bias.set_requires_grad(false);
  }
};

class UnusedParameter : public Mlp {
 public:
  explicit UnusedParameter(const ToyOptions& options) : Mlp(options) {
    add_parameter("unused.weight", random({kHidden, kOutputs}, -1, 1));
  }
};

class TiedWeights : public ToyModel {
 public:
  explicit TiedWeights(const ToyOptions& options) : ToyModel(options) {
    add_parameter("fc3.weight", fc2_.weight);
    fc3_ = {fc2_.weight, add_parameter("fc3.bias", random({kHidden}, -1, 1))};
    fc4_ = add_linear("fc4", kHidden, kOutputs);
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = at::tanh(fc1_(input));
    x = at::tanh(fc2_(x));
    x = at::tanh(fc3_(x));
    return fc4_(x);
  }

 private:
  Linear fc1_ = add_linear("fc1", kInputs, kHidden);
  Linear fc2_ = add_linear("fc2", kHidden, kHidden);
  Linear fc3_, fc4_;
};

class RankBranch : public ToyModel {
 public:
  using ToyModel::ToyModel;
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = at::tanh(fc1_(input));
    const bool takes_branch = options_.rank % 2 == 1;
    x = at::tanh(takes_branch ? fc2_(x) + branch_(x) : fc2_(x));
    return fc3_(x);
  }

 private:
  Linear fc1_ = add_linear("fc1", kInputs, kHidden);
  Linear branch_ = add_linear("branch", kHidden, kHidden);
  Linear fc2_ = add_linear("fc2", kHidden, kHidden);
  Linear fc3_ = add_linear("fc3", kHidden, kOutputs);
};

class NormalizedMlp : public ToyModel {
 public:
  using ToyModel::ToyModel;
  at::Tensor forward(const at::Tensor& input) override {
    // tanh first: a bias directly before a normalization has no effect, and its gradient would be
    // nothing but rounding errors.
    at::Tensor x = at::tanh(fc1_(input));
    x = normalize(x);
    x = at::tanh(fc2_(x));
    return fc3_(x);
  }

 private:
  at::Tensor normalize(const at::Tensor& x) {
    constexpr double kMomentum = 0.1, kEpsilon = 1e-5;
    if (training_) {
      batches_tracked_.add_(1);
    }
    return at::batch_norm(x, weight_, bias_, running_mean_, running_var_, training_, kMomentum,
                          kEpsilon, /*cudnn_enabled=*/false);
  }

  Linear fc1_ = add_linear("fc1", kInputs, kHidden);
  at::Tensor weight_ = add_parameter("bn.weight", random({kHidden}, 0.5, 1.5));
  at::Tensor bias_ = add_parameter("bn.bias", random({kHidden}, -0.5, 0.5));
  at::Tensor running_mean_ = add_buffer("bn.running_mean", random({kHidden}, -1, 1));
  at::Tensor running_var_ = add_buffer("bn.running_var", random({kHidden}, 0.5, 1.5));
  at::Tensor batches_tracked_ =
      add_buffer("bn.num_batches_tracked", random({}, 0, 1000).to(at::kLong));
  Linear fc2_ = add_linear("fc2", kHidden, kHidden);
  Linear fc3_ = add_linear("fc3", kHidden, kOutputs);
};

}  // namespace

std::unique_ptr<Model> make_toy_model(ToyKind kind, const ToyOptions& options) {
  switch (kind) {
    case ToyKind::kMlp:
      return std::make_unique<Mlp>(options);
    case ToyKind::kFrozenBias:
      return std::make_unique<FrozenBias>(options);
    case ToyKind::kUnusedParameter:
      return std::make_unique<UnusedParameter>(options);
    case ToyKind::kTiedWeights:
      return std::make_unique<TiedWeights>(options);
    case ToyKind::kRankBranch:
      return std::make_unique<RankBranch>(options);
    case ToyKind::kBatchNorm:
      return std::make_unique<NormalizedMlp>(options);
  }
  TORCH_CHECK(false, "unknown ToyKind ", static_cast<int>(kind));
}

const std::vector<ToyKind>& all_toy_models() {
  static const std::vector<ToyKind> kinds = {
      ToyKind::kMlp,         ToyKind::kFrozenBias, ToyKind::kUnusedParameter,
      ToyKind::kTiedWeights, ToyKind::kRankBranch, ToyKind::kBatchNorm};
  return kinds;
}

std::string to_string(ToyKind kind) {
  switch (kind) {
    case ToyKind::kMlp:
      return "MLP";
    case ToyKind::kFrozenBias:
      return "frozen bias";
    case ToyKind::kUnusedParameter:
      return "unused parameter";
    case ToyKind::kTiedWeights:
      return "tied weights";
    case ToyKind::kRankBranch:
      return "branch on odd ranks";
    case ToyKind::kBatchNorm:
      return "BatchNorm";
  }
  return "unknown";
}

Batch make_toy_batch(const ToyOptions& options, int rank, int step) {
  at::Generator generator = make_generator(kData, options.seed, rank, step);
  const auto draw = [&](std::int64_t width) {
    return at::randn({kBatchSize, width}, generator, at::kDouble).to(options.device, options.dtype);
  };
  // Not inside the braces of the result, to make the order of the two draws plain.
  at::Tensor input = draw(kInputs);
  at::Tensor target = draw(kOutputs);
  return {input, target};
}

at::Tensor toy_loss(Model& model, const Batch& batch) {
  return at::mse_loss(model.forward(batch.input), batch.target);
}

}  // namespace ddp
