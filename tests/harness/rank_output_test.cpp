// How a parent handles what its ranks write, and what is said of those that failed.
#include "ddp/ranks/rank_output.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "ddp/ranks/fork_ranks.h"
#include "harness/checks.h"
#include "support/ranks.h"

namespace ddp {
namespace {

using testing::expect_contains;
using testing::run_plain_ranks;

// A frame as it travels through the pipe.
std::string bytes_of_frame(FrameKind kind, std::string_view text) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_NONBLOCK), 0);
  FileDescriptor out(ends[0]);
  const FileDescriptor in(ends[1]);
  write_frame(in.get(), kind, text);
  std::string bytes;
  drain(out, [&](std::string_view part) { bytes.append(part); });
  return bytes;
}

TEST(Drain, ClosesADescriptorAtItsEndOnly) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  FileDescriptor out(ends[0]);
  std::string bytes;
  const auto take = [&](std::string_view part) { bytes.append(part); };
  {
    const FileDescriptor in(ends[1]);
    drain(out, take);
    EXPECT_GE(out.get(), 0) << "nothing has come yet";
    ASSERT_EQ(write(in.get(), "last", 4), 4);
  }
  drain(out, take);
  EXPECT_EQ(bytes, "last");
  EXPECT_EQ(out.get(), -1) << "poll() would report it again and again";
  drain(out, take);
}

TEST(BoundedText, KeepsShortTextsWhole) {
  BoundedText text;
  EXPECT_EQ(text.str(), "");
  text.append("one ");
  text.append("two");
  EXPECT_EQ(text.str(), "one two");
  const std::string rest((16 << 10) - 7, 'x');
  text.append(rest);
  EXPECT_EQ(text.str(), "one two" + rest);
}

TEST(BoundedText, KeepsBeginningAndEndOfLongOnes) {
  constexpr std::size_t kLength = 8'192'000;
  for (const std::size_t piece : {1'000U, 8'192U, 4'096'000U}) {
    BoundedText text;
    text.append("begin");
    for (std::size_t written = 0; written < kLength; written += piece) {
      text.append(std::string(piece, 'x'));
    }
    text.append("end");
    const std::string kept = text.str();
    EXPECT_LT(kept.size(), (16U << 10) + 100);
    EXPECT_TRUE(kept.starts_with("begin"));
    EXPECT_TRUE(kept.ends_with("end"));
    EXPECT_NE(
        kept.find("[... " + std::to_string(kLength + 8 - (16 << 10)) + " bytes left out ...]"),
        std::string::npos)
        << "in pieces of " << piece;
  }
}

TEST(FrameReader, PutsFramesTogetherFromAnyPieces) {
  const std::string bytes = bytes_of_frame(FrameKind::kMessage, "hello") +
                            bytes_of_frame(FrameKind::kThrew, "") +
                            bytes_of_frame(FrameKind::kStack, "a b c");
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.append(std::string_view(bytes).substr(at, piece));
      while (auto frame = reader.next()) {
        frames.push_back(*frame);
      }
    }
    ASSERT_EQ(frames.size(), 3U);
    EXPECT_EQ(frames[0].kind, FrameKind::kMessage);
    EXPECT_EQ(frames[0].text, "hello");
    EXPECT_EQ(frames[1].text, "");
    EXPECT_EQ(frames[2].text, "a b c");
  }
}

TEST(FrameReader, StopsAtWhatIsNoFrame) {
  FrameReader reader;
  reader.append("Hello, I print to every descriptor");
  EXPECT_FALSE(reader.next().has_value());
  reader.append(bytes_of_frame(FrameKind::kFinished, "token"));
  EXPECT_FALSE(reader.next().has_value());
}

TEST(RankOutput, StackFramesMayHaveSpacesInTheModule) {
  const StackFrame frame = parse_stack_frame("/my lab/libstage.so 1a2b _ZN3ddp1fEv");
  EXPECT_EQ(frame.module, "/my lab/libstage.so");
  EXPECT_EQ(frame.offset, "1a2b");
  EXPECT_EQ(frame.symbol, "_ZN3ddp1fEv");
  EXPECT_EQ(parse_stack_frame("").module, "");
}

TEST(RankOutput, MissingSymbolIsNamed) {
  EXPECT_EQ(explain_exit(127, "x: symbol lookup error: y: undefined symbol: _ZN3ddp1fEi\n"),
            "the stage does not define ddp::f(int), which its header declares");
  EXPECT_EQ(explain_exit(3, ""), "something called exit(3) before the body had returned");
}

TEST(RankOutput, ALongNameIsFolded) {
  const std::vector<std::string> places = name_places({{"x_code.so", "0", std::string(800, 'x')}});
  ASSERT_EQ(places.size(), 1);
  EXPECT_EQ(places[0], std::string(120, 'x') + "...");
}

std::string described(const RankBody& body) {
  return run_plain_ranks({.world_size = 1}, body).describe();
}

[[gnu::noinline]] void view_wrongly() { at::ones({3}).view({7}); }

TEST(RankReports, ExceptionsNameTheirPlaceAndOperator) {
  const std::string here = "at tests/harness/rank_output_test.cpp:";
  const std::string standard =
      described([](RankContext&) { static_cast<void>(std::vector<int>().at(3)); });
  expect_contains(standard, here);
  expect_contains(standard, " in operator()\n");
  const std::string torch = described([](RankContext&) { view_wrongly(); });
  expect_contains(torch, here);
  expect_contains(torch, "view_wrongly, which called aten::view\n");
}

// libtorch's own "not implemented" goes on with a line for each of its backends.
TEST(RankReports, AMissingKernelIsNoStubAndReportedBriefly) {
  const RankReports reports = run_plain_ranks(
      {.world_size = 1}, [](RankContext&) { at::cumsum(at::ones({3}).to_sparse(), 0); });
  ASSERT_FALSE(reports.ok());
  EXPECT_FALSE(reports.ranks[0].not_implemented);
  const std::string text = reports.describe();
  expect_contains(text, "Could not run 'aten::cumsum");
  expect_contains(text, "more lines ...]");
  EXPECT_LT(std::ranges::count(text, '\n'), 20) << text;
}

TEST(RankReports, RanksThatFailAlikeAreReportedOnce) {
  const std::string text = run_plain_ranks({.world_size = 4}, [](RankContext& context) {
                             TORCH_CHECK(context.rank == 2, "alike");
                             pause();
                           }).describe();
  EXPECT_EQ(text.find("alike"), text.rfind("alike")) << text;
  expect_contains(text, "the same in rank ");
  expect_contains(text, "rank 2 gave up");
}

TEST(RankReports, PrintsAreShownWithTheirFirstAndLastLines) {
  const RankReports reports = run_plain_ranks({.world_size = 1}, [](RankContext&) {
    for (int line = 1; line <= 30; ++line) {
      std::cout << "line " << line << "\n";
    }
    std::cout.flush();
    std::fputs("no newline", stderr);
    TORCH_CHECK(false, "enough");
  });
  const std::string text = reports.describe();
  expect_contains(text, "rank 0 printed:\n    | line 1\n");
  expect_contains(text,
                  "    | line 10\n    [... 11 more lines with VERBOSE=1 ...]\n    | line 22\n");
  expect_contains(text, "    | no newline\n");
}

}  // namespace
}  // namespace ddp
