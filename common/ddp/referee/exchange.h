#pragma once

#include <string>
#include <vector>

#include "ddp/referee/event.h"

namespace ddp {

/// One member's part in an operation: what it launched, and its bytes, which the result replaces.
struct Part {
  const Event* launch = nullptr;
  char* bytes = nullptr;
};

/// Empty if the members of a group, in its order, launched the same collective; else who launched
/// what.
std::string disagreement(const std::vector<Part>& parts);
std::string disagreement(const Part& send, int from, const Part& recv, int to);

/// Whether a client can have launched it in a group of so many members: its peer is one, and its payload
/// has the bytes that it sends or takes.
bool is_possible(const Event& launch, std::int64_t members);

/// Moves the data of a collective. Reductions are computed in the order of the members, so results
/// have the same bits everywhere and in every run. Throws c10::Error if the collective is unknown,
/// or does not fit its data: it reads no more of a member's bytes than its input, and writes no more
/// than its output, whatever the launches say.
void exchange(const std::vector<Part>& parts);

}  // namespace ddp
