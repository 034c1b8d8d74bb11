#pragma once

#include <filesystem>
#include <string>

namespace ddp {

/// Where the build puts a stage's code, such as build/stages/solutions/01_naive_ddp/libstage.so,
/// found from the place of the running program, build/bin/.
std::filesystem::path stage_library(const std::string& implementation, const std::string& stage);

/// Makes the functions of a stage's header callable in this process. Programs don't link to stages,
/// so that one which does not compile stops nobody; call this in a rank, not in its parent. Throws
/// c10::Error, with the loader's reason, where the library is missing or lacks a symbol.
void load_stage_library(const std::filesystem::path& library);

}  // namespace ddp
