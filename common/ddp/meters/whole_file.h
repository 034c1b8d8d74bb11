#pragma once

#include <filesystem>
#include <string_view>

namespace ddp {

/// Writes `text` to `file` so that nobody ever sees half of it, and replaces an older one; makes
/// missing folders. Throws std::runtime_error, which names the file, the reason, and `flag`, the
/// flag by which the user chooses another place, where it cannot be written.
void write_whole_file(const std::filesystem::path& file, std::string_view text,
                      std::string_view flag);

}  // namespace ddp
