#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ddp/simulation/timeline.h"

namespace ddp {

/// Draws its own lifetime as a compute span in real time, if there is a timeline.
class ComputeScope {
 public:
  ComputeScope(std::shared_ptr<Timeline> timeline, std::string name);
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;
  ~ComputeScope();

 private:
  const std::shared_ptr<Timeline> timeline_;
  const std::string name_;
  const std::int64_t begin_ns_;
};

}  // namespace ddp
