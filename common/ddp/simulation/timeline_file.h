#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ddp/ranks/fork_ranks.h"
#include "ddp/simulation/timeline.h"

namespace ddp {

/// One rank's part of a timeline.
struct RankSpans {
  int rank = 0;
  std::vector<Span> spans;
};

/// Writes the ranks' spans as a Chrome trace: JSON for https://ui.perfetto.dev and
/// chrome://tracing. Each pair of group and rank is a process, such as "overlapped, rank 0", with
/// one row for computing and as many for communication as there are simultaneous operations. An
/// arrow leads from an operation's launch to the operation. Times are in microseconds, with
/// nanosecond digits.
///
/// The file appears whole or not at all. If it cannot be written, throws std::runtime_error, which
/// names the file and the reason.
void write_chrome_trace(const std::vector<RankSpans>& ranks, const std::filesystem::path& file);

/// Returns the spans of all ranks on rank 0, and nothing on the others. They are sent through the
/// store by which the ranks found each other, not over the network that was measured. Collective.
std::vector<RankSpans> gather_spans(const std::vector<Span>& spans, const RankContext& context);

}  // namespace ddp
