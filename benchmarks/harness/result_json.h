#pragma once

#include <nlohmann/json.hpp>

#include "harness/result.h"

namespace ddp {

// Parts of a result's JSON, for the code that writes it. Programs use result_file.h.

/// An object, its fields in the order of `parameters`.
nlohmann::ordered_json parameters_json(const Parameters& parameters);

/// Throws c10::ValueError, which names the series, for a value that JSON cannot represent.
void check_finite(const Series& series);

/// Who measured what, when and on which machine: the provenance of figures/lib/schema.json.
nlohmann::ordered_json provenance_json(const Run& run);

}  // namespace ddp
