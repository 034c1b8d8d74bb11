#include "grader/compare.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

#include "ddp/backends/tensor_names.h"
#include "ddp/referee/access_watch.h"
#include "grader/settings.h"

namespace ddp::testing {

namespace {

constexpr std::int64_t kElementsShown = 3;

// A row for each element.
at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.detach().contiguous().view({-1, 1}).view(at::kByte);
}

std::string position(const at::Tensor& tensor, std::int64_t flat) {
  std::vector<std::int64_t> indices(tensor.dim());
  for (std::int64_t dim = tensor.dim() - 1; dim >= 0; --dim) {
    indices[dim] = flat % tensor.size(dim);
    flat /= tensor.size(dim);
  }
  std::ostringstream text;
  text << at::IntArrayRef(indices);
  return text.str();
}

std::string number(const at::Tensor& element) {
  std::ostringstream out;
  if (at::isIntegralType(element.scalar_type(), /*includeBool=*/true)) {
    out << element.item<std::int64_t>();
  } else {
    out.precision(element.scalar_type() == at::kDouble ? 17 : 9);
    out << element.item<double>();
  }
  return out.str();
}

// The factor by which all of `actual` differs from `expected`, if there is one.
std::optional<double> common_factor(const at::Tensor& actual, const at::Tensor& expected) {
  const double norm = expected.square().sum().item<double>();
  if (norm == 0 || !std::isfinite(norm)) {
    return std::nullopt;
  }
  const double factor = (actual * expected).sum().item<double>() / norm;
  const double residue = (actual - factor * expected).abs().max().item<double>();
  return residue <= 1e-5 * std::sqrt(norm) ? std::optional(factor) : std::nullopt;
}

const std::string kOwnValue = "exactly this rank's own value: ";

// Whether the same values have come in the order of another layout.
bool is_permuted(const at::Tensor& actual, const at::Tensor& expected) {
  const auto close = [](const at::Tensor& a, const at::Tensor& b) {
    return at::allclose(a, b, /*rtol=*/1e-6, /*atol=*/0, /*equal_nan=*/true);
  };
  const at::Tensor a = std::get<0>(actual.flatten().sort());
  const at::Tensor e = std::get<0>(expected.flatten().sort());
  return actual.dim() > 1 && a.numel() > 1 && a[0].ne(a[-1]).item<bool>() && close(a, e) &&
         !close(actual, expected);  // else they differ by rounding
}

bool about(double a, double b) { return std::abs(a - b) <= 1e-5 * std::abs(b); }

std::string diagnose(const Subject& subject, const at::Tensor& actual, const at::Tensor& expected) {
  if (expected.isfinite().all().item<bool>() && actual.isnan().any().item<bool>()) {
    return "not a number";
  }
  if (is_permuted(actual, expected)) {
    return "right values in another order: layouts differ, between ranks or from what was sent. "
           "Send tensor.contiguous(), and copy the result back";
  }
  const double world = subject.world_size;
  const auto factor = common_factor(actual, expected);
  if (subject.local.defined() && world > 1) {
    const at::Tensor own = subject.local.to(at::kDouble);
    const auto close = [&](const at::Tensor& other, double tolerance) {
      return at::allclose(own, other, tolerance, 0, /*equal_nan=*/true);
    };
    if (close(actual, 1e-6) && !close(expected, 0)) {  // it is no mistake to keep the right one
      return kOwnValue + subject.if_local;
    }
    if (close(actual * world, 1e-6) && !close(expected * world, 0)) {
      return "exactly this rank's own value / " + std::to_string(subject.world_size) +
             ": divided, but not reduced, or the sum not written back?";
    }
  }
  if (!factor) {
    return "";
  }
  if (about(*factor, 1)) {
    return "right but for rounding: computed in a lower precision, or in another order?";
  }
  std::ostringstream rounded;
  rounded.precision(5);
  rounded << *factor;
  const std::string exactly = "exactly " + rounded.str() + " x the expected value: ";
  if (about(*factor, world)) {
    return exactly + "the sum over the ranks, not divided by the world size?";
  }
  if (about(*factor, 1 / world)) {
    return exactly + "divided by the world size twice?";
  }
  if (about(*factor, world * world)) {
    return exactly + "multiplied by the world size, or reduced twice?";
  }
  if (!actual.any().item<bool>()) {
    return "all zero: never filled?";
  }
  const bool of_several = expected.count_nonzero().item<std::int64_t>() > 1;
  return of_several && !settings().withhold ? exactly + "scaled?" : "";
}

// Whether an element's bytes all are `byte`, as the grader has glibc fill memory.
bool has_filled(const at::Tensor& tensor, int byte) {
  return tensor.element_size() > 1 && bytes_of(tensor).eq(byte).all(/*dim=*/1).any().item<bool>();
}

std::string misused_memory(const at::Tensor& tensor) {
  if (const auto flown = find_poison(tensor)) {
    return "it came from a buffer that was in flight in operation #" + std::to_string(*flown) +
           " of this rank: was it used before the wait, or never waited for?";
  }
  if (has_filled(tensor, 0xFE)) {
    return "memory that was never written: a tensor of at::empty() holds no zeros";
  }
  return has_filled(tensor, 0x01) ? "memory that has been freed: what keeps it alive?" : "";
}

Finding::Values differences(const std::string& name, const at::Tensor& actual,
                            const at::Tensor& expected, const at::Tensor& differs) {
  const at::Tensor indices = differs.flatten().nonzero().flatten();
  // The expected ones, too, are of what ranks have handed in.
  const std::int64_t shown = settings().withhold ? 0 : std::min(indices.numel(), kElementsShown);
  Finding::Values values{name,
                         std::to_string(indices.numel()) + " of " +
                             std::to_string(expected.numel()) + " elements differ",
                         {}};
  for (std::int64_t i = 0; i < shown; ++i) {
    const auto flat = indices[i].item<std::int64_t>();
    values.rows.push_back({position(expected, flat), number(expected.flatten()[flat]),
                           number(actual.flatten()[flat])});
  }
  return values;
}

std::string in_words(const Finding::Values& values) {
  std::string text;
  for (const auto& [index, expected, actual] : values.rows) {
    text += c10::str("\n  ", index, ": got ", actual, ", expected ", expected);
  }
  return text + "\n  (" + values.elements + ")";
}

// Undefined, or of a different shape or dtype: nothing more to compare.
std::string mismatch(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.defined() != expected.defined()) {
    return actual.defined() ? " is defined, expected undefined"
                            : " is undefined, expected a tensor";
  }
  if (actual.defined() &&
      (actual.sizes() != expected.sizes() || actual.scalar_type() != expected.scalar_type())) {
    return " is " + describe_tensor(actual) + ", expected " + describe_tensor(expected);
  }
  return "";
}

Comparison different(const Subject& subject, const at::Tensor& actual, const at::Tensor& expected,
                     const at::Tensor& differs) {
  const at::Tensor a = actual.detach().to(at::kCPU);
  const at::Tensor e = expected.detach().to(at::kCPU);
  std::string diagnosis = misused_memory(a);
  if (diagnosis.empty()) {  // numbers that are none are told apart by their bits
    const bool own = subject.local.defined() && is_identical(subject.local, actual);
    diagnosis = own ? kOwnValue + subject.if_local
                    : diagnose(subject, a.to(at::kDouble), e.to(at::kDouble));
  }
  diagnosis = diagnosis.empty() ? subject.otherwise : diagnosis;
  Finding::Values values = differences(subject.name, a, e, differs.to(at::kCPU));
  Finding finding = subject.name + " is wrong" +
                    (diagnosis.empty() ? "" : "\n  diagnosis: " + diagnosis) + in_words(values);
  finding.values = std::move(values);
  return Comparison(std::move(finding));
}

}  // namespace

double epsilon_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kHalf:
      return 0x1p-10;
    case at::kBFloat16:
      return 0x1p-7;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

Comparison is_close(const Subject& subject, const at::Tensor& actual, const at::Tensor& expected,
                    const at::Tensor& tolerance) {
  if (const std::string text = mismatch(actual, expected); !text.empty()) {
    return Comparison(subject.name + text);
  }
  if (!actual.defined() || same_bits(actual, expected)) {
    return {};
  }
  const at::NoGradGuard no_grad;
  // In double, so that the comparison itself rounds nothing.
  const at::Tensor a = actual.to(at::kDouble);
  const at::Tensor e = expected.to(at::kDouble);
  const at::Tensor same = a.eq(e).logical_or(a.isnan().logical_and(e.isnan()));
  const at::Tensor near = (a - e).abs().le(tolerance.to(at::kDouble)).logical_and(e.isfinite());
  const at::Tensor differs = near.logical_or(same).logical_not();
  if (!differs.any().item<bool>()) {
    return {};
  }
  return different(subject, actual, expected, differs);
}

Comparison is_close(const Subject& subject, const at::Tensor& actual, const at::Tensor& expected,
                    double tolerance) {
  const auto options =
      expected.defined() ? expected.options().dtype(at::kDouble) : at::TensorOptions(at::kDouble);
  return is_close(subject, actual, expected, at::scalar_tensor(tolerance, options));
}

Comparison is_bitwise_equal(const Subject& subject, const at::Tensor& actual,
                            const at::Tensor& expected) {
  if (const std::string text = mismatch(actual, expected); !text.empty()) {
    return Comparison(subject.name + text);
  }
  if (!actual.defined() || same_bits(actual, expected)) {
    return {};
  }
  const at::NoGradGuard no_grad;
  const at::Tensor differs = bytes_of(actual).ne(bytes_of(expected)).any(/*dim=*/1);
  return different(subject, actual, expected, differs.view(expected.sizes()));
}

bool is_identical(const at::Tensor& a, const at::Tensor& b) {
  return mismatch(a, b).empty() && (!a.defined() || same_bits(a, b));
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().cpu().contiguous();
  const at::Tensor y = b.detach().cpu().contiguous();
  const auto* bytes = static_cast<const char*>(x.const_data_ptr());
  return x.nbytes() == y.nbytes() &&
         std::equal(bytes, bytes + x.nbytes(), static_cast<const char*>(y.const_data_ptr()));
}

std::int64_t fingerprint(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().to(at::kCPU).contiguous();
  const std::string_view bytes(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  return static_cast<std::int64_t>(std::hash<std::string_view>{}(bytes));
}

}  // namespace ddp::testing
