#pragma once

#include <nlohmann/json.hpp>

#include "grader/runs.h"

// What tools/grading/page draws of a verdict: the run that breaks a claim, or one that keeps a claim on time.

namespace ddp::testing {

/// The step that `finding` is about, as every rank went through it in virtual time, and what is marked in it:
///
///     {"title": a scenario, "charts": [chart, ...], "memory": ..., "values": ...}
///     chart:  {"caption": ..., "end": ns, "lanes": [lane, ...], "marks": [...], "arrows": [...], "bar": ...}
///     lane:   {"name": "rank 0", "scopes": [of NoSync: {"begin": ns, "end": ns}, ...], "parts": [span, ...], "computing": [...], "operations": [...]}
///     span:   {"name": ..., "begin": ns, "end": ns}; an operation's has "launched" and "bytes", too, and
///             "open" where it never ended
///     mark:   {"lane": n, "operation": its place in the lane (-1: none), "at": ns, "kind": ..., "text": ...}
///     arrow:  {"from": lane, "to": lane, "begin": ns, "end": ns, "waits": bool, "text": ...}
///     bar:    {"begin": ns, "end": ns, "text": ...}, by how much a step missed its time
///     memory: {"name": ..., "limit": bytes, "series": [{"name": ..., "bytes": n, "limit": n}, ...]}
///     values: {"name": a tensor or "order", "elements": how many differ, "rows": [[index, expected, actual], ...]}
///
/// With another order of events than the usual one, `usual` is drawn above it.
nlohmann::json picture_of(const Scenario& scenario, const Run& run, const Finding& finding,
                          const Run* usual = nullptr);

}  // namespace ddp::testing
