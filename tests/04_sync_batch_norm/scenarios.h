#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "04_sync_batch_norm/sync_batch_norm.h"
#include "ddp/batch_norm.h"
#include "ddp/referee/client.h"
#include "grader/evidence_view.h"
#include "grader/scenario.h"

// What ranks do in this stage, and what that is made of: uses of batch normalization, which hand in what
// goes in and comes out.

namespace ddp::testing {

/// The gradient that backward begins with.
enum class Upstream {
  kRandom,
  kExpanded,        // one number for all positions of a row, with a stride of 0
  kSameRows,        // one row for all samples, with a stride of 0
  kOfChannels,      // one number for each channel, with strides of 0
  kFirstHalf,       // 1 for the first half of all ranks' samples, else 0: on some ranks all zeros
  kBlocks,          // 1 for the first half of the rank's own samples, else -1
  kUndefinedOnOdd,  // undefined on every other rank, which counts as zero
};

enum Wanted { kNothing = 0, kInput = 1, kWeight = 2, kBias = 4 };

using MemoryLayout = std::function<at::Tensor(const at::Tensor& values)>;

struct UseOptions {
  /// Of the input; shape[0] samples on each rank, unless `rows` has a number for each.
  std::vector<std::int64_t> shape = {6, 3, 2};
  std::vector<std::int64_t> rows = {};
  at::ScalarType dtype = at::kFloat;
  /// Of weight and running variance, and of the other two. Undefined: the input's.
  at::ScalarType of_weight = at::ScalarType::Undefined, of_bias = at::ScalarType::Undefined;
  bool weight = true, bias = true, running = true;
  SyncBatchNormOptions mode = {};
  /// The mean of most channels, up to its sign; that of channel 0 is near zero.
  double mean = 0.5;
  /// Whether an element of the first member's input is not a number.
  bool nan = false;
  /// Which of these require a gradient; and whether there is a graph at all.
  int wants = kInput | kWeight | kBias;
  bool graph = true;
  /// Whether forward runs under InferenceMode, whose tensors no later graph may save. No graph then.
  bool inference = false;
  /// Whether the graph alone keeps the input, after which its memory is used for something else.
  bool temporary = false;
  Upstream upstream = Upstream::kRandom;
  MemoryLayout of_input = {}, of_upstream = {};
  GroupIndex group = 0;
  /// What is special about it, for messages.
  std::string note = {};
};

/// A fact of the uses whose running statistics somebody else changes, as they may.
constexpr FactKey kCallerChanges{"the caller changes the running statistics"};

/// When a tensor is handed in.
enum Moment : std::int64_t { kBefore, kAfterForward, kAfterBackward, kAtEnd };

/// The edge cases of such inputs; see grader/scenario.h.
constexpr const char* kFloat64 = "float64";

using NormModule = std::shared_ptr<BatchNorm>;

/// One forward on a rank, and its backward. Evidence, at place.step `number`: every tensor at every
/// moment (its index; the end belongs to no step, so there it is kAtEnd + number); the gradients
/// after backward; "options", [training, momentum or NaN, eps, whether it is a module's]; and facts
/// about what only the rank sees.
class Use {
 public:
  /// The module's forward with its own tensors or, without one, the function's.
  Use(Client& client, int number, ProcessGroupPtr group, UseOptions options, NormModule module);
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  /// Before forward.
  void replace_tensors(const BatchNormTensors& others);
  void forward();
  /// A forward that must throw.
  void attempt(const std::string& what);
  void backward();
  /// Forward and, if there is a graph, backward.
  void run();
  /// Of something computed from the output. What reaches the normalization has to be `upstream`.
  void backward_of(const at::Tensor& root, const at::Tensor& gradient, bool keep_graph = false);
  void end();
  /// From now on only the graph may have the group; hands in whether it does. Returns what tells
  /// when it has let go.
  c10::weak_intrusive_ptr<c10d::ProcessGroup> drop_group();

  at::Tensor input, upstream, output;
  BatchNormTensors tensors;
  at::Tensor batches;  // num_batches_tracked

 private:
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  void note_places();
  void tell_edge_cases() const;
  void make_tensors();
  void make_input(const std::vector<std::int64_t>& rows);
  void make_upstream(const std::vector<std::int64_t>& rows);
  void call();
  void ask_for_gradients(const at::Tensor& root, const at::Tensor& gradient, bool keep_graph);
  /// After forward: whether backward has anything to do. Throws if the output does not know.
  bool has_graph() const;
  void go_to(Phase phase) { client_.go_to({.phase = phase, .step = number_}); }
  void hand_in(Moment moment);
  /// Of this use's random numbers, on one member or (-1) on all; room for eight after each.
  std::uint64_t salt(int member) const { return (16 * number_ + member + 1) * 8; }

  Client& client_;
  const int number_;
  ProcessGroupPtr group_;
  const int member_;  // this rank in the group
  const UseOptions options_;
  NormModule module_;
  std::map<std::string, const void*> places_;
  std::vector<at::Tensor> litter_;
  int backwards_ = 0;
};

/// The uses of a scenario, in order.
class Uses {
 public:
  explicit Uses(Client& client) : client_(client) {}
  Uses(const Uses&) = delete;
  Uses& operator=(const Uses&) = delete;
  /// Null on a rank that is not in the group.
  Use* add(const UseOptions& options, const NormModule& module = nullptr);
  /// Forward and, if there is a graph, backward.
  void run(const UseOptions& options, const NormModule& module = nullptr);
  /// Hands in once more what must not have changed since.
  void end();
  Client& client() { return client_; }
  /// For uses that are not its own; those keep the groups of before.
  void drop_groups() { groups_.clear(); }
  ProcessGroupPtr group(GroupIndex index = 0);
  /// A module of the group, in the tests' device and `dtype`.
  NormModule module(const BatchNormOptions& options, at::ScalarType dtype = at::kFloat,
                    GroupIndex group = 0);

 private:
  Client& client_;
  std::map<GroupIndex, ProcessGroupPtr> groups_;
  std::vector<std::unique_ptr<Use>> all_;
};

/// Normal random numbers, float64 on the tests' device, different for each `salt`.
at::Tensor random_numbers(at::IntArrayRef shape, std::uint64_t salt);

/// All dimensions except that of the channels.
std::vector<std::int64_t> without_channels(const at::Tensor& input);

/// [C] as [1, C, 1, 1], or with as many dimensions as `input` has.
at::Tensor along_channels(const at::Tensor& of_channels, const at::Tensor& input);

// The scenarios.

/// Uses of the function in training, the simplest first, that no other list is about.
std::vector<Scenario> plain();
/// Those among them where a mode of libtorch is another.
std::vector<Scenario> modes();
/// Those among them where a rank is in several groups.
std::vector<Scenario> groups();
/// Several forwards go before the first backward, in one group and in several.
std::vector<Scenario> interleaved();
/// Ranks with different numbers of samples, or none, by the function and by a module.
std::vector<Scenario> shards();
/// Deviations of which a float32 inverse of sqrt(variance + eps) tells nothing.
std::vector<Scenario> tiny_deviations();
/// Upstream gradients of which some ranks have none.
std::vector<Scenario> upstreams();
std::vector<Scenario> large_means();
/// Too many values for an exact mean in float32; the weight's gradient must not depend on it.
std::vector<Scenario> large_products();
std::vector<Scenario> low_precision();
std::vector<Scenario> layouts();
std::vector<Scenario> evaluation();
std::vector<Scenario> modules();
/// All above.
std::vector<Scenario> all_uses();

/// Too few values on all ranks together; and bad arguments.
std::vector<Scenario> counts();
std::vector<Scenario> misuse();

/// What is in use between forward and backward, and after many steps.
std::vector<Scenario> memory();
/// What is too much of that, in all cases.
Finding little_is_kept(const Evidence& evidence);

/// A network in training.
std::vector<Scenario> networks();
/// What is wrong with it in the end: it is compared with training in one process.
Finding network_is_trained_as_by_one(const Evidence& evidence);

// How the lists are written.

using Shape = std::vector<std::int64_t>;

/// A scenario whose ranks do `run`, charged to the test that it is about.
Scenario scenario_of(const std::string& name, int ranks, const std::string& charged_to,
                     const std::function<void(Uses&)>& run);
/// The same on each of several numbers of ranks.
std::vector<Scenario> with_ranks(const std::vector<int>& ranks, const std::string& name,
                                 const std::string& charged_to,
                                 const std::function<void(Uses&)>& run);

/// Of two to five dimensions.
const std::vector<Shape>& shapes();

}  // namespace ddp::testing
