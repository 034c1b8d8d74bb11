#include <algorithm>

#include "claims.h"
#include "ddp/backends/operation_backend.h"
#include "ddp/balanced_split.h"

// What a rank sends, and to whom; and that it does not touch data in flight.

namespace ddp::testing {

namespace {

using Sizes = std::vector<std::int64_t>;  // of messages, in bytes

// All chunks but one: what a rank sends in one phase.
Sizes without(Sizes chunks, int left_out) {
  chunks.erase(chunks.begin() + left_out);
  return chunks;
}

Sizes joined(Sizes first, const Sizes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// The same messages in any order; those of empty chunks may be missing.
bool are_sizes(const Sizes& sent, const Sizes& due) {
  const auto full = [](Sizes sizes) {
    std::erase(sizes, 0);
    std::ranges::sort(sizes);
    return sizes;
  };
  return full(sent) == full(due) && sent.size() <= due.size();
}

std::string text_of(const Sizes& sizes) {
  const auto number = [](std::int64_t size) { return std::to_string(size); };
  return sizes.empty() ? "nothing" : enumerated(sizes, number, sizes.size());
}

// A phase leaves out one chunk; which one depends on where the phase starts. For the all-reduce as
// a whole it may be any, as long as the two phases differ.
bool are_two_phases(const Sizes& sent, const Sizes& chunks) {
  const auto size = static_cast<int>(chunks.size());
  const auto half = static_cast<std::ptrdiff_t>(sent.size() / 2);
  const bool complete = sent.size() == 2 * (chunks.size() - 1);
  for (int first = 0; first < size; ++first) {
    for (int second = 0; second < size; ++second) {
      const Sizes reduced = without(chunks, first);
      const Sizes gathered = without(chunks, second);
      const bool fits = complete ? are_sizes({sent.begin(), sent.begin() + half}, reduced) &&
                                       are_sizes({sent.begin() + half, sent.end()}, gathered)
                                 : are_sizes(sent, joined(reduced, gathered));
      if (first != second && fits) {
        return true;
      }
    }
  }
  return false;
}

// What is no message to the right neighbour or from the left one.
Finding stranger(const CallOfGroup& call, const CallOfRank& rank, const Seen& launch) {
  const int right = (rank.position + 1) % call.size();
  const int left = (rank.position + call.size() - 1) % call.size();
  const bool send = launch.type == c10d::OpType::SEND;
  if (!c10d::isP2POp(launch.type)) {
    return "should use send and recv only; it launched " + describe_operation(launch);
  }
  if (launch.group != rank.group) {
    return "uses another group than the one that was given: " + describe_operation(launch);
  }
  if (launch.peer == (send ? right : left)) {
    return "";
  }
  return send ? "this rank should send to its right neighbour only, rank " + std::to_string(right) +
                    " of the group; it sends to rank " + std::to_string(launch.peer)
              : "this rank should receive from its left neighbour only, rank " +
                    std::to_string(left) + " of the group; it receives from rank " +
                    std::to_string(launch.peer);
}

Finding wrong_sizes(const CallOfGroup& call, const CallOfRank& rank, const Sizes& sent) {
  const int size = call.size();
  const Sizes chunks = chunk_bytes(call);
  if (call.function() == Function::kAllReduce) {
    const bool right = size == 1 ? sent.empty() : are_two_phases(sent, chunks);
    return right ? ""
                 : "this rank should send 2(N-1) = " + std::to_string(2 * (size - 1)) +
                       " messages, in each of two phases all chunks but one, once each. The chunks "
                       "have " +
                       text_of(chunks) + " bytes; it sends " + text_of(sent);
  }
  const int left_out =
      call.function() == Function::kReduceScatter ? rank.position : (rank.position + 1) % size;
  return are_sizes(sent, without(chunks, left_out))
             ? ""
             : "this rank should send every chunk once but chunk " + std::to_string(left_out) +
                   ". In bytes, in any order and with or without the empty ones: " +
                   text_of(without(chunks, left_out)) + "; it sends " + text_of(sent);
}

Finding messages_of_rank(const CallOfGroup& call, const CallOfRank& rank) {
  Sizes sent;
  std::size_t received = 0;
  for (const Seen* launch : rank.of_kind(EventKind::kLaunch)) {
    if (Finding text = stranger(call, rank, *launch); !text.empty()) {
      return std::move(text).at(launch, "extra operation");
    }
    if (launch->type == c10d::OpType::SEND) {
      sent.push_back(launch->bytes);
    } else {
      ++received;
    }
  }
  const auto limit = 2 * static_cast<std::size_t>(call.size() - 1);
  if (sent.size() > limit || received > limit) {
    return "2(N-1) = " + std::to_string(limit) + " messages are enough each way; this rank sends " +
           std::to_string(sent.size()) + " and receives " + std::to_string(received);
  }
  return wrong_sizes(call, rank, sent);
}

// How often an operation was waited for, or whether it had ended at all.
Finding wrong_waits(const CallOfRank& rank, const Seen& launch) {
  const auto count = [&](EventKind kind) {
    return std::ranges::count_if(rank.events, [&](const Seen* seen) {
      return seen->kind == kind && seen->operation == launch.operation;
    });
  };
  const std::string which = describe_operation(launch);
  if (count(EventKind::kDone) == 0) {
    return which +
           " is still in flight when the function returns: it was never waited for. Who "
           "uses the tensor then, uses what may be gone, or not be there";
  }
  const bool has_future = std::ranges::any_of(rank.events, [&](const Seen* seen) {
    return seen->kind == EventKind::kFact && std::string_view(seen->text) == kTookFuture &&
           seen->number == launch.operation;
  });
  if (count(EventKind::kWait) == 0 && !has_future) {
    return which + " was asked whether it is complete, and never waited for: wait() ends a handle";
  }
  return count(EventKind::kWait) < 2
             ? ""
             : which +
                   " was waited for twice: wait() ends a handle, and Gloo takes a second one for "
                   "another message's";
}

}  // namespace

std::vector<std::int64_t> chunk_bytes(const CallOfGroup& call) {
  Sizes bytes;
  for (const Chunk& chunk : balanced_split(call.elements(), call.size())) {
    bytes.push_back(chunk.size * static_cast<std::int64_t>(c10::elementSize(call.dtype())));
  }
  return bytes;
}

Finding wrong_messages(const CallOfGroup& call) { return on_each_rank(call, messages_of_rank); }

Finding sends_nothing(const CallOfGroup& call) {
  const bool due = call.size() > 1 && call.elements() > 0;
  return due && call.ranks[0].of_kind(EventKind::kLaunch).empty()
             ? call.ranks[0].what + " sends nothing"
             : "";
}

Finding touched_in_flight(const CallOfGroup& call) {
  return on_each_rank(call, [](const auto&, const CallOfRank& rank) {
    return first_in(rank.of_kind(EventKind::kLaunch), [&](const Seen* launch) {
      const Events touches = rank.of_kind(EventKind::kTouch);
      const auto touch = std::ranges::find(touches, launch->operation, &Seen::operation);
      if (touch != touches.end()) {
        return Finding("the tensor of " + describe_operation(*launch) + " was in flight when " +
                       (*touch)->detail)
            .at(*touch);
      }
      Finding wrong = wrong_waits(rank, *launch);
      return wrong.empty() ? wrong : std::move(wrong).at(launch, "wait");
    });
  });
}

}  // namespace ddp::testing
