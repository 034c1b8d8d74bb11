#include "ddp/referee/race_list.h"

#include <algorithm>
#include <utility>

namespace ddp {

namespace {

constexpr std::size_t kRacesKept = 20;

}  // namespace

void RaceList::add(std::string race) {
  const std::lock_guard lock(mutex_);
  const bool known = std::find(races_.begin(), races_.end(), race) != races_.end();
  if (!known && races_.size() < kRacesKept) {
    races_.push_back(std::move(race));
  }
}

std::vector<std::string> RaceList::all() const {
  const std::lock_guard lock(mutex_);
  return races_;
}

}  // namespace ddp
