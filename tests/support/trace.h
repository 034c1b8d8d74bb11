#pragma once

#include <string>

#include "ddp/referee/evidence.h"

namespace ddp::testing {

// The timelines of all bodies of a run, in one Chrome trace: settings().trace is its file. Each body
// is a group in it.

/// Adds what the ranks of a body did, if a trace is wanted. Each layer computes 0.1 ms in forward
/// and in backward.
void collect_spans(const Evidence& evidence, const std::string& body);

/// Writes the collected spans, and reports on stderr if it cannot. Does nothing if
/// no trace is wanted.
void write_trace();

}  // namespace ddp::testing
