#include "overlapped.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "02_overlapped_ddp/overlapped_ddp.h"
#include "support/compare.h"

namespace ddp::testing {

MakeSynchronizer overlapped() {
  return
      [](const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
         const ProcessGroupPtr& group) { return make_overlapped_ddp(parameters, buffers, group); };
}

const std::vector<ToyKind>& same_order_models() {
  static const std::vector<ToyKind> kinds = [] {
    std::vector<ToyKind> same;
    std::ranges::copy_if(all_toy_models(), std::back_inserter(same),
                         [](ToyKind kind) { return kind != ToyKind::kRankBranch; });
    return same;
  }();
  return kinds;
}

std::vector<ChainLayer> layers_of(std::initializer_list<std::int64_t> elements) {
  std::vector<ChainLayer> layers;
  for (const std::int64_t count : elements) {
    layers.push_back({.elements = count});
  }
  return layers;
}

void expect_chain_means(Rank& rank, const ChainModel& model, int step, const std::string& what) {
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const auto& [name, parameter] = model.parameters()[i];
    std::string subject = "the gradient of ";
    subject.append(name).append(" ").append(what);
    const at::Tensor expected = model.mean_gradient(i, step);
    const double epsilon = parameter.scalar_type() == at::kDouble
                               ? std::numeric_limits<double>::epsilon()
                               : std::numeric_limits<float>::epsilon();
    EXPECT_TRUE(is_close({subject, rank.world_size(), model.gradient(i, rank.rank(), step)},
                         parameter.grad(), expected,
                         expected.abs() * ((rank.world_size() + 2) * epsilon)));
  }
}

}  // namespace ddp::testing
