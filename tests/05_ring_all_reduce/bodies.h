#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "ring_calls.h"
#include "support/body.h"

namespace ddp::testing {

/// "3 ranks".
std::string on_ranks(int ranks);

/// What is rare with so many ranks; rings of two, four and eight are the ordinary ones.
Rare with_ranks(Rare rare, int ranks);

/// A body whose ranks make these calls.
Body calling(const std::string& name, const World& world, const std::vector<RingCall>& calls,
             const std::string& charged_to, const Rare& rare);

/// A body for each number of ranks.
std::vector<Body> for_ranks(std::initializer_list<int> numbers, Body (*body)(int ranks));

/// What ranks do with a function of the ring, the simplest first.
std::vector<Body> bodies_of(Function function);

/// With all of them, the all-reduce first.
std::vector<Body> all_bodies();

/// Ranks print.
const std::vector<Body>& printing_bodies();

/// Wrong arguments, which must be refused.
const std::vector<Body>& misuse_bodies();

/// One call after another; what is held is counted three times.
constexpr int kCallsBetweenCounts = 20;
const std::vector<Body>& many_calls();

/// Both phases of one tensor, which changes in between; a body of ring_all_gather()'s.
Body one_tensor_in_several_calls();

/// Of the extension.
const std::vector<Body>& pipelined_bodies();
/// One call of it, of a megabyte by 4 ranks, with the segments that it has by default.
const Body& pipelined_megabyte();

}  // namespace ddp::testing
