#include "subject.h"

#include <ATen/ATen.h>

namespace ddp::testing {

Factory bucketed(const BucketedDdpOptions& options) {
  return [options](Client& client, const std::vector<at::Tensor>& parameters,
                   const std::vector<at::Tensor>& buffers, const ProcessGroupPtr& group) {
    if (client.place().phase == Phase::kConstruction) {
      // Each bucket's indices, then -1.
      std::vector<std::int64_t> plan;
      for (const auto& bucket : assign_buckets(parameters, options.cap_bytes)) {
        plan.insert(plan.end(), bucket.begin(), bucket.end());
        plan.push_back(-1);
      }
      client.value("plan", at::tensor(plan, at::kLong));
      client.value("cap", at::scalar_tensor(options.cap_bytes, at::kLong));
      client.value(options.overlap ? "overlap" : "no overlap", at::Tensor());
    }
    static BucketedDdpOptions given;  // which the caller uses for something else afterwards
    given = options;
    auto synchronizer = make_bucketed_ddp(parameters, buffers, group, given);
    given = {.cap_bytes = 1, .overlap = !options.overlap};
    return synchronizer;
  };
}

}  // namespace ddp::testing
