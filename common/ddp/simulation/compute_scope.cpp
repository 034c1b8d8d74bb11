#include "ddp/simulation/compute_scope.h"

#include <utility>

namespace ddp {

ComputeScope::ComputeScope(std::shared_ptr<Timeline> timeline, std::string name,
                           std::shared_ptr<const VirtualClock> clock)
    : timeline_(std::move(timeline)),
      name_(std::move(name)),
      clock_(std::move(clock)),
      begin_ns_(now()) {}

ComputeScope::~ComputeScope() {
  if (timeline_) {
    timeline_->add(SpanKind::kCompute, name_, begin_ns_, now());
  }
}

std::int64_t ComputeScope::now() const { return clock_ ? clock_->now() : steady_ns(); }

}  // namespace ddp
