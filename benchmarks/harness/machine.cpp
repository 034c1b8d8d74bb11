#include "harness/machine.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace ddp {
namespace {

namespace fs = std::filesystem;

// The text after the colon in the first line that starts with `key`, as in /proc/cpuinfo.
std::string value_in_file(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos) {
      return line.substr(std::min(line.find_first_not_of(" \t", colon + 1), line.size()));
    }
  }
  return "unknown";
}

}  // namespace

std::string host_name() {
  char name[256] = "unknown";
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string cpu_name() { return value_in_file("/proc/cpuinfo", "model name"); }

std::string gpu_names() {
  std::string names;
  std::error_code ignored;  // no driver, no folder: no GPU
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    names += (names.empty() ? "" : ", ") + value_in_file(gpu.path() / "information", "Model");
  }
  return names.empty() ? "none" : names;
}

}  // namespace ddp
