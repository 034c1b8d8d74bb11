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

Work moving(std::int64_t n) { return {.flops = 0, .bytes = n * std::int64_t{sizeof(float)}}; }

Work product(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, std::int64_t count) {
  Work work = moving(count * (rows * inputs + inputs * outputs + rows * outputs));
  work.flops = 2 * count * rows * inputs * outputs;
  return work;
}

}  // namespace ddp
