#pragma once

#include <string>

#include "ddp/referee/evidence.h"

namespace ddp::testing {

/// After each step all parameters are where one process would have them, with the whole state of an
/// optimizer of the same kind and the mean of all ranks' gradients, clipped if that was asked for.
std::string parameters_are_the_unsharded_optimizers(const Evidence& evidence);

/// The same bit for bit, where no sum is rounded.
std::string parameters_are_the_same_bits(const Evidence& evidence);

/// Each is in the storage that it had.
std::string parameters_stay_in_place(const Evidence& evidence);

/// They have the same bits on all ranks.
std::string ranks_have_the_same_bits(const Evidence& evidence);

/// What clip_grad_norm() returned is the norm of the mean gradients.
std::string norm_is_that_of_the_means(const Evidence& evidence);

}  // namespace ddp::testing
