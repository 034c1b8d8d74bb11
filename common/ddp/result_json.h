#pragma once

#include <nlohmann/json.hpp>

#include "ddp/measurement.h"

namespace ddp {

// Parts of a result's JSON, for the files that write it. Programs take measurement.h.

/// An object, its fields in the order of `parameters`.
nlohmann::ordered_json parameters_json(const Parameters& parameters);

/// Throws c10::ValueError, which names the series, for a value that JSON has no form for.
void check_finite(const Series& series);

/// Who measured what, on which machine, and now: what figures/schema.json calls provenance.
nlohmann::ordered_json provenance_json(const Run& run);

}  // namespace ddp
