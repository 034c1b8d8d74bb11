#pragma once

namespace ddp {

/// From now on the threads of this process may make only the system calls that computing needs. What
/// is forbidden raises SIGSYS. Throws c10::Error if the kernel has no seccomp filters.
void forbid_system_calls();

/// What the forbidden system call of this number asks for: "start a process".
const char* purpose_of(int system_call);

}  // namespace ddp
