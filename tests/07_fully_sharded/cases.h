#pragma once

#include <functional>
#include <string>
#include <vector>

#include "07_fully_sharded/fully_sharded.h"
#include "ddp/referee/client.h"
#include "grader/evidence_view.h"
#include "grader/scenario.h"

// What the ranks train in this stage: a model and its steps as data, so that a claim can work out what
// must come of it; and the scenarios that do.

namespace ddp::testing {

/// A unit's parameters: their shapes, whether the first one is listed again at the end, and whether matrices are given
/// as they come from t(), so that memory has them in another order.
struct UnitShape {
  std::vector<std::vector<std::int64_t>> shapes;
  bool tied = false;
  bool strided = false;
};

/// How a pass goes through units: with backward; without autograd; with results that require no gradient; with a
/// checkpoint around each unit, which calls it again in backward; with a function that throws at the last use, and no
/// backward; or with a graph whose backward never comes.
enum class How { kTrain, kNoGrad, kDetached, kCheckpoint, kThrows, kForwardOnly };

struct Pass {
  std::vector<std::size_t> uses;  // units, in order
  How how = How::kTrain;
  bool no_sync = false;      // backward is inside a scope, and forward, too
  bool scope_turns = false;  // swaps: only forward, or only backward, is inside
  bool inner_scope = false;  // another one begins and ends before backward
};

struct Step {
  std::vector<Pass> passes;
  double max_norm = 0;  // none
  bool clears = true;   // gradients, at the end
};

std::vector<UnitShape> three_units();
std::vector<Step> steps_of(int count, const std::vector<Pass>& passes);

struct Case {
  std::string name;
  int ranks = 2;
  std::vector<UnitShape> units = three_units();
  std::vector<Step> steps = steps_of(3, {{.uses = {0, 1, 2}}});
  FullyShardedOptions options = {};
  at::ScalarType dtype = at::kFloat;
  std::string charged_to = "a_step_ends_where_the_unsharded_model_ends";
  EdgeCases edge_cases = {};
  bool real_layers = false;  // linear layers; else a function of our own
  double loss_scale = 1;
  GroupIndex group = 0;
  std::vector<std::vector<int>> subgroups = {};
  /// Each step lies between forward and backward of another model, which is inside NoSync, and gone
  /// before the last step.
  bool another = false;
};

/// Of its group.
int ranks_of(const Case& one);

/// A unit's shard and its whole flat gradient, in bytes.
struct Bytes {
  std::int64_t shard;
  std::int64_t padded;
};
Bytes bytes_of(const Case& one, std::size_t unit);

/// All cases of training.
const std::vector<Case>& cases();

/// Whether passes go through units in the list's order alone, each unit once or, in training, never; or nothing is
/// gathered ahead: then the header says of every gather where it comes.
bool is_determined(const Case& one);

/// Whether something is gathered ahead that nobody uses. Then step time is undefined: the header does not say when
/// such a gather is waited for.
bool gathers_in_vain(const Case& one);
bool accumulates(const Case& one);  // has a pass inside NoSync
bool clips(const Case& one);

/// The case that a scenario's evidence is of.
const Case& case_of(const Evidence& evidence);

/// The values that a rank gives to construction; rank 0's are everybody's afterwards.
std::vector<std::vector<at::Tensor>> parameters_of(const Case& one, int rank);

/// The input of a pass.
at::Tensor input_of(const Case& one, int rank, int step, std::size_t pass);

/// The sum of the pass's output, each element multiplied with another factor, and with `scale`.
at::Tensor loss_of(const at::Tensor& output, double scale = 1);

constexpr double kRate = 0.05;  // of plain SGD

/// What a unit computes, without telling anybody.
at::Tensor compute(const Case& one, const at::Tensor& x, const std::vector<at::Tensor>& parameters);

/// The units of a case, whose functions tell what they do. `how`: what they are to do now; null: kTrain.
std::vector<Unit> units_of(Client& client, const Case& one, int rank, const How* how);

/// The rank's chunk of each unit's flat parameters, without padding.
std::vector<at::Tensor> chunks_of(const std::vector<std::vector<at::Tensor>>& units, int ranks,
                                  int place);

// What ranks tell of a case, beside operations: which it is; in each step, by unit, when a function
// begins, and its own backward; when a pass begins, whether it is inside NoSync ...
constexpr FactKey kCase{"case"}, kForward{"forward"}, kBackward{"backward"}, kPass{"pass"};
constexpr FactKey kGivenChanged{"given parameter was changed"};  // by construction: its number
// ... the output of each pass; kGradient of each shard, and the norm, after finish(); and the
// shards themselves, after construction and after the optimizer's step.
constexpr ValueKey kOutput{"output"}, kReturnedNorm{"norm"};
constexpr ValueKey kInitialShard{"initial shard"}, kShard{"shard"};

/// What each rank said.
const std::vector<RankSaid>& ranks_in(const Evidence& evidence);

/// The scenarios of the cases that `which` is true of.
std::vector<Scenario> scenarios_of_cases(const std::function<bool(const Case&)>& which);

/// The same as far as construction goes, so that whoever has written no more is judged on it.
std::vector<Scenario> constructions_of_cases(const std::function<bool(const Case&)>& which);

}  // namespace ddp::testing
