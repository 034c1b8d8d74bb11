#pragma once

#include <cstddef>
#include <filesystem>

namespace ddp {

/// Takes from this process, and from every thread that it starts, all that computing does not need,
/// for good: it cannot start processes or programs, write or change files, open connections, signal
/// or inspect other processes. Where the kernel has Landlock, it can read no file but `library` and
/// what describes the machine and its own threads. Memory and the size of files are limited. What it
/// has open stays open.
///
/// Code that tries one of these dies of SIGSYS, and what it asked for is in its output. Call this
/// before untrusted code is loaded, in a process that nothing else needs. Throws c10::Error if the
/// kernel has no seccomp filters.
void confine(const std::filesystem::path& library);

/// No code of this process can change these whole pages again, or what they may be used for. Linux 6.10
/// and newer; elsewhere nothing happens.
void seal_memory(const void* begin, std::size_t bytes);

/// From now on no memory becomes executable; before this call only what is mapped from a file. Call
/// it after confine(), when all code is loaded.
void forbid_new_code();

}  // namespace ddp
