# The CUDA and NCCL part: a separate library, loaded on request. It is built if libtorch is a CUDA
# build and the headers of the same CUDA version and of NCCL are found. No nvcc is needed: the
# headers in the wheels beside a Python's torch are enough.
function(ddp_lab_find_cuda)
  if(NOT Libtorch_HAS_CUDA)
    set(reason "off: libtorch ${Libtorch_VERSION} is a CPU build. Give a CUDA build: PYTHON= or LIBTORCH=" PARENT_SCOPE)
    return()
  endif()
  string(REGEX MATCH "\\+cu([0-9]+)[0-9]$" match "${Libtorch_VERSION}")
  set(wanted "${CMAKE_MATCH_1}")

  find_program(nvcc nvcc NO_CACHE)
  file(REAL_PATH "${nvcc}" nvcc)
  get_filename_component(nvcc_folder "${nvcc}" DIRECTORY)
  file(GLOB wheels "${Libtorch_ROOT}/../nvidia/cu*/include" "${Libtorch_ROOT}/../nvidia/cuda_runtime/include")
  foreach(folder "$ENV{CUDA_HOME}/include" "${nvcc_folder}/../include" /usr/local/cuda/include ${wheels})
    if(EXISTS "${folder}/cuda_runtime_api.h" AND EXISTS "${folder}/crt/host_defines.h" AND EXISTS "${folder}/cusparse.h")
      file(STRINGS "${folder}/cuda_runtime_api.h" line REGEX "define CUDART_VERSION ")
      string(REGEX MATCH "([0-9]+)0[0-9][0-9]$" match "${line}")
      if(NOT wanted OR CMAKE_MATCH_1 STREQUAL wanted)
        file(REAL_PATH "${folder}" cuda)  # the same whoever configures
        break()
      endif()
    endif()
  endforeach()
  # The wheel's own first: the header must have the version that libtorch was built with, which
  # cuda_library.cpp checks.
  find_path(nccl nccl.h HINTS "${Libtorch_ROOT}/../nvidia/nccl/include" "${cuda}" NO_CACHE)

  set(bring "make setup DEVICE=cuda brings them into .venv; for a PyTorch of your own,")
  if(NOT cuda)
    set(reason "off: no headers of CUDA ${wanted}. ${bring} set CUDA_HOME to its toolkit" PARENT_SCOPE)
  elseif(NOT nccl)
    set(reason "off: no nccl.h. ${bring} install the NCCL that it was made with" PARENT_SCOPE)
  else()
    set(reason "on, with ${cuda} and ${nccl}" PARENT_SCOPE)
    set(includes "${nccl}" "${cuda}" PARENT_SCOPE)  # a toolkit's folder may have another nccl.h
  endif()
endfunction()

ddp_lab_find_cuda()
message(STATUS "CUDA and NCCL: ${reason}")
set(DDP_LAB_CUDA "${reason}" CACHE INTERNAL "For tools/setup/cuda.py")
if(includes)
  file(GLOB cuda_sources CONFIGURE_DEPENDS common/ddp/backends/cuda/*.cpp)
  add_library(ddp_cuda SHARED ${cuda_sources})
  target_include_directories(ddp_cuda PRIVATE common)
  target_include_directories(ddp_cuda SYSTEM PRIVATE ${includes})
  target_compile_definitions(ddp_cuda PRIVATE USE_C10D_NCCL)
  target_link_libraries(ddp_cuda PRIVATE Libtorch::Libtorch
    "${Libtorch_ROOT}/lib/libtorch_cuda.so" "${Libtorch_ROOT}/lib/libc10_cuda.so")
  if(NOT SANITIZE)
    target_link_options(ddp_cuda PRIVATE -Wl,--no-undefined)
  endif()
endif()
