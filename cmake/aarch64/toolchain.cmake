# Builds for arm64 on a machine of another kind: by clang and lld, which can do that for each, with the C and C++ libraries
# that Debian has for it (libstdc++-12-dev-arm64-cross). `make check ALL=1` does; docs/machines.md runs the result.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-fuse-ld=lld")
list(APPEND CMAKE_PREFIX_PATH "${CMAKE_CURRENT_LIST_DIR}")
