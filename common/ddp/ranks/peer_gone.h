#pragma once

#include <stdexcept>

namespace ddp {

/// Thrown in a rank that waits for another rank which has ended.
class PeerGone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddp
