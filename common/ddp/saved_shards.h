#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddp {

/// What a rank saves of a model in units, of which each rank has a chunk.
struct SavedShards {
  int rank = 0;
  int ranks = 1;                       // of the group that saved
  std::vector<std::int64_t> elements;  // of each unit, without padding
  std::vector<at::Tensor> shards;      // of each unit: this rank's chunk, flat and padded
};

/// What the ranks of one group have saved, in their order. Throws c10::Error if there is nothing, if a
/// rank is missing or there twice, or if the states are another model's than `like`, one of any group:
/// another number of units, of elements of a unit (the message names it), of elements or dtype of a
/// shard.
std::vector<SavedShards> in_order_of_ranks(std::vector<SavedShards> saved, const SavedShards& like);

}  // namespace ddp
