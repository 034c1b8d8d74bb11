# One precompiled header, built by a small object library. A compiler uses it only if all flags agree, so every user is
# position independent and defines no macro of its own. Clang also instantiates its templates once for all users
# (-fpch-instantiate-templates, CMake's default): the main reason why it is three times as fast as GCC.
function(ddp_lab_precompiled_header target)
  if(NOT TARGET precompiled)
    file(WRITE "${CMAKE_BINARY_DIR}/precompiled.cpp" "")
    add_library(precompiled OBJECT "${CMAKE_BINARY_DIR}/precompiled.cpp")
    target_link_libraries(precompiled PRIVATE Libtorch::Libtorch Threads::Threads)
    target_precompile_headers(precompiled PRIVATE
                              <algorithm> <chrono> <condition_variable> <filesystem> <fstream> <functional> <map> <sstream>
                              <thread> <ATen/ATen.h> <torch/csrc/autograd/custom_function.h> <torch/nn/module.h>
                              <torch/csrc/distributed/c10d/ProcessGroup.hpp>)
  endif()
  set_target_properties(${target} PROPERTIES DEFINE_SYMBOL "")
  target_precompile_headers(${target} REUSE_FROM precompiled)
endfunction()

# Declares one stage: assignments_<stage>, solutions_<stage> and tests_<stage>, if their folders
# exist. Each implementation is a separate shared library, so a stage that does not compile breaks
# nothing else.
function(ddp_lab_stage stage)
  ddp_lab_given(${stage} given)
  foreach(impl assignments solutions)
    file(GLOB sources CONFIGURE_DEPENDS ${impl}/${stage}/*.cpp)
    if(sources)
      ddp_lab_stage_library(${impl}_${stage} "${CMAKE_BINARY_DIR}/stages/${impl}/${stage}" ${sources})
      ddp_lab_debug_library(debug_${impl}_${stage} "${CMAKE_BINARY_DIR}/stages/debug/${impl}/${stage}" ${sources})
      foreach(target ${impl}_${stage} debug_${impl}_${stage})
        target_link_libraries(${target} PRIVATE ${given})
      endforeach()
    endif()
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS tests/${stage}/*.cpp)
  if(sources)
    file(GLOB hidden CONFIGURE_DEPENDS tests/${stage}/hidden.*.cpp)  # an instructor's: they may repeat names
    set_source_files_properties(${hidden} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    # What a stage is given is loaded with its tests, so a rank that is confined need not find it.
    ddp_lab_program(tests_${stage} LIBRARIES ddp_testing ${given} SOURCES ${sources})
    add_dependencies(tests_${stage} ddp_baselines)  # loaded in the stage's place, where a scenario says so
    ddp_lab_tests(tests_${stage} graded ${stage}.)
  endif()
endfunction()

# The libraries that a stage is given besides ddp: ddp_plans where its stage.json has "given": ["plans"].
function(ddp_lab_given stage libraries)
  set(manifest "${CMAKE_SOURCE_DIR}/assignments/${stage}/stage.json")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${manifest}")
  file(READ "${manifest}" fields)
  set(given "")
  string(JSON count ERROR_VARIABLE none LENGTH "${fields}" given)
  if(count GREATER 0)  # not where there is no such field
    math(EXPR last "${count} - 1")
    foreach(i RANGE ${last})
      string(JSON name GET "${fields}" given ${i})
      list(APPEND given ddp_${name})
    endforeach()
  endif()
  set(${libraries} ${given} PARENT_SCOPE)
endfunction()

# Builds a stage's sources, or those of a mutant or variant, as the library <folder>/libstage.so.
function(ddp_lab_stage_library target folder)
  add_library(${target} SHARED ${ARGN})
  target_include_directories(${target} PRIVATE assignments)
  target_link_libraries(${target} PRIVATE ddp)
  # Loops over memory become vector instructions, whatever their length.
  # A loop without end is to hang, and be reported: C++ lets compilers assume that there is none, and clang drops it.
  target_compile_options(${target} PRIVATE -O3 -fno-finite-loops)
  # Stages may be loaded side by side: each prefers its own function to another's of the same name.
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions)
  if(NOT SANITIZE)  # a sanitizer's functions are in the programs
    target_link_options(${target} PRIVATE -Wl,-z,defs)  # what is used and not defined is named with its line
  endif()
  set_target_properties(${target} PROPERTIES OUTPUT_NAME stage LIBRARY_OUTPUT_DIRECTORY "${folder}" UNITY_BUILD OFF)
  ddp_lab_precompiled_header(${target})
endfunction()

# The same for `make debug`: every variable is there, and each line is where it was written. Built only on request, by
# flags that no precompiled header was made with.
function(ddp_lab_debug_library target folder)
  add_library(${target} SHARED EXCLUDE_FROM_ALL ${ARGN})
  target_include_directories(${target} PRIVATE assignments)
  target_link_libraries(${target} PRIVATE ddp)
  # Types of libtorch, too, which clang else leaves to libtorch's own debug information, and it has none.
  target_compile_options(${target} PRIVATE -O0 -g -fno-finite-loops $<$<CXX_COMPILER_ID:Clang>:-fstandalone-debug>)
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME stage LIBRARY_OUTPUT_DIRECTORY "${folder}" UNITY_BUILD OFF
                        DEFINE_SYMBOL "" EXPORT_COMPILE_COMMANDS OFF)
endfunction()

# Code that calls a stage's functions without linking to it: a shared library, which may have
# undefined functions. The stage's library is loaded at run time, in the ranks. Such code may call a
# stage's functions, but not take their addresses, which would be needed at program start.
#   ddp_lab_code(name LIBRARIES ... SOURCES ...)
function(ddp_lab_code name)
  cmake_parse_arguments(arg "" "" "LIBRARIES;SOURCES" ${ARGN})
  add_library(${name} SHARED ${arg_SOURCES})
  target_include_directories(${name} PRIVATE assignments)
  target_link_libraries(${name} PUBLIC ${arg_LIBRARIES})
  ddp_lab_precompiled_header(${name})
endfunction()

# A program made of such code and cmake/main.cpp.
#   ddp_lab_program(name LIBRARIES ... SOURCES ...)
function(ddp_lab_program name)
  ddp_lab_code(${name}_code ${ARGN})
  add_executable(${name} ${CMAKE_SOURCE_DIR}/cmake/main.cpp)
  target_link_libraries(${name} PRIVATE ${name}_code)
  target_link_options(${name} PRIVATE -Wl,--allow-shlib-undefined -Wl,--no-as-needed)
endfunction()

# Each test of a program is one of CTest's, so that editors show, run and debug it: ctest --preset graded -R 01_naive.
# They are listed when CTest runs, not when a program is built, which then would take longer.
function(ddp_lab_tests program label prefix)
  gtest_discover_tests(${program} TEST_PREFIX ${prefix} DISCOVERY_MODE PRE_TEST WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                       PROPERTIES LABELS ${label} TIMEOUT 600)
endfunction()
