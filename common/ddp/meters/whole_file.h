#pragma once

#include <filesystem>
#include <string_view>

namespace ddp {

/// Writes `text` to `file` atomically: nobody ever sees half of it. Replaces an older file and
/// makes missing folders. If that fails, throws std::runtime_error, which names the file, the
/// reason, and `flag`, the command line flag that chooses another place.
void write_whole_file(const std::filesystem::path& file, std::string_view text,
                      std::string_view flag);

/// Adds `text` to the end of a file that is there. Throws as write_whole_file() does.
void append_to_file(const std::filesystem::path& file, std::string_view text,
                    std::string_view flag);

/// Throws as write_whole_file() would, and leaves `file` as it is: before hours of measuring rather
/// than after.
void require_writable(const std::filesystem::path& file, std::string_view flag);

}  // namespace ddp
