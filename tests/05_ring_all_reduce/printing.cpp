#include <ATen/ATen.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <ostream>
#include <sstream>
#include <streambuf>

#include "claims.h"
#include "ddp/virtual_time/virtual_time.h"
#include "grader/calls.h"
#include "grader/scenario.h"
#include "scenarios.h"

// The warm-up: what ranks write, and in which order.

namespace ddp::testing {

namespace {

// What a stream's user writes, and when.
class WatchedBuffer : public std::streambuf {
 public:
  explicit WatchedBuffer(Client& client) : client_(client) {}

  const std::string& text() const { return text_; }

 protected:
  int overflow(int character) override {
    const char one = traits_type::to_char_type(character);
    return xsputn(&one, 1) == 1 ? character : traits_type::eof();
  }

  std::streamsize xsputn(const char* characters, std::streamsize count) override {
    client_.fact("wrote", count);
    text_.append(characters, count);
    return count;
  }

  int sync() override {
    client_.fact("flushed", 1);
    return 0;
  }

 private:
  Client& client_;
  std::string text_;
};

at::Tensor as_tensor(const std::string& text) {
  return at::tensor(std::vector<std::uint8_t>(text.begin(), text.end()), at::kByte);
}

Scenario printing(int ranks) {
  return {"printing, " + on_ranks(ranks),
          {.ranks = ranks},
          [](Client& client) {
            RingCaller caller(client);
            const std::string name = "rank " + std::to_string(client.rank());
            for (const std::string& message :
                 {name + " says hello", std::string(), name + ": " + std::string(70'000, 'x'),
                  name + std::string(1, '\0') + " after a zero", name + " and a newline\n",
                  name + '\xff' + " after the largest byte"}) {
              caller.print(message);
            }
          },
          "ranks_print_in_order",
          with_ranks({}, ranks)};
}

Scenario printing_in_groups() {
  return {"printing in several groups",
          {.ranks = 4, .subgroups = {{3, 1, 0}, {1, 2}}},
          [](Client& client) {
            RingCaller caller(client);
            for (const GroupIndex group : {1, 2, 0, 1}) {
              caller.print("rank " + std::to_string(client.rank()), group);
            }
          },
          "ranks_print_in_order",
          {kGroups}};
}

// Where a rank's events begin to write, and have flushed after the last that it wrote; null: nowhere.
struct Writing {
  const Seen* began = nullptr;
  const Seen* flushed = nullptr;
};

Writing writing_of(const CallOfRank& rank) {
  Writing writing;
  for (const Seen* seen : rank.of_kind(EventKind::kFact)) {
    if (seen->text == "wrote") {
      writing = {writing.began == nullptr ? seen : writing.began, nullptr};
    } else if (seen->text == "flushed" && writing.flushed == nullptr) {
      writing.flushed = seen;
    }
  }
  return writing;
}

// In quotes; \0 is a zero.
std::string quoted(const at::Tensor& bytes) {
  std::string text = "\"";
  for (std::int64_t i = 0; i < std::min<std::int64_t>(bytes.numel(), 60); ++i) {
    const auto character = static_cast<char>(bytes[i].item<std::uint8_t>());
    text += character == '\0' ? "\\0" : character == '\n' ? "\\n" : std::string(1, character);
  }
  return text + (bytes.numel() > 60 ? "..." : "\"");
}

Finding wrong_line(const CallOfGroup&, const CallOfRank& rank) {
  for (const Seen* launch : rank.of_kind(EventKind::kLaunch)) {
    if (!c10d::isP2POp(launch->type) || launch->group != rank.group) {
      return "the order should be kept by point-to-point messages (send and recv) of the given "
             "group only, and not by " +
             describe_operation(*launch);
    }
  }
  const at::Tensor newline = at::full({1}, '\n', at::kByte);
  const at::Tensor line = at::cat({rank.value.at("message"), newline});
  const at::Tensor& text = rank.value.at("text");
  if (rank.facts.at("characters in std::cout") > 0) {
    return "writes to std::cout, and should write to `out`, which may be another stream; `out` "
           "got " +
           quoted(text);
  }
  if (!text.equal(line)) {
    return "should write the message and a newline to `out`, " + quoted(line) + "; it wrote " +
           quoted(text);
  }
  return writing_of(rank).flushed != nullptr
             ? ""
             : "the line should be flushed when it is written: out << std::flush";
}

Finding wrong_lines(const CallOfGroup& call) { return on_each_rank(call, wrong_line); }

// On a network where writing takes long, and earlier ranks come later to the call: who does not wait
// for the rank before it, or for a message that was sent after its flush, writes too early.
Finding wrong_order(const Evidence& evidence, const CallOfGroup& call) {
  constexpr std::int64_t kWriting = 1'000'000;
  const ComputeCost cost = [&](const Seen& seen, int number) -> std::int64_t {
    const auto rank = std::ranges::find(call.ranks, number, &CallOfRank::rank);
    if (rank == call.ranks.end() || seen.place.step != call.step) {
      return 0;
    }
    const bool begins = seen.kind == EventKind::kPhase && seen.place.phase == Phase::kCall;
    const bool writes = seen.kind == EventKind::kFact && seen.text == "wrote";
    return begins ? (call.size() - rank->position) * 10 * kWriting : writes ? kWriting : 0;
  };
  const VirtualTime time(evidence, {.alpha_ns = 1'000, .beta_ns_per_byte = 0}, cost);
  for (int i = 1; i < call.size(); ++i) {
    const CallOfRank& before = call.ranks[i - 1];
    const CallOfRank& after = call.ranks[i];
    const std::int64_t flushed = time.time_of(before.rank, writing_of(before).flushed->order);
    const std::int64_t began = time.time_of(after.rank, writing_of(after).began->order) - kWriting;
    if (began < flushed) {
      return "rank " + std::to_string(i) + " of the group may write before rank " +
             std::to_string(i - 1) +
             " has flushed its line: when it began, no message had come that was sent after that "
             "flush, directly or by way of other ranks. That lines sometimes come in order is luck";
    }
  }
  return "";
}

}  // namespace

void RingCaller::print(const std::string& message, GroupIndex group) {
  ++step_;
  go_to(Phase::kSetup);
  if (!is_member(group)) {
    return;
  }
  client_.fact("prints", group);
  client_.value("message", as_tensor(message));
  const ProcessGroupPtr in = this->group(group);
  WatchedBuffer buffer(client_);
  std::ostream out(&buffer);
  std::stringbuf elsewhere;
  const std::shared_ptr<std::streambuf> terminal(std::cout.rdbuf(&elsewhere),
                                                 [](auto* own) { std::cout.rdbuf(own); });
  const std::string around = "[" + message + "]";  // a string_view need not be zero-terminated
  go_to(Phase::kCall);
  const KeptSurroundings kept(client_, "print_in_rank_order()");
  print_in_rank_order(std::string_view(around).substr(1, message.size()), out, in);
  go_to(Phase::kSetup);
  client_.fact("characters in std::cout", static_cast<std::int64_t>(elsewhere.str().size()));
  client_.value("text", as_tensor(buffer.text()));
}

std::vector<Scenario> printing_scenarios() {
  return joined({for_ranks({2, 1, 3, 4, 8}, printing), {printing_in_groups()}});
}

Finding wrong_printing(const Evidence& evidence) {
  for (const CallOfGroup& call : calls_in(evidence)) {
    if (!call.prints()) {
      continue;
    }
    for (const auto& check : {wrong_lines, touched_in_flight}) {
      if (Finding text = check(call); !text.empty()) {
        return text;
      }
    }
    if (Finding text = wrong_order(evidence, call); !text.empty()) {
      return text;
    }
    if (call.size() == 1 && !call.ranks[0].of_kind(EventKind::kLaunch).empty()) {
      return "one rank alone should send nothing";
    }
  }
  return "";
}

}  // namespace ddp::testing
