#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/trainer.h"
#include "harness/workload.h"

namespace ddp {

/// One step of every trainer, from equal weights and on equal data: all must come to the gradients
/// of trainer `peer`, but for those of "compute only". `variants` are the trainers' names. Throws
/// c10::Error, which names variant and parameter, where one does not: there is no point in
/// measuring it. Collective.
void check_gradients(const std::vector<std::string>& variants, std::vector<Trainer>& trainers,
                     std::size_t peer, const LabelledBatch& batch);

}  // namespace ddp
