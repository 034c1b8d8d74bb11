#include "grader/questions.h"

#include <algorithm>

#include "claims.h"

// What to ask about the messages of a ring.

namespace ddp::testing {

namespace {

std::vector<std::string> messages_in_order(const CallOfRank& rank) {
  std::vector<std::string> lines;
  for (const Seen* launch : rank.of_kind(EventKind::kLaunch)) {
    lines.push_back("launched: " + describe_operation(*launch));
  }
  return lines;
}

std::vector<Question> about_a_rank(const CallOfGroup& call, const CallOfRank& rank) {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
  for (const Seen* launch : rank.of_kind(EventKind::kLaunch)) {
    const bool sends = launch->type == c10d::OpType::SEND;
    messages += sends ? 1 : 0;
    bytes += sends ? launch->bytes : 0;
  }
  const std::int64_t size = call.size();
  const std::string where = "In " + rank.what + ", rank " + std::to_string(rank.rank) + " of " +
                            std::to_string(size) + " ";
  const auto course = messages_in_order(rank);
  std::vector<Question> asked;
  if (messages == 2 * (size - 1)) {
    asked.push_back(
        {"what a ring sends",
         where + "sent " + std::to_string(messages) + " messages of " + std::to_string(bytes) +
             " bytes in all, of a tensor of " + std::to_string(call.elements()) +
             " elements. Where do both numbers come from, and how do they grow with the number of "
             "ranks?",
         "N-1 messages in each of two phases: 2 (N-1) = " + std::to_string(messages) +
             ". In each phase all chunks but one, so about 2 (N-1)/N of the tensor's bytes: less "
             "than twice the tensor for any N. Messages, and with them latencies, grow with N.",
         course});
  }
  const std::vector<std::int64_t> chunks = chunk_bytes(call);
  if (std::ranges::min(chunks) < std::ranges::max(chunks)) {
    asked.push_back(
        {"chunks of two sizes",
         where + "sent messages of different sizes. Which chunks are the larger ones, and by how "
                 "much? Which sizes would a tensor with two elements more have?",
         std::to_string(call.elements()) + " elements on " + std::to_string(size) +
             " ranks: the first " + std::to_string(call.elements() % size) +
             " chunks (elements modulo N) have one element more than the others' " +
             std::to_string(call.elements() / size) +
             ". With two more: " + std::to_string((call.elements() + 2) % size) + " chunks of " +
             std::to_string((call.elements() + 2) / size + 1) + ", the others of " +
             std::to_string((call.elements() + 2) / size) + ".",
         course});
  }
  return asked;
}

std::vector<Question> about_calls(const Evidence& evidence) {
  std::vector<Question> asked;
  for (const CallOfGroup& call : calls_in(evidence)) {
    if (call.prints() || call.function() != Function::kAllReduce || call.size() < 3 ||
        call.elements() < call.size() || !wrong_messages(call).empty()) {
      continue;
    }
    for (const CallOfRank& rank : call.ranks) {
      const std::vector<Question> found = about_a_rank(call, rank);
      asked.insert(asked.end(), found.begin(), found.end());
    }
  }
  return asked;
}

const Questions kAboutRing{
    {"ring_all_reduce(), small tensors, 3 ranks", "ring_all_reduce(), small tensors, 4 ranks",
     "ring_all_reduce(), small tensors, 5 ranks"},
    about_calls};

}  // namespace

}  // namespace ddp::testing
