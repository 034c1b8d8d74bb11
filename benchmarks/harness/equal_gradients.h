#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/trainer.h"
#include "harness/workload.h"

namespace ddp {

/// One step of every trainer, from equal weights and on equal data: all must get the gradients of
/// trainer `peer`, except "compute only". `variants` are the trainers' names. If one does not, it
/// is not worth measuring: throws c10::Error, which names the variant and the parameter.
/// Collective.
void check_gradients(const std::vector<std::string>& variants, std::vector<Trainer>& trainers,
                     std::size_t peer, const LabelledBatch& batch);

}  // namespace ddp
