# What the lab says of itself: a trial is a mutant, a variant, a solution, the format of all files, and so on. Each is a
# test of CTest's, check.<name>, with its kind as label, and `all` or also `check` for where it belongs.
# tools/checking/trials.py has the list, and does them.
if(NOT DDP_LAB_TRIALS)
  set(DDP_LAB_TRIALS sh tools/setup/python3.sh -m tools.checking.trials)
endif()

# A trial that passed is not done again until something changes that it hangs on: Ninja makes check/passed/<name>, from
# these files. So everything that is built and done waits in one queue. `PREPARED` is a file that is made
# first, and only from `FROM`. CTest's test asks Ninja only if the verdict is older than a file that it hangs on.
#   ddp_lab_trial(name LABELS ... SECONDS n [NEEDS files] [PREPARED file FROM files] [ALONE])
function(ddp_lab_trial name)
  cmake_parse_arguments(arg "ALONE" "SECONDS;PREPARED" "LABELS;NEEDS;FROM" ${ARGN})
  set(command ${DDP_LAB_TRIALS} do ${name})
  if(arg_NEEDS)
    set(passed "${CMAKE_BINARY_DIR}/check/passed/${name}")
    if(arg_PREPARED)
      add_custom_command(OUTPUT "${arg_PREPARED}" COMMAND ${DDP_LAB_TRIALS} prepare ${name} DEPENDS ${arg_FROM}
                         WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" COMMENT "${name}: preparing" VERBATIM)
    endif()
    add_custom_command(OUTPUT "${passed}" COMMAND ${command} DEPENDS ${arg_NEEDS} ${arg_PREPARED}
                       WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" COMMENT "${name}" VERBATIM)
    add_custom_target(check.${name} DEPENDS "${passed}")  # one each: all of a target waits for whatever a part needs
    set(command sh "${CMAKE_SOURCE_DIR}/cmake/passed.sh" "${CMAKE_COMMAND}" "${CMAKE_BINARY_DIR}" ${name}
                ${arg_NEEDS} ${arg_PREPARED} ${arg_FROM})
  endif()
  add_test(NAME check.${name} COMMAND ${command} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
  math(EXPR limit "${arg_SECONDS} * 2 + 60")  # tools/checking/trials.py ends it before, and says so
  set_tests_properties(check.${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${limit})
  if(arg_ALONE)
    set_tests_properties(check.${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# All files that the compilers, the formatters and the linter look at.
foreach(folder assignments benchmarks cmake common solutions tests)
  list(APPEND cpp_patterns ${folder}/*.cpp ${folder}/*.h)
endforeach()
file(GLOB_RECURSE ddp_lab_cpp CONFIGURE_DEPENDS ${cpp_patterns})
file(GLOB_RECURSE ddp_lab_python CONFIGURE_DEPENDS figures/*.py tests/*.py tools/*.py)
# One file stands for many: what a variant includes, and who judges.
set(headers ${ddp_lab_cpp})
list(FILTER headers INCLUDE REGEX "/(common|assignments|variants)/.*\\.h$")
file(GLOB judges CONFIGURE_DEPENDS tools/grading/*.py tools/grading/*/*.py)
foreach(checker context in_place mutants own_tests trials variants)
  list(APPEND judges "${CMAKE_SOURCE_DIR}/tools/checking/${checker}.py")
endforeach()
foreach(many headers judges)
  set(ddp_lab_${many} "${CMAKE_BINARY_DIR}/check/${many}")
  add_custom_command(OUTPUT "${ddp_lab_${many}}" COMMAND "${CMAKE_COMMAND}" -E touch "${ddp_lab_${many}}"
                     DEPENDS ${${many}} COMMENT "" VERBATIM)
endforeach()
# The list itself is made anew when something is in it that was not, or the mutants change.
file(GLOB entries CONFIGURE_DEPENDS tests/mutants/*.diff tests/variants/*.diff tests/variants/*/*.cpp)
file(GLOB checking CONFIGURE_DEPENDS tools/checking/*.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${entries} ${checking})
execute_process(COMMAND ${DDP_LAB_TRIALS} list "${CMAKE_BINARY_DIR}" WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}"
                COMMAND_ERROR_IS_FATAL ANY)
include("${CMAKE_BINARY_DIR}/check/trials.cmake")
configure_file("${CMAKE_CURRENT_LIST_DIR}/PythonTests.cmake" "${CMAKE_BINARY_DIR}/check/PythonTests.cmake" @ONLY)
set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${CMAKE_BINARY_DIR}/check/PythonTests.cmake")
