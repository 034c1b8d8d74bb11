// How a parent handles the bytes of its ranks. Pure functions, so no rank is needed.
#include "ddp/ranks/rank_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace ddp {
namespace {

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

}  // namespace
}  // namespace ddp
