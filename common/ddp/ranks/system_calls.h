#pragma once

namespace ddp {

/// From now on the threads of this process may make only the system calls that computing needs. What
/// is forbidden raises SIGSYS. Throws c10::Error if the kernel has no seccomp filters.
void forbid_system_calls();

/// From now on no memory becomes executable; before this call only what is mapped from a file. Call
/// it after forbid_system_calls(), when all code is loaded.
void forbid_new_code();

/// What the forbidden system call of this number asks for: "start a process".
const char* purpose_of(int system_call);

}  // namespace ddp
