#include "ddp/saved_shards.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace ddp {

namespace {

void check_model(const SavedShards& state, const SavedShards& like) {
  TORCH_CHECK(
      state.elements.size() == like.elements.size() && state.shards.size() == like.elements.size(),
      "this is another model's state: it has ", state.shards.size(), " units, and not ",
      like.elements.size());
  for (std::size_t i = 0; i < like.elements.size(); ++i) {
    const at::Tensor& shard = state.shards[i];
    const std::int64_t chunk = (like.elements[i] + state.ranks - 1) / state.ranks;
    TORCH_CHECK(state.elements[i] == like.elements[i] && shard.defined() && shard.dim() == 1 &&
                    shard.numel() == chunk && shard.dtype() == like.shards[i].dtype(),
                "this is another model's state: unit ", i, " should have ", like.elements[i],
                " elements of ", like.shards[i].dtype(), ", and a shard ", chunk, " of them");
  }
}

}  // namespace

std::vector<SavedShards> in_order_of_ranks(std::vector<SavedShards> saved,
                                           const SavedShards& like) {
  TORCH_CHECK(!saved.empty(), "there is no state to load");
  std::ranges::sort(saved, {}, &SavedShards::rank);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    TORCH_CHECK(
        saved[i].ranks == static_cast<int>(saved.size()) && saved[i].rank == static_cast<int>(i),
        "there should be one state for each of ", saved[0].ranks, " ranks, and in place of ", i,
        " is that of rank ", saved[i].rank, " of ", saved[i].ranks);
    check_model(saved[i], like);
  }
  return saved;
}

}  // namespace ddp
