#include "ddp/referee/world.h"

#include <numeric>

namespace ddp {

namespace {

// SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t mixed(std::uint64_t number) {
  number += 0x9E3779B97F4A7C15U;
  number = (number ^ (number >> 30U)) * 0xBF58476D1CE4E5B9U;
  number = (number ^ (number >> 27U)) * 0x94D049BB133111EBU;
  return number ^ (number >> 31U);
}

}  // namespace

// Decimal, so that it can be read: the draw, then five digits each for `first` and `last`.
std::int64_t Schedule::number() const {
  return usual() ? 0 : (draw_ * kOperations + first_) * kOperations + last_;
}

Schedule Schedule::of_number(std::int64_t number) {
  return Schedule(number / kOperations / kOperations, number / kOperations % kOperations,
                  number % kOperations);
}

bool Schedule::other(Choice choice, int rank, std::int64_t operation) const {
  if (usual() || operation < first_ || operation >= last_) {
    return false;
  }
  if (draw_ == 1) {
    return true;
  }
  std::uint64_t bits = mixed(static_cast<std::uint64_t>(draw_));
  bits = mixed(bits ^ static_cast<std::uint64_t>(choice));
  bits = mixed(bits ^ static_cast<std::uint64_t>(rank));
  bits = mixed(bits ^ static_cast<std::uint64_t>(operation));
  return bits % 2 == 1;
}

std::vector<int> members_of(const World& world, int group) {
  if (group > 0) {
    return world.subgroups.at(group - 1);
  }
  std::vector<int> all(world.ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace ddp
