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

/// Writes the ranks' spans as a Chrome trace: JSON that https://ui.perfetto.dev and
/// chrome://tracing open. Every group and rank is a process, "overlapped, rank 0"; in it computing
/// has one row, and communication as many as it has operations at the same time. An arrow leads
/// from an operation's launch to the operation. Times are in microseconds, with all digits of the
/// nanoseconds.
///
/// The file appears whole or not at all. Throws std::runtime_error, which names the file and the
/// reason, where it cannot be written.
void write_chrome_trace(const std::vector<RankSpans>& ranks, const std::filesystem::path& file);

/// The spans of all ranks, on rank 0; nothing on the others. They travel through the store by which
/// the ranks found each other, forked or started by torchrun, and not by the network that was
/// measured. Collective.
std::vector<RankSpans> gather_spans(const std::vector<Span>& spans, const RankContext& context);

/// Spans as text and back, for those who send them on.
std::string to_text(const std::vector<Span>& spans);
std::vector<Span> spans_of_text(const std::string& text);

}  // namespace ddp
