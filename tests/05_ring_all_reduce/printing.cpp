#include <ATen/ATen.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <ostream>
#include <sstream>
#include <streambuf>

#include "claims.h"
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
    client_.fact(kWrote, count);
    text_.append(characters, count);
    return count;
  }

  int sync() override {
    client_.fact(kFlushed, 1);
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

// What a rank did, as numbers of its events.
struct History {
  struct Message {
    bool sent = false;  // else received
    int peer = -1;
    int tag = 0;
    std::int64_t moment = -1;  // a send's launch, or the end of a recv
  };
  std::vector<Message> messages;  // in the order of their launches
  std::int64_t began = -1;        // to write
  std::int64_t flushed = -1;      // after the last that it wrote
};

std::int64_t end_of(const CallOfRank& rank, std::int64_t operation) {
  const auto done = rank.of_kind(EventKind::kDone);
  const auto found = std::ranges::find(done, operation, &Seen::operation);
  return found != done.end() ? (*found)->order : -1;
}

History history_of(const CallOfRank& rank) {
  History history;
  for (const Seen* seen : rank.events) {
    if (seen->kind == EventKind::kLaunch) {
      const bool sent = seen->type == c10d::OpType::SEND;
      history.messages.push_back(
          {sent, seen->peer, seen->tag, sent ? seen->order : end_of(rank, seen->operation)});
    } else if (seen->kind == EventKind::kFact && seen->text == kWrote.name) {
      history.began = history.began < 0 ? seen->order : history.began;
      history.flushed = -1;
    } else if (seen->kind == EventKind::kFact && seen->text == kFlushed.name) {
      history.flushed = history.flushed < 0 ? seen->order : history.flushed;
    }
  }
  return history;
}

// The send whose data this recv took: messages with the same ends and tag are matched in order.
const History::Message* sent_for(const std::vector<History>& histories, int receiver,
                                 std::size_t received) {
  const auto& mine = histories[receiver].messages;
  const History::Message& message = mine[received];
  const auto like = [](bool sent, int peer, int tag) {
    return
        [=](const History::Message& m) { return m.sent == sent && m.peer == peer && m.tag == tag; };
  };
  auto before = std::count_if(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(received),
                              like(false, message.peer, message.tag));
  for (const History::Message& candidate : histories.at(message.peer).messages) {
    if (like(true, receiver, message.tag)(candidate) && before-- == 0) {
      return &candidate;
    }
  }
  return nullptr;
}

// True if messages let rank `later` begin to write only after rank `earlier` has flushed, whatever
// the timing of this run: `later` must first have received a message sent after the flush, or one
// sent after receiving such a message.
bool is_ordered(const std::vector<History>& histories, int earlier, int later) {
  // For each rank: the moment up to which everything has happened when `later` begins.
  std::vector<std::int64_t> happened(histories.size(), -1);
  happened[later] = histories[later].began;
  for (bool changed = true; changed;) {
    changed = false;
    for (int rank = 0; rank < static_cast<int>(histories.size()); ++rank) {
      const auto& messages = histories[rank].messages;
      for (std::size_t i = 0; i < messages.size(); ++i) {
        if (messages[i].sent || messages[i].moment < 0 || messages[i].moment >= happened[rank]) {
          continue;
        }
        const History::Message* sent = sent_for(histories, rank, i);
        if (sent != nullptr && sent->moment > happened[messages[i].peer]) {
          happened[messages[i].peer] = sent->moment;
          changed = true;
        }
      }
    }
  }
  return histories[earlier].flushed >= 0 && histories[earlier].flushed < happened[earlier];
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
  const at::Tensor line = at::cat({rank.tensor(kMessage), newline});
  const at::Tensor& text = rank.tensor(kText);
  if (rank.number(kElsewhere).value() > 0) {
    return "writes to std::cout, and should write to `out`, which may be another stream; `out` "
           "got " +
           quoted(text);
  }
  if (!text.equal(line)) {
    return "should write the message and a newline to `out`, " + quoted(line) + "; it wrote " +
           quoted(text);
  }
  return history_of(rank).flushed >= 0
             ? ""
             : "the line should be flushed when it is written: out << std::flush";
}

Finding wrong_lines(const CallOfGroup& call) { return on_each_rank(call, wrong_line); }

// Of ranks that send messages only.
Finding wrong_order(const CallOfGroup& call) {
  std::vector<History> histories;
  for (const CallOfRank& rank : call.ranks) {
    histories.push_back(history_of(rank));
  }
  for (int rank = 1; rank < call.size(); ++rank) {
    if (!is_ordered(histories, rank - 1, rank)) {
      return "rank " + std::to_string(rank) + " of the group wrote without knowing that rank " +
             std::to_string(rank - 1) +
             " had flushed its line: no message that was sent after that flush had reached it, "
             "directly or through other ranks. If lines come in order, it is by luck";
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
  client_.fact(kGroup, group);
  client_.value(kMessage, as_tensor(message));
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
  client_.fact(kElsewhere, static_cast<std::int64_t>(elsewhere.str().size()));
  client_.value(kText, as_tensor(buffer.text()));
}

std::vector<Scenario> printing_scenarios() {
  return joined({for_ranks({2, 1, 3, 4, 8}, printing), {printing_in_groups()}});
}

Finding wrong_printing(const Evidence& evidence) {
  return first_in(calls_in(evidence), [](const CallOfGroup& call) -> Finding {
    if (!call.prints()) {
      return "";
    }
    Finding found = first_in(std::vector{wrong_lines, touched_in_flight, wrong_order},
                             [&](const auto& check) { return check(call); });
    const bool talks = call.size() == 1 && !call.ranks[0].of_kind(EventKind::kLaunch).empty();
    return found.empty() && talks ? "one rank alone should send nothing" : found;
  });
}

}  // namespace ddp::testing
