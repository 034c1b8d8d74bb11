#include "ddp/simulation/compute_scope.h"

#include <utility>

namespace ddp {

ComputeScope::ComputeScope(std::shared_ptr<Timeline> timeline, std::string name)
    : timeline_(std::move(timeline)), name_(std::move(name)), begin_ns_(steady_ns()) {}

ComputeScope::~ComputeScope() {
  if (timeline_) {
    timeline_->add(SpanKind::kCompute, name_, begin_ns_, steady_ns());
  }
}

}  // namespace ddp
