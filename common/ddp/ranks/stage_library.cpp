#include "ddp/ranks/stage_library.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <algorithm>

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

// Where the loaded stage lies; nowhere before it is.
struct Range {
  std::uintptr_t base = 0, end = 0;
};

Range& stage_range() {
  static Range range;
  return range;
}

Range range_of(void* library) {
  link_map* map = nullptr;
  dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map));
  Range range{map->l_addr, map->l_addr};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        Range& found = *static_cast<Range*>(data);
        for (int i = 0; info->dlpi_addr == found.base && i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          found.end = std::max<std::uintptr_t>(found.end, found.base + part.p_vaddr + part.p_memsz);
        }
        return 0;
      },
      &range);
  return range;
}

struct Search {
  std::int64_t offset = -1;
  int frames_left = 64;
};

_Unwind_Reason_Code look_at_frame(_Unwind_Context* context, void* data) {
  Search& search = *static_cast<Search*>(data);
  const std::uintptr_t call = _Unwind_GetIP(context) - 1;  // a return address follows its call
  const Range& stage = stage_range();
  if (call >= stage.base && call < stage.end) {
    search.offset = static_cast<std::int64_t>(call - stage.base);
  }
  return search.offset >= 0 || --search.frames_left == 0 ? _URC_END_OF_STACK : _URC_NO_REASON;
}

}  // namespace

std::int64_t caller_in_stage() {
  Search search;
  if (stage_range().end > 0) {
    _Unwind_Backtrace(look_at_frame, &search);
  }
  return search.offset;
}

fs::path stage_library(const std::string& implementation, const std::string& stage) {
  const fs::path build = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  return build / "stages" / implementation / stage / "libstage.so";
}

void load_stage_library(const fs::path& library) {
  TORCH_CHECK(fs::exists(library), "there is no ", library.string(), ": build it by `",
              how_to_build(library), "`, which shows the compiler's errors too");
  // RTLD_GLOBAL: the library defines the program's undefined functions. RTLD_NOW: what the linker has
  // not seen missing is reported here, not in the middle of a step.
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (loaded == nullptr) {
    TORCH_CHECK(false, "cannot load ", library.string(), ": ", dlerror());
  }
  stage_range() = range_of(loaded);
}

}  // namespace ddp
