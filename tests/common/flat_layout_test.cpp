#include "ddp/flat_layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/checks.h"
#include "ddp/saved_shards.h"
#include "ddp/storage.h"

// What units and their shards are made of. In children, since the parent uses no tensors.

namespace ddp {
namespace {

CHILD_TEST(Storage, GoesAndComesBackUnderWhatAutogradHasSaved) {
  const at::Tensor leaf = at::full({4}, 3.0).set_requires_grad(true);
  const at::Tensor view = leaf.narrow(0, 1, 2);
  const at::Tensor loss = (view * view).sum();
  empty_storage(leaf);
  EXPECT_FALSE(has_storage(view));
  EXPECT_EQ(view.numel(), 2);
  fill_storage(leaf);
  fill_storage(leaf);  // nothing, the second time
  leaf.variable_data().fill_(5);
  loss.backward();
  EXPECT_TRUE(at::equal(leaf.grad(), at::tensor({0.0F, 10.0F, 10.0F, 0.0F})));
  EXPECT_TRUE(has_storage(at::empty({0})));
}

CHILD_TEST(FlatLayout, PutsTensorsOneAfterTheOtherAndPads) {
  const at::Tensor tied = at::arange(4, at::kFloat).view({2, 2});
  const std::vector<at::Tensor> list = {tied.t(), at::full({3}, 9.0), at::empty({0})};
  std::vector<at::Tensor> twice = list;
  twice.push_back(list[0]);
  const FlatLayout layout(twice, 4, "unit 2");
  EXPECT_EQ(layout.elements(), 7);
  EXPECT_EQ(layout.padded_elements(), 8);
  const at::Tensor flat = layout.flatten(twice);
  EXPECT_TRUE(at::equal(flat, at::tensor({0.0F, 2.0F, 1.0F, 3.0F, 9.0F, 9.0F, 9.0F, 0.0F})));
  const std::vector<at::Tensor> views = layout.views_of(flat);
  ASSERT_EQ(views.size(), 4);
  EXPECT_TRUE(at::equal(views[3], list[0]));
  EXPECT_EQ(views[3].const_data_ptr(), views[0].const_data_ptr());
}

CHILD_TEST(FlatLayout, RefusesWhatDoesNotFit) {
  const at::Tensor one = at::ones({2});
  for (const std::vector<at::Tensor>& list : {std::vector<at::Tensor>{},
                                              {at::empty({0})},
                                              {one, at::Tensor()},
                                              {one, one.to(at::kDouble)}}) {
    EXPECT_THROW(FlatLayout(list, 2, "unit 2"), c10::Error);
  }
  const FlatLayout layout({one, at::ones({3})}, 2, "unit 2");
  EXPECT_THROW(layout.flatten({one}), c10::Error);
  EXPECT_THROW(layout.flatten({one, at::ones({4})}), c10::Error);
  EXPECT_NO_THROW(layout.flatten({at::Tensor(), one, at::ones({3})}, 1));
}

CHILD_TEST(SavedShards, AreOneOfEachRank) {
  const auto state = [](int rank, int ranks, std::int64_t elements) {
    const std::int64_t chunk = (elements + ranks - 1) / ranks;
    return SavedShards{rank, ranks, {elements}, {at::full({chunk}, rank)}};
  };
  const SavedShards own = state(0, 3, 5);
  const auto sorted = in_order_of_ranks({state(1, 2, 5), state(0, 2, 5)}, own);
  EXPECT_EQ(sorted[1].shards[0][0].item<int>(), 1);
  EXPECT_THROW(in_order_of_ranks({}, own), c10::Error);
  EXPECT_THROW(in_order_of_ranks({state(0, 2, 5)}, own), c10::Error);
  EXPECT_THROW(in_order_of_ranks({state(0, 2, 5), state(0, 2, 5)}, own), c10::Error);
  EXPECT_THROW(in_order_of_ranks({state(0, 2, 6), state(1, 2, 6)}, own), c10::Error);
}

}  // namespace
}  // namespace ddp
