#pragma once

namespace ddp::cluster {

/// Lets c10d's operations take tensors on the meta device, in this process from now on. They are
/// given to a group's CPU backend, which must not look for values.
void allow_meta_collectives();

}  // namespace ddp::cluster
