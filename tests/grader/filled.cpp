#include "grader/filled.h"

#include <ATen/Dispatch.h>

#include "grader/settings.h"

namespace ddp::testing {

at::Tensor filled(at::IntArrayRef shape, at::ScalarType dtype,
                  const std::function<double(std::int64_t)>& value) {
  const at::Tensor made = at::empty(shape, dtype);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "filled", [&] {
    auto* elements = made.mutable_data_ptr<scalar_t>();
    for (std::int64_t i = 0; i < made.numel(); ++i) {
      elements[i] = static_cast<scalar_t>(value(i));
    }
  });
  return made.to(settings().device);
}

}  // namespace ddp::testing
