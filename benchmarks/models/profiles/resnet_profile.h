#pragma once

#include <cstdint>

#include "models/profiles/model_profile.h"
#include "models/resnet.h"

namespace ddp {

/// Images of side x side pixels.
struct ImageBatch {
  std::int64_t batch = 32;
  std::int64_t side = 224;
};

/// The profile of make_resnet(kind) in training. The images need no gradient, so the first
/// convolution's backward has none. Throws c10::ValueError if the batch is not positive, or a side
/// is below 32.
ModelProfile resnet_profile(ResNetKind kind, const ImageBatch& images);

}  // namespace ddp
