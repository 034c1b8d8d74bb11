#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "grader/training_evidence.h"

// Questions about what a student's own code did in a graded run, for a talk with them. They are taken
// from evidence, so each is asked only where what it says is true.

namespace ddp::testing {

struct Question {
  std::string about;  // which kind it is
  std::string asked;
  std::string answer;                 // for whoever teaches
  std::vector<std::string> evidence;  // what the rank did, in order: enough to answer it
};

/// Declares, at namespace scope, what to ask about the scenarios with these names.
class Questions {
 public:
  using Ask = std::function<std::vector<Question>(const Evidence& evidence)>;
  Questions(std::vector<std::string> scenarios, Ask ask);
};

/// Keeps what can be asked about a scenario that came to its end: a few of each kind, drawn by the seed.
void ask_about(const Evidence& evidence, const std::string& scenario);

/// All that was kept: [{"about", "scenario", "asked", "answer", "evidence"}].
const nlohmann::json& questions();

/// What `ask` asks about each step that has ended on a rank, if all gradients became the mean.
Questions::Ask of_each_step(
    const std::function<std::vector<Question>(const Evidence& evidence,
                                              const TrainingOfRank& training, int step)>& ask);

/// What a rank did in a step, a line for each event.
std::vector<std::string> course_of(const Evidence& evidence, const TrainingOfRank& training,
                                   int step);

/// "On rank 1, in step 2, ".
std::string on_rank_in_step(const TrainingOfRank& training, int step);

/// The gradient that a launch carries, if its size tells; else -1.
std::int64_t carried_layer(const TrainingOfRank& training, const Seen& launch);

}  // namespace ddp::testing
