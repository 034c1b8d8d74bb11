# Finds libtorch and defines the target Libtorch::Libtorch, its CPU part. Torch's own package file
# is not used: it demands a working nvcc even for CPU code.
#
#   LIBTORCH         an unpacked libtorch (the folder with include/ and lib/); if empty,
#   DDP_LAB_PYTHON   the Python whose installed torch package is used
#
# Sets Libtorch_VERSION, Libtorch_ROOT and Libtorch_HAS_CUDA.

set(Libtorch_ROOT "${LIBTORCH}")
if(NOT Libtorch_ROOT)
  # Without importing torch, which takes seconds; this takes a few milliseconds.
  execute_process(
    COMMAND "${DDP_LAB_PYTHON}" -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE Libtorch_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()

find_path(Libtorch_INCLUDE_DIR ATen/ATen.h PATHS "${Libtorch_ROOT}/include" NO_DEFAULT_PATH NO_CACHE)
foreach(name torch_cpu c10)
  find_library(Libtorch_${name}_LIBRARY ${name} PATHS "${Libtorch_ROOT}/lib" NO_DEFAULT_PATH NO_CACHE)
endforeach()

# A Python package has its version in version.py, an unpacked libtorch in build-version, for example
# 2.15.0+cu132.
set(version "[0-9]+\\.[0-9]+\\.[0-9]+[a-z0-9.+]*")
foreach(file version.py build-version)
  if(NOT Libtorch_VERSION AND EXISTS "${Libtorch_ROOT}/${file}")
    file(STRINGS "${Libtorch_ROOT}/${file}" line REGEX "${version}" LIMIT_COUNT 1)
    string(REGEX MATCH "${version}" Libtorch_VERSION "${line}")
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_INCLUDE_DIR Libtorch_torch_cpu_LIBRARY Libtorch_c10_LIBRARY
  VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "run `make setup`, or give PYTHON=<a python with torch> or LIBTORCH=<folder>")

if(Libtorch_FOUND AND NOT TARGET Libtorch::Libtorch)
  add_library(Libtorch::Libtorch INTERFACE IMPORTED)
  target_include_directories(Libtorch::Libtorch SYSTEM INTERFACE
    "${Libtorch_INCLUDE_DIR}" "${Libtorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_link_libraries(Libtorch::Libtorch INTERFACE
    "${Libtorch_torch_cpu_LIBRARY}" "${Libtorch_c10_LIBRARY}")
  # USE_C10D_* choose which parts of libtorch's c10d headers are visible.
  target_compile_definitions(Libtorch::Libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
endif()

set(Libtorch_HAS_CUDA OFF)
if(EXISTS "${Libtorch_ROOT}/lib/libtorch_cuda.so")
  set(Libtorch_HAS_CUDA ON)
endif()
