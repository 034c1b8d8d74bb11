#pragma once

#include <vector>

#include "support/body.h"
#include "uses.h"

namespace ddp::testing {

/// Uses of the function in training, the simplest first, that no other list is about.
const std::vector<Body>& plain();
/// Those among them where a mode of libtorch is another.
const std::vector<Body>& modes();
/// Those among them where a rank is in several groups.
const std::vector<Body>& groups();
/// Several forwards go before the first backward, in one group and in several.
const std::vector<Body>& interleaved();
/// Ranks with different numbers of samples, or none, by the function and by a module.
const std::vector<Body>& shards();
/// Deviations of which a float32 inverse of sqrt(variance + eps) tells nothing.
const std::vector<Body>& tiny_deviations();
/// Upstream gradients of which some ranks have none.
const std::vector<Body>& upstreams();
const std::vector<Body>& large_means();
/// Too many values for an exact mean in float32, of which the weight's gradient is independent.
const std::vector<Body>& large_products();
const std::vector<Body>& low_precision();
const std::vector<Body>& layouts();
const std::vector<Body>& evaluation();
const std::vector<Body>& modules();
/// All above.
const std::vector<Body>& all_uses();

/// Too few values on all ranks together; and bad arguments.
const std::vector<Body>& counts();
const std::vector<Body>& misuse();

/// What is in use between forward and backward, and after many steps.
const std::vector<Body>& memory();
/// What is too much of that, in all cases.
std::string little_is_kept(const Evidence& evidence);

/// A network in training.
const std::vector<Body>& networks();
/// What is wrong with it in the end: it is compared with training in one process.
std::string network_is_trained_as_by_one(const Evidence& evidence);

// How the lists are written.

using Shape = std::vector<std::int64_t>;

/// A body whose ranks do `run`, charged to the test that it is about.
Body body_of(const std::string& name, int ranks, const std::string& charged_to,
             const std::function<void(Uses&)>& run);
/// The same on each of several numbers of ranks.
std::vector<Body> with_ranks(const std::vector<int>& ranks, const std::string& name,
                             const std::string& charged_to, const std::function<void(Uses&)>& run);

/// Of two to five dimensions.
const std::vector<Shape>& shapes();

}  // namespace ddp::testing
