#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ddp {

/// Where the build puts a stage's code, such as build/stages/solutions/01_naive_ddp/libstage.so;
/// found relative to the running program in build/bin/.
std::filesystem::path stage_library(const std::string& implementation, const std::string& stage);

/// Makes the functions of a stage's header callable in this process. Programs don't link to stages,
/// so one that does not compile breaks no program. Call this in a rank, not in its parent. Throws
/// c10::Error, with the loader's reason, if the library is missing or lacks a symbol.
void load_stage_library(const std::filesystem::path& library);

/// Which instruction of the loaded stage has called, as an offset in its library; -1 if none has.
std::int64_t caller_in_stage();

}  // namespace ddp
