#include <ATen/ATen.h>

#include "bodies.h"
#include "ddp/referee/client_group.h"
#include "support/calls.h"

// What ranks do with the extension.

namespace ddp::testing {

namespace {

constexpr const char* kPipeliningTest = "pipelined_ring_beside_gloos_all_reduce";

Body of_calls(const std::string& name, int ranks, const std::vector<RingCall>& calls) {
  return calling(to_string(Function::kPipelined) + ", " + name, {.ranks = ranks}, calls,
                 kPipeliningTest, with_ranks({}, ranks));
}

Body pipelined(int ranks) {
  constexpr std::int64_t kWhole = std::int64_t{1} << 40;  // no chunk is larger than one segment
  std::vector<RingCall> calls;
  const auto add = [&](std::int64_t segment_bytes, RingCall call) {
    call.function = Function::kPipelined;
    call.segment_bytes = segment_bytes;
    calls.push_back(call);
  };
  for (const std::int64_t segment_bytes : {std::int64_t{1}, std::int64_t{12}, kWhole}) {
    for (const std::int64_t elements : {0, 1, 11}) {
      add(segment_bytes, {.elements = elements});
    }
  }
  add(256, {.elements = 1001, .dtype = at::kLong});
  add(100, {.elements = 999, .dtype = at::kBFloat16, .op = ReduceOp::kAverage});
  add(300, {.elements = 2051, .op = ReduceOp::kAverage});
  return of_calls("the pipelined ring, " + on_ranks(ranks), ranks, calls);
}

Body wrong_segments() {
  return {"the pipelined ring, segments of no size",
          {},
          [](Client& client) {
            const ProcessGroupPtr group = make_group(client.shared_from_this());
            for (const std::int64_t bytes : {0, -1}) {
              attempt(client, "segment_bytes = " + std::to_string(bytes), [&] {
                pipelined_ring_all_reduce(at::ones({6}), group, {.segment_bytes = bytes});
              });
            }
          },
          kPipeliningTest};
}

}  // namespace

const std::vector<Body>& pipelined_bodies() {
  static const std::vector<Body> bodies =
      joined({for_ranks({2, 1, 3, 4}, pipelined), {wrong_segments()}});
  return bodies;
}

const Body& pipelined_megabyte() {
  const RingCall call{.function = Function::kPipelined,
                      .elements = 1 << 18,
                      .segment_bytes = PipelinedRingOptions().segment_bytes};
  static const Body body = of_calls("a megabyte on 4 ranks", 4, {call});
  return body;
}

}  // namespace ddp::testing
