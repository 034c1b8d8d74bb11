#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace ddp {

/// A rank that will never end by itself, and why.
struct Hang {
  int rank = 0;
  std::string reason;
};

/// What runs beside forked ranks, in their parent, and knows what they do: the network of a
/// refereed world.
class Companion {
 public:
  Companion() = default;
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;
  virtual ~Companion() = default;

  /// Does what there is to do, for a few milliseconds. `processes` are those of the ranks; -1 for a
  /// rank that has ended.
  virtual void attend(const std::vector<pid_t>& processes) = 0;

  /// The rank's process has ended; `finished` if its body had returned.
  virtual void rank_ended(int rank, bool finished) = 0;

  /// Set once no rank can go on.
  virtual std::optional<Hang> hang() const = 0;

  /// What the rank does, in a line: "waits for all-reduce #3 of the gradient of fc1.weight".
  virtual std::string activity(int rank) const = 0;
};

}  // namespace ddp
