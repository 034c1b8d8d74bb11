#pragma once

#include <nlohmann/json.hpp>

#include "harness/result.h"

namespace ddp {

// Parts of a result's JSON, for the files that write it. Programs take result_file.h.

/// An object, its fields in the order of `parameters`.
nlohmann::ordered_json parameters_json(const Parameters& parameters);

/// Throws c10::ValueError, which names the series, for a value that JSON has no form for.
void check_finite(const Series& series);

/// Who measured what, on which machine, and now: what figures/lib/schema.json calls provenance.
nlohmann::ordered_json provenance_json(const Run& run);

}  // namespace ddp
