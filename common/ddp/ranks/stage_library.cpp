#include "ddp/ranks/stage_library.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

namespace ddp {

namespace fs = std::filesystem;

namespace {

// "make test STAGE=01 IMPL=solutions" for .../solutions/01_naive_ddp/libstage.so
std::string how_to_build(const fs::path& library) {
  const std::string stage = library.parent_path().filename().string();
  const std::string implementation = library.parent_path().parent_path().filename().string();
  return "make test STAGE=" + stage.substr(0, 2) +
         (implementation == "solutions" ? " IMPL=solutions" : "");
}

}  // namespace

fs::path stage_library(const std::string& implementation, const std::string& stage) {
  const fs::path build = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  return build / "stages" / implementation / stage / "libstage.so";
}

void load_stage_library(const fs::path& library) {
  TORCH_CHECK(fs::exists(library), "there is no ", library.string(), ": build it by `",
              how_to_build(library), "`, which shows the compiler's errors too");
  // RTLD_GLOBAL: the library defines the program's undefined functions. RTLD_NOW: what the linker has
  // not seen missing is reported here, not in the middle of a step.
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    TORCH_CHECK(false, "cannot load ", library.string(), ": ", dlerror());
  }
}

}  // namespace ddp
