#pragma once

#include <filesystem>

#include "harness/result.h"

namespace ddp {

/// figures/data/<program>.<implementation>.<preset>.json, relative to the repository's root.
std::filesystem::path default_result_path(const Run& run);

/// Writes `result` as JSON as figures/lib/schema.json describes it, together with the machine,
/// libtorch's version, the date, and the commit from the environment variable DDP_LAB_COMMIT.
/// Creates missing folders. The file appears complete or not at all. Throws c10::ValueError for a
/// series without values or with values that are not finite; std::runtime_error, which names the
/// file and the reason, if it cannot be written.
void write_result(const Result& result, const std::filesystem::path& file);

}  // namespace ddp
