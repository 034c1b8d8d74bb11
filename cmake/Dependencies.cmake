# Libraries beside libtorch: the system's, or else a pinned release from the project's own page.
include(FetchContent)

# Downloads the archive itself: without a network, FetchContent would retry for minutes.
function(ddp_lab_dependency package debian_package target url sha256)
  find_package(${package} QUIET)
  if(TARGET ${target})
    return()
  endif()
  get_filename_component(name ${url} NAME)
  set(archive "${CMAKE_BINARY_DIR}/downloads/${package}-${name}")
  set(found "")
  if(EXISTS "${archive}")
    file(SHA256 "${archive}" found)
  endif()
  if(NOT found STREQUAL sha256)  # absent, or something else, such as a network's sign-in page
    message(STATUS "${package}: not installed, downloading ${url}")
    file(DOWNLOAD ${url} "${archive}" INACTIVITY_TIMEOUT 30 STATUS status)
    list(POP_FRONT status code reason)
    if(code)
      file(REMOVE "${archive}")
      message(FATAL_ERROR "${package} is not installed and could not be downloaded (${reason}): "
                          "install it (Debian: ${debian_package}), or connect to the network.")
    endif()
  endif()
  FetchContent_Declare(${package} URL "${archive}" URL_HASH SHA256=${sha256} DOWNLOAD_EXTRACT_TIMESTAMP ON)
  FetchContent_MakeAvailable(${package})
endfunction()

set(BUILD_GMOCK OFF)
set(INSTALL_GTEST OFF)
ddp_lab_dependency(GTest libgtest-dev GTest::gtest
  https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
  81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2)
ddp_lab_dependency(nlohmann_json nlohmann-json3-dev nlohmann_json::nlohmann_json
  https://github.com/nlohmann/json/releases/download/v3.11.2/json.tar.xz
  8c4b26bf4b422252e13f332bc5e388ec0ab5c3443d24399acb675e68278d341f)
ddp_lab_dependency(CLI11 libcli11-dev CLI11::CLI11
  https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.1.2.tar.gz
  26291377e892ba0e5b4972cdfd4a2ab3bf53af8dac1f4ea8fe0d1376b625c8cb)
