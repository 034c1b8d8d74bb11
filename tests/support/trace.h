#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ddp/ranks/fork_ranks.h"
#include "ddp/referee/evidence.h"
#include "ddp/simulation/timeline.h"

namespace ddp::testing {

// The timelines of all worlds of a run, in one Chrome trace: settings().trace is its file. Each
// world of ranks is a group in it, named after its test and the number of ranks.

/// In the parent, before the fork: a new world begins.
void count_world();

/// In a rank: a timeline for this world, or null if no trace is wanted.
std::shared_ptr<Timeline> make_world_timeline(int world_size);

/// In a rank: sends its spans to the parent.
void send_spans(const RankContext& context, const std::vector<Span>& spans);

/// In the parent: true if a rank's message contains spans, which are kept for write_trace().
bool collect_spans(int rank, const std::string& message);

/// The same for the evidence of a body, if a trace is wanted: each layer computes 0.1 ms in forward
/// and in backward.
void collect_spans(const Evidence& evidence, const std::string& body);

/// In the parent: writes the collected spans, and reports on stderr if it cannot. Does nothing if
/// no trace is wanted.
void write_trace();

}  // namespace ddp::testing
