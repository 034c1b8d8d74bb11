#pragma once

#include <memory>

#include "ddp/ranks/process_group.h"
#include "ddp/referee/client.h"

namespace ddp {

/// A new process group of a rank, for the world's group `index`, of which it must be a member. Every
/// operation becomes an event and bytes for the referee. Throws c10::Error for an operation on a
/// tensor that is not dense, and for a receive from any rank.
ProcessGroupPtr make_group(const std::shared_ptr<Client>& client, GroupIndex index = 0);

}  // namespace ddp
