#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ddp/simulation/timeline.h"
#include "ddp/simulation/virtual_clock.h"

namespace ddp {

/// Draws its own lifetime as a compute span: in real time, or by `clock` if there is one.
class ComputeScope {
 public:
  ComputeScope(std::shared_ptr<Timeline> timeline, std::string name,
               std::shared_ptr<const VirtualClock> clock = nullptr);
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;
  ~ComputeScope();

 private:
  std::int64_t now() const;

  const std::shared_ptr<Timeline> timeline_;
  const std::string name_;
  const std::shared_ptr<const VirtualClock> clock_;
  const std::int64_t begin_ns_;
};

}  // namespace ddp
