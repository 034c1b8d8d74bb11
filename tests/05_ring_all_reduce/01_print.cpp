#include <ostream>
#include <streambuf>
#include <string>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "message_order.h"
#include "support/communication_checks.h"
#include "support/grading.h"

// The warm-up: the order in which ranks write.

namespace ddp::testing {

namespace {

// Keeps what is written, and the recorder's positions of the first write and of the flush.
class WatchedBuffer : public std::streambuf {
 public:
  explicit WatchedBuffer(RecordingBackend& recorder) : recorder_(recorder) {}

  const std::string& text() const { return text_; }
  std::int64_t began() const { return began_; }
  std::int64_t flushed() const { return flushed_; }

 protected:
  int overflow(int character) override {
    const char one = traits_type::to_char_type(character);
    return xsputn(&one, 1) == 1 ? character : traits_type::eof();
  }

  std::streamsize xsputn(const char* characters, std::streamsize count) override {
    if (began_ < 0) {
      began_ = recorder_.mark();
    }
    flushed_ = -1;
    text_.append(characters, count);
    return count;
  }

  int sync() override {
    if (flushed_ < 0) {
      flushed_ = recorder_.mark();
    }
    return 0;
  }

 private:
  RecordingBackend& recorder_;
  std::string text_;
  std::int64_t began_ = -1;
  std::int64_t flushed_ = -1;
};

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

void expect_in_order(Rank& rank, const std::string& message) {
  rank.recorder().clear();
  WatchedBuffer buffer(rank.recorder());
  std::ostream out(&buffer);
  const std::string around = "[" + message + "]";  // a string_view need not be zero-terminated
  print_in_rank_order(std::string_view(around).substr(1, message.size()), out, rank.group());
  const auto operations = rank.recorder().operations();

  EXPECT_EQ(buffer.text(), message + "\n")
      << "a rank should write its message and a newline: " << quoted(message + "\n")
      << "; it wrote " << quoted(buffer.text());
  EXPECT_TRUE(buffer.flushed() >= 0 || buffer.began() < 0)
      << "the line should be flushed when it is written: out << std::flush";
  for (const RecordedOperation& operation : operations) {
    EXPECT_TRUE(operation.is_message())
        << "the order should be kept by point-to-point messages (send and recv) only, and not by:"
        << list_of({operation});
  }
  if (rank.world_size() == 1) {
    expect_silence(rank, "one rank alone");
    return;
  }
  const auto histories = gather_histories(
      rank, operations, {.messages = {}, .began = buffer.began(), .flushed = buffer.flushed()});
  if (rank.rank() > 0 && buffer.began() >= 0) {
    EXPECT_TRUE(is_ordered(histories, rank.rank() - 1, rank.rank()))
        << "this rank may write before rank " << rank.rank() - 1 << " has flushed its line: when "
        << "it began, no message had come that was sent after that flush, be it by way of others. "
        << "That the lines come in order now and then is luck. This rank launched:"
        << list_of(operations);
  }
}

const GradedTest kPrint{
    {.name = "ranks_print_in_order",
     .points = 1,
     .hint = "The rank before yours sends you a message when its line is written and flushed; wait "
             "for it, write, flush, and only then tell the next rank."},
    [] {
      run_worlds({1, 2, 3, 4, 5, 6, 7, 8}, [](Rank& rank) {
        const std::string name = "rank " + std::to_string(rank.rank());
        for (const std::string& message :
             {name + " says hello", std::string(), name + ": " + std::string(5000, 'x')}) {
          expect_in_order(rank, message);
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
