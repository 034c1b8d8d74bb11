#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace ddp {

/// Copies of what ranks hand in, in memory that forks leave out. A fork takes the longer the more
/// memory it passes on, and no rank may look at evidence: so later ranks start as fast as the first.
class KeptValues {
 public:
  /// A copy of a contiguous tensor in host memory. It may outlive this object.
  at::Tensor copy(const at::Tensor& value);

 private:
  class Block;
  std::shared_ptr<Block> block_;  // which has room left
};

}  // namespace ddp
