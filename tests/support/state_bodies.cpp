#include "support/body_list.h"

namespace ddp::testing {

// Buffers, each list with one thing beside contiguous ones of float32; and weights that are frozen.
void add_state(Bodies& bodies) {
  const auto add = [&](const std::string& name, State state, const std::vector<Layer>& more = {}) {
    std::vector<Layer> layers = {{{6, 3}}, {{4}}};
    layers.insert(layers.end(), more.begin(), more.end());
    bodies.add(name, {}, bodies.charged().construction, {.layers = layers, .state = state},
               [](Training& training) { training.step(); });
  };
  add("buffers that are not contiguous", State::kStrided,
      {{{3, 2}, at::kFloat, false, Layout::kTransposed},
       {{4}, at::kFloat, false, Layout::kEverySecond}});
  add("buffers of many dtypes", State::kDtypes, {{{5}, at::kLong, false}});
  add("buffers without elements", State::kEmpty);
  add("buffers that share memory", State::kShared);
}

}  // namespace ddp::testing
