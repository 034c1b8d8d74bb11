# GoogleTest of Debian's source, since what libgtest-dev has is for this machine; the other libraries are headers alone.
add_library(gtest STATIC /usr/src/googletest/googletest/src/gtest-all.cc)
target_include_directories(gtest PRIVATE /usr/src/googletest/googletest)
target_include_directories(gtest SYSTEM PUBLIC /usr/src/googletest/googletest/include)
add_library(GTest::gtest ALIAS gtest)
