#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ddp/cluster/timed_model.h"
#include "harness/variants.h"

namespace ddp {

// Variants on the simulated cluster: stages and peers as they are, in one process, in virtual time.

/// What is gathered together: each "layers.N" of a model whose layers have such names, and what lies
/// between these. They use the model.
std::vector<ModelUnit> units_of(const cluster::TimedModel& model);

/// One step of a variant from the second on, when its buckets are what they stay. The library of its
/// stage must be loaded, see variants_on_cluster(). Without units in `options` they are the model's.
/// `at_its_end` is called while the variant is still there.
cluster::StepTimes simulate_step(const std::string& variant, cluster::Cluster& cluster,
                                 cluster::TimedModel& model, VariantOptions options = {},
                                 const std::function<void()>& at_its_end = {});

/// AdamW that tells a MetaMemory what it makes.
std::unique_ptr<torch::optim::Optimizer> counted_adamw(std::vector<at::Tensor> parameters);

/// Those of `names` that can be simulated, in the same order, with their stages' libraries loaded in
/// this process. A variant is left out, with one line on stderr, if it is a stub, its library cannot
/// be loaded, or it needs what the cluster does not have, such as values. Throws
/// c10::NotImplementedError if `names` has variants of stages and none is left.
std::vector<std::string> variants_on_cluster(const std::vector<std::string>& names,
                                             const std::string& implementation);

}  // namespace ddp
