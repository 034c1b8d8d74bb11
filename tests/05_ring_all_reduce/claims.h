#pragma once

#include <string>
#include <vector>

#include "ring_evidence.h"

// What must be true of the calls of a body: empty, or what is not.

namespace ddp::testing {

/// The sum or average, but for rounding; of the own chunk alone after a reduce-scatter.
std::string wrong_sum(const CallOfGroup& call);
/// Chunk r is rank r's, bit for bit.
std::string wrong_gather(const CallOfGroup& call);
/// All ranks have the same bits.
std::string differing_bits(const CallOfGroup& call);
/// As far from the exact result as N-1 additions and a division may be, and no further.
std::string too_much_rounding(const CallOfGroup& call);
/// The tensor keeps all but its elements, and what is not the tensor's keeps those, too.
std::string changed_tensor(const CallOfGroup& call);

/// Chunks, to the right neighbour and from the left one, and nothing else.
std::string wrong_messages(const CallOfGroup& call);
/// Ranks that have something to send do not.
std::string sends_nothing(const CallOfGroup& call);
/// Every message is waited for, once, and has ended when the call returns; nothing touches it before.
std::string touched_in_flight(const CallOfGroup& call);

/// One chunk, and two copies of a tensor that is not contiguous.
std::string uses_much_memory(const Evidence& evidence);

/// The time of the ring, on several networks.
std::string wrong_time(const Evidence& evidence);

/// A rank writes its line, and flushes it, when the one before it has; whatever the timing.
std::string wrong_printing(const Evidence& evidence);

/// Gradients averaged by the ring, for several models; the graded test that is charged with them.
std::vector<Body> training_bodies_of_ring(const std::string& charged_to);
Predicate ring_trains();

/// The chunks of a call's tensor, in bytes.
std::vector<std::int64_t> chunk_bytes(const CallOfGroup& call);

}  // namespace ddp::testing
