#include "norm_case.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "support/compare.h"

namespace ddp::testing {

namespace {

double epsilon_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 0x1p-52;
    case at::kHalf:
      return 0x1p-10;
    case at::kBFloat16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

// As equal as possible, the first ranks larger.
std::vector<std::int64_t> equal_rows(std::int64_t rows, int world_size) {
  std::vector<std::int64_t> parts(world_size, rows / world_size);
  std::for_each(parts.begin(), parts.begin() + rows % world_size, [](auto& part) { ++part; });
  return parts;
}

// The input's gradient comes from autograd, not from the formula that the student implements.
NormReference reference_of(const at::Tensor& input, const at::Tensor& upstream,
                           const BatchNormTensors& tensors, double eps) {
  const at::Tensor x = input.to(at::kDouble).clone().set_requires_grad(true);
  NormReference reference;
  reference.count = static_cast<double>(input.numel()) / static_cast<double>(input.size(1));
  const at::Tensor mean = sum_of_channels(x) / reference.count;
  const at::Tensor centred = x - along_channels(mean, x);
  const at::Tensor variance = sum_of_channels(centred.square()) / reference.count;
  const at::Tensor normalized = centred / along_channels(variance + eps, x).sqrt();
  at::Tensor output = normalized;
  if (tensors.weight.defined()) {
    output = normalized * along_channels(tensors.weight.detach().to(at::kDouble), x) +
             along_channels(tensors.bias.detach().to(at::kDouble), x);
  }
  output.backward(upstream.to(at::kDouble));
  reference.mean = mean.detach();
  reference.variance = variance.detach();
  reference.normalized = normalized.detach();
  reference.output = output.detach();
  reference.input_gradient = x.grad();
  return reference;
}

}  // namespace

at::Tensor random_numbers(const std::vector<std::int64_t>& shape, std::uint64_t salt) {
  const at::Generator generator = at::detail::createCPUGenerator(settings().seed * 64 + salt);
  return at::randn(shape, generator, at::TensorOptions(at::kDouble)).to(settings().device);
}

BatchNormTensors affine_tensors(const at::Tensor& weight, const at::Tensor& bias) {
  return {weight, bias, {}, {}};
}

BatchNormTensors running_tensors(const at::Tensor& mean, const at::Tensor& var) {
  return {{}, {}, mean, var};
}

at::Tensor sum_of_channels(const at::Tensor& values) {
  return values.sum(without_channels(values));
}

std::vector<std::int64_t> without_channels(const at::Tensor& input) {
  std::vector<std::int64_t> dims = {0};
  for (std::int64_t dim = 2; dim < input.dim(); ++dim) {
    dims.push_back(dim);
  }
  return dims;
}

at::Tensor along_channels(const at::Tensor& of_channels, const at::Tensor& input) {
  std::vector<std::int64_t> shape(input.dim(), 1);
  shape[1] = of_channels.numel();
  return of_channels.reshape(shape);
}

NormCase::NormCase(const Rank& rank, const CaseOptions& options)
    : options_(options), world_size_(rank.world_size()) {
  const std::int64_t rows = options.shape[0];
  const std::int64_t channels = options.shape[1];
  if (options_.rows.empty()) {
    options_.rows = equal_rows(rows, world_size_);
  }
  first_row_ =
      std::accumulate(options_.rows.begin(), options_.rows.begin() + rank.rank(), std::int64_t{0});
  row_count_ = options_.rows[rank.rank()];

  const at::Tensor numbers = random_numbers(options.shape, 1);
  const at::Tensor of_channels = at::arange(channels, numbers.options()).remainder(7) / 4;
  const at::Tensor of_rows =
      at::arange(rows, numbers.options()) * (3.0 / static_cast<double>(rows));
  std::vector<std::int64_t> one_a_row(numbers.dim(), 1);
  one_a_row[0] = rows;
  input_ = (numbers + along_channels(of_channels, numbers) + of_rows.view(one_a_row) + options.mean)
               .to(options.dtype);
  if (options.affine) {
    tensors.weight = (random_numbers({channels}, 2) * 0.3 + 1).to(options.tensors_dtype);
    tensors.bias = random_numbers({channels}, 3).to(options.tensors_dtype);
    tensors.weight.set_requires_grad(true);
    tensors.bias.set_requires_grad(true);
  }
  tensors.running_mean = (random_numbers({channels}, 4) * 0.5).to(options.tensors_dtype);
  tensors.running_var = (random_numbers({channels}, 5).abs() + 0.5).to(options.tensors_dtype);
  set_upstream((random_numbers(options.shape, 6) + 0.25).to(options.dtype));
}

void NormCase::set_upstream(const at::Tensor& upstream) {
  upstream_ = upstream;
  expected_ = reference_of(input_, upstream_, tensors, options_.eps);
}

at::Tensor NormCase::shard(const at::Tensor& whole) const {
  return whole.narrow(0, first_row_, row_count_);
}

std::string NormCase::text() const {
  std::ostringstream text;
  text << "(input " << at::IntArrayRef(options_.shape) << " over all ranks, of which they have "
       << at::IntArrayRef(options_.rows) << " samples; " << c10::getDtypeNames(options_.dtype).first
       << ")";
  return text.str();
}

// `scale`: the factor by which errors of the normalized values grow.
at::Tensor NormCase::tolerance(const at::Tensor& expected, const at::Tensor& scale) const {
  if (options_.dtype == at::kDouble) {
    return at::scalar_tensor(1e-10, expected.options()) * scale;
  }
  const at::Tensor deviation = (expected_.variance + options_.eps).sqrt();
  const at::Tensor relative = expected_.mean.abs() / deviation;
  const at::Tensor absolute = along_channels(1e-3 + 4 * 0x1p-23 * relative, expected);
  return absolute * scale + expected.abs() * epsilon_of(options_.dtype);
}

at::Tensor NormCase::with_affine(const at::Tensor& normalized) const {
  if (!tensors.weight.defined()) {
    return normalized;
  }
  return normalized * along_channels(tensors.weight.detach(), normalized) +
         along_channels(tensors.bias.detach(), normalized);
}

void NormCase::expect_output(const at::Tensor& output, const std::string& note) const {
  const at::Tensor expected = shard(expected_.output);
  const at::Tensor scale =
      tensors.weight.defined()
          ? along_channels(tensors.weight.detach().abs().clamp_min(1), expected)
          : at::ones({1}, expected.options());
  EXPECT_TRUE(is_close({"the output" + note + " " + text(), world_size_}, output,
                       expected.to(options_.dtype), tolerance(expected, scale)))
      << explain(output, expected, suspicions_of_output());
}

void NormCase::expect_input_gradient(const at::Tensor& gradient, const std::string& note) const {
  const at::Tensor expected = shard(expected_.input_gradient);
  at::Tensor scale = (expected_.variance + options_.eps).rsqrt();
  if (tensors.weight.defined()) {
    scale = scale * tensors.weight.detach().abs();
  }
  EXPECT_TRUE(is_close({"the input's gradient" + note + " " + text(), world_size_}, gradient,
                       expected.to(options_.dtype),
                       tolerance(expected, along_channels(scale.clamp_min(1), expected))))
      << explain(gradient, expected, suspicions_of_input_gradient());
}

void NormCase::expect_parameter_gradients(const std::string& note) const {
  if (tensors.weight.defined()) {
    const at::Tensor upstream = upstream_.to(at::kDouble);
    expect_parameter_gradient("weight", tensors.weight.grad(), upstream * expected_.normalized,
                              note);
    expect_parameter_gradient("bias", tensors.bias.grad(), upstream, note);
  }
}

// `terms`: the terms of the gradient, to be summed over this rank's samples.
void NormCase::expect_parameter_gradient(const std::string& name, const at::Tensor& gradient,
                                         const at::Tensor& terms, const std::string& note) const {
  const at::Tensor expected = sum_of_channels(shard(terms));
  // Each term may be off by the tolerance, all for the same reason (the mean), so the errors add
  // up.
  const at::Tensor size = sum_of_channels(shard(upstream_.to(at::kDouble).abs())).clamp_min(1);
  const bool is_double = options_.dtype == at::kDouble;
  at::Tensor allowed = at::full({1}, 1e-10, expected.options());
  if (!is_double) {
    const at::Tensor deviation = (expected_.variance + options_.eps).sqrt();
    const at::Tensor relative = expected_.mean.abs() / deviation;
    // Half-precision tests have thousands of terms, which share the error of the deviation.
    const double in_common = options_.dtype == at::kFloat ? 0 : 1e-3;
    allowed = 1e-3 + 4 * 0x1p-23 * relative * size +
              expected.abs() * (in_common + epsilon_of(options_.tensors_dtype));
  }
  EXPECT_TRUE(is_close({"the gradient of " + name + note + " " + text(), world_size_}, gradient,
                       expected.to(options_.tensors_dtype), allowed))
      << explain(gradient, expected, suspicions_of_parameter_gradient(terms));
}

void NormCase::expect_running(const at::Tensor& mean_before, const at::Tensor& var_before,
                              double momentum, const std::string& note) const {
  const double epsilon = epsilon_of(options_.tensors_dtype);
  // Each rank's float32 mean may be off by this much, which affects the variance between ranks.
  const at::Tensor relative = expected_.mean.abs() / (expected_.variance + options_.eps).sqrt();
  const at::Tensor floor = options_.dtype == at::kDouble
                               ? at::full({1}, 1e-10, relative.options())
                               : 2e-5 + 4 * 0x1p-23 * relative * (1 + expected_.variance);
  const auto compare = [&](const std::string& name, const at::Tensor& before,
                           const at::Tensor& batch, const at::Tensor& now) {
    const at::Tensor expected = before.to(at::kDouble) * (1 - momentum) + batch * momentum;
    EXPECT_TRUE(is_close({"the running " + name + note + " " + text(), world_size_}, now,
                         expected.to(now.scalar_type()),
                         floor + (expected.abs() + batch.abs()) * (4 * epsilon)))
        << explain(now, expected, suspicions_of_running(before, batch, momentum));
  };
  compare("mean", mean_before, expected_.mean, tensors.running_mean);
  compare("variance", var_before, expected_.variance * (expected_.count / (expected_.count - 1)),
          tensors.running_var);
}

void expect_forward_and_backward(const Rank& rank, const CaseOptions& options) {
  const NormCase norm(rank, options);
  const at::Tensor mean_before = norm.tensors.running_mean.clone();
  const at::Tensor var_before = norm.tensors.running_var.clone();
  const at::Tensor input = norm.input_shard();
  const at::Tensor output = sync_batch_norm(input, norm.tensors, rank.group());
  norm.expect_output(output.detach());
  norm.expect_running(mean_before, var_before, SyncBatchNormOptions().momentum);
  output.backward(norm.shard(norm.upstream()));
  norm.expect_input_gradient(input.grad());
  norm.expect_parameter_gradients();
}

}  // namespace ddp::testing
