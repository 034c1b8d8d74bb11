#include "models/profiles/model_profile.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace ddp {
namespace {

struct Tile {
  std::int64_t rows, columns;
  double pace;  // of tensor cores, beside that of the largest, which reads each operand least often
};
constexpr Tile kTiles[] = {{256, 128, 1}, {128, 128, 1}, {128, 64, 0.87}, {64, 64, 0.74}};

// As many operations as whole tiles for all multiprocessors have, in as many waves as there are:
// what a product costs that does not fill them. Of the tiles of cuBLAS the best is taken. Source:
// NVIDIA, "Matrix Multiplication Background User's Guide", tile and wave quantization; its figures
// of tiles' efficiency.
double operations_of(const Product& product, const cluster::Device& device) {
  const std::int64_t multiprocessors = device.multiprocessors;
  if (multiprocessors == 0) {
    return static_cast<double>(product.flops());
  }
  const auto parts = [](std::int64_t n, std::int64_t size) { return (n + size - 1) / size; };
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [rows, columns, pace] : kTiles) {
    const std::int64_t tiles =
        product.count * parts(product.rows, rows) * parts(product.columns, columns);
    const std::int64_t places = parts(tiles, multiprocessors) * multiprocessors;
    least = std::min(least, 2 * static_cast<double>(places * rows * columns * product.inner) /
                                (device.tensor_cores ? pace : 1));
  }
  return least;
}

// One operator after the other: each matrix product, and whatever else there is, as one.
std::int64_t time_of(cluster::Device device, const Work& work, double efficiency,
                     double memory_efficiency) {
  device.flops_per_second *= efficiency;
  device.bytes_per_second *= memory_efficiency > 0 ? memory_efficiency : efficiency;
  Work rest = work;
  std::int64_t sum = 0;
  for (const Product& one : work.products) {
    rest.flops -= one.flops();
    rest.bytes -= one.bytes();
    sum +=
        cluster::operator_ns(device, operations_of(one, device), static_cast<double>(one.bytes()));
  }
  return sum + cluster::operator_ns(device, static_cast<double>(rest.flops),
                                    static_cast<double>(rest.bytes));
}

}  // namespace

std::int64_t ParameterShape::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t ModelProfile::elements() const {
  std::int64_t sum = 0;
  for (const ParameterShape& parameter : parameters) {
    sum += parameter.elements();
  }
  return sum;
}

Work optimizer_work(const ModelProfile& model, int states) {
  return moving((3 + 2 * states) * model.elements());
}

Work moving(std::int64_t n, std::int64_t kernels) {
  return {.bytes = n * std::int64_t{sizeof(float)}, .kernels = kernels};
}

std::int64_t Product::bytes() const {
  return moving(count * (rows * inner + inner * columns + rows * columns)).bytes;
}

Work& Work::operator+=(const Work& other) {
  flops += other.flops;
  bytes += other.bytes;
  kernels += other.kernels;
  products.insert(products.end(), other.products.begin(), other.products.end());
  return *this;
}

Work product(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, std::int64_t count) {
  const Product one{.rows = rows, .inner = inputs, .columns = outputs, .count = count};
  return {.flops = one.flops(), .bytes = one.bytes(), .kernels = 1, .products = {one}};
}

ProfiledModel::ProfiledModel(ModelProfile profile) : profile_(std::move(profile)) {
  for (const auto& [name, sizes] : profile_.parameters) {
    parameters_.push_back({name, cluster::make_parameter(sizes)});
  }
}

std::vector<cluster::TimedLayer> ProfiledModel::timed_layers(const cluster::Device& device,
                                                             const Pace& pace) const {
  const double forward = pace.forward_efficiency, backward = pace.backward_efficiency;
  TORCH_CHECK_VALUE(forward > 0 && backward > 0, "the efficiencies of a GPU are above 0, not ",
                    forward, " and ", backward);
  std::vector<cluster::TimedLayer> layers;
  layers.reserve(profile_.layers.size());
  for (const ProfiledLayer& layer : profile_.layers) {
    cluster::TimedLayer& timed = layers.emplace_back();
    timed.name = layer.name;
    const auto time = [&](const Work& work, double efficiency) {
      return time_of(device, work, efficiency, pace.memory_efficiency) +
             std::llround(pace.kernel_ns * static_cast<double>(work.kernels));
    };
    timed.forward_ns = time(layer.forward, forward);
    timed.backward_ns = time(layer.backward, backward);
    timed.forward_kernels = layer.forward.kernels;
    timed.backward_kernels = layer.backward.kernels;
    timed.activation_bytes = moving(layer.kept).bytes;
    for (const std::size_t parameter : layer.parameters) {
      timed.parameters.push_back(parameters_.at(parameter).tensor);
    }
  }
  return layers;
}

at::Tensor ProfiledModel::forward(const at::Tensor&) {
  TORCH_CHECK(false, profile_.name,
              " is a profile here, with shapes and no values: it takes time, "
              "and computes nothing");
}

}  // namespace ddp
