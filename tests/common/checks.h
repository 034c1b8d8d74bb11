#pragma once

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>

#include "common/ranks.h"

/// A test that uses tensors, which only a child of the program may do: ddp::testing::in_child().
#define CHILD_TEST(suite, name)                                              \
  static void suite##_##name##_in_child();                                   \
  TEST(suite, name) { ::ddp::testing::in_child(suite##_##name##_in_child); } \
  static void suite##_##name##_in_child()

namespace ddp::testing {

/// The message of the error that `call` throws, or "no error"; errors of other types go on.
template <typename Error = c10::Error, typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

/// `text` has `part` in it.
inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in:\n" << text;
}

/// `call` throws an error whose message has `text` in it.
template <typename Call>
void expect_error(const std::string& text, const Call& call) {
  expect_contains(error_of(call), text);
}

}  // namespace ddp::testing
