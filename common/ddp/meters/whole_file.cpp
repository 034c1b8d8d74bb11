#include "ddp/meters/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace ddp {
namespace {

// Returns 0, or the errno of the write that failed.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      return errno;
    }
    text.remove_prefix(std::max<ssize_t>(written, 0));
  }
  return 0;
}

// Writes a temporary file in the same folder, then renames it. Returns 0, or the errno of the call
// that failed.
int write_and_rename(const std::filesystem::path& file, std::string_view text) {
  std::string temporary = file.string() + ".XXXXXX";
  const int descriptor = mkstemp(temporary.data());
  if (descriptor < 0) {
    return errno;
  }
  fchmod(descriptor, 0644);  // mkstemp makes it readable for its owner only
  int problem = write_all(descriptor, text);
  // Without fsync, a power cut may leave the new name with none of the text.
  if (problem == 0 && fsync(descriptor) != 0) {
    problem = errno;
  }
  if (close(descriptor) != 0 && problem == 0) {
    problem = errno;
  }
  if (problem == 0 && rename(temporary.c_str(), file.c_str()) != 0) {
    problem = errno;
  }
  if (problem != 0) {
    unlink(temporary.c_str());
  }
  return problem;
}

int make_folders_and_write(const std::filesystem::path& file, std::string_view text) {
  std::error_code error;
  if (file.has_parent_path()) {
    std::filesystem::create_directories(file.parent_path(), error);
  }
  return error ? error.value() : write_and_rename(file, text);
}

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& reason,
                         std::string_view flag) {
  throw std::runtime_error("cannot write " + file.string() + ": " + reason +
                           "; choose another place with " + std::string(flag));
}

}  // namespace

void write_whole_file(const std::filesystem::path& file, std::string_view text,
                      std::string_view flag) {
  if (const int problem = make_folders_and_write(file, text); problem != 0) {
    refuse(file, std::strerror(problem), flag);
  }
}

void append_to_file(const std::filesystem::path& file, std::string_view text,
                    std::string_view flag) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  int problem = descriptor < 0 ? errno : write_all(descriptor, text);
  if (descriptor >= 0 && close(descriptor) != 0 && problem == 0) {
    problem = errno;
  }
  if (problem != 0) {
    refuse(file, std::strerror(problem), flag);
  }
}

void require_writable(const std::filesystem::path& file, std::string_view flag) {
  if (std::filesystem::is_directory(file)) {
    refuse(file, "it is a folder", flag);
  }
  const std::filesystem::path probe = file.string() + ".probe";
  if (const int problem = make_folders_and_write(probe, ""); problem != 0) {
    refuse(file, std::strerror(problem), flag);
  }
  std::filesystem::remove(probe);
}

}  // namespace ddp
