#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <utility>

namespace ddp {

/// Thrown in a rank that waits for another rank which has ended. As with any backend, failed
/// communication is a c10::Error.
class PeerGone : public c10::Error {
 public:
  explicit PeerGone(std::string text)
      : c10::Error({__func__, __FILE__, __LINE__}, std::move(text)) {}
};

}  // namespace ddp
