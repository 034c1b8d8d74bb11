#pragma once

#include <cstdint>
#include <string>

#include "models/profiles/model_profile.h"
#include "models/transformer.h"

namespace ddp {

/// Sequences of `length` tokens.
struct SequenceBatch {
  std::int64_t batch = 2;
  std::int64_t length = 128;
};

/// The profile of make_transformer(shape) in training, with attention computed as written: scores
/// of all pairs of tokens are kept, also of those that causality masks. Throws c10::ValueError if a
/// number is not positive.
ModelProfile transformer_profile(const std::string& name, const TransformerShape& shape,
                                 const SequenceBatch& sequences);

}  // namespace ddp
