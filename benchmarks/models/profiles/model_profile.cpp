#include "models/profiles/model_profile.h"

#include <functional>
#include <numeric>

namespace ddp {

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

Work ModelProfile::forward() const {
  Work sum;
  for (const ProfiledLayer& layer : layers) {
    sum += layer.forward;
  }
  return sum;
}

Work ModelProfile::backward() const {
  Work sum;
  for (const ProfiledLayer& layer : layers) {
    sum += layer.backward;
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

}  // namespace ddp
