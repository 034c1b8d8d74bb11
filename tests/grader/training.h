#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ddp/gradient_hooks.h"
#include "ddp/gradient_synchronizer.h"
#include "ddp/libtorch_versions.h"
#include "ddp/referee/client.h"
#include "grader/scenario.h"

// What scenarios of stages 01-03 are made of: a model in training, which hands in what a claim may want
// to know.

namespace ddp::testing {

/// Where a parameter's elements lie in memory. Of more than two dimensions the first two are
/// transposed: the last stride is 1 then, as it is in row-major order.
enum class Layout { kRowMajor, kSlice, kTransposed, kChannelsLast, kEverySecond };

/// A layer with one parameter.
struct Layer {
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  bool trainable = true;  // else it is NaN, and no part of the loss
  Layout layout = Layout::kRowMajor;
};

/// What the buffers are.
enum class State {
  kPlain,    // float32, contiguous
  kStrided,  // beside these: a column, and ones that are transposed, on all ranks or on rank 0
  kDtypes,   // integers beyond the floats', a negative zero, a NaN with a payload
  kEmpty,    // one without elements
  kShared    // views of one tensor
};

struct TrainingOptions {
  std::vector<Layer> layers = {{{65, 3}}, {{4}}, {{7, 2}}};
  /// Whether the last layer's weight is used twice, and listed again after the first one.
  bool tied = false;
  enum class Memory {
    kOwn,
    kOneTensor,  // all weights are views of one tensor, and equal in the beginning
    kSame        // all weights, which have one shape, are the same memory, and yet different leaves
  } memory = Memory::kOwn;
  /// Tells several models of one scenario apart.
  int model = 0;
  GroupIndex group = 0;
  State state = State::kPlain;
};

/// Calls a stage's factory, such as make_naive_ddp, on a rank; may hand in more about it. Use a lambda
/// that calls it, never the function itself: its address is unknown until the stage's library is
/// loaded.
using Factory = std::function<std::unique_ptr<GradientSynchronizer>(
    Client& client, const std::vector<at::Tensor>& parameters,
    const std::vector<at::Tensor>& buffers, const ProcessGroupPtr& group)>;

/// Begins the fact of a gradient that has changed, before the words for when.
constexpr const char* kTouchedGradient = "touched gradient: ";

/// What the caller does with the gradients before a backward. Replaced ones are zeros, whose layout
/// in memory differs from rank to rank, layer to layer and step to step.
enum class Clear { kNone, kZero, kReplace, kKeep };

/// Copies of parameters' gradients: what they should be as long as they are the caller's.
class KeptGradients {
 public:
  /// Keeps them as they are.
  explicit KeptGradients(const std::vector<at::Tensor>& parameters);
  void keep();
  /// Backward adds `incoming` to the gradient of a parameter.
  void add(std::size_t parameter, const at::Tensor& incoming);

  const at::Tensor& of(std::size_t parameter) const { return copies_[parameter]; }
  /// The parameters whose gradients differ from what was kept, in their bits or by being defined.
  std::vector<std::size_t> changed() const;
  /// Those whose elements are no longer in the same memory.
  std::vector<std::size_t> moved() const;

 private:
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> copies_;
  std::vector<const void*> places_;
};

/// While it lives, it sees each gradient just before autograd accumulates it.
class GradientTap {
 public:
  /// Of a parameter, by its place in the list, and what will be added to its gradient.
  using Function = std::function<void(std::size_t parameter, const at::Tensor& incoming)>;

  /// Parameters that require no gradient are passed over.
  GradientTap(const std::vector<at::Tensor>& parameters, Function function);

 private:
  std::shared_ptr<const Function> function_;
  // A parameter owns its accumulator only as long as a graph does.
  std::vector<OwnedNode> accumulators_;
};

/// A model on a rank, with the synchronizer under test. The loss is linear, so that gradients come
/// in exactly the reverse order of the layers, and have values of this rank, step and layer.
///
/// Evidence: "start" and "initial buffer" before construction, "parameter" and "buffer" after it;
/// for each step, "local" (the rank's own gradient before communication, as autograd computed it)
/// and "gradient" (after finish()); and the fact "touched ..." for a parameter, buffer or gradient
/// that has changed while it was the caller's. Their index is the layer's. The fact "gradients are
/// none" says that what backward has computed so far is gone, and "backward goes on" that it has
/// left the last gradient behind.
class Training {
 public:
  Training(Client& client, TrainingOptions options, Factory make, ProcessGroupPtr group = {});
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  ~Training();

  void construct();
  void destroy();
  /// Destroys the synchronizer, and goes on with another one of the same parameters.
  void replace_synchronizer(std::unique_ptr<GradientSynchronizer> other);

  void clear(Clear how);
  /// Without the layers in `unused`.
  at::Tensor loss(const std::vector<std::size_t>& unused = {});
  /// Of some layers, whose gradients come in this order.
  at::Tensor loss_in_order(const std::vector<std::size_t>& layers);
  /// `sum` and a layer's part of a loss, whose gradient is `factors`.
  at::Tensor add_term(const at::Tensor& sum, std::size_t layer, const at::Tensor& factors);
  void backward(const at::Tensor& loss, bool create_graph = false);
  void backward() { backward(loss()); }
  /// Backward inside a NoSync scope.
  void accumulate(const std::vector<std::size_t>& unused = {});
  void finish();
  /// finish() after a backward that failed: what it leaves is no one's business.
  void abandon();
  /// A step of which only operations are told.
  void quiet_step(Clear how);
  /// The gradients as they are, called `name`.
  void hand_in(const std::string& name);
  /// The rank's own gradients, as autograd computed them.
  void hand_in_local();
  /// Freezes a layer, or thaws it.
  void train(std::size_t layer, bool trained);
  /// Between steps; undefined for none.
  void set_gradient(std::size_t layer, const at::Tensor& gradient);
  /// Sets all weights.
  void fill(double value);
  /// One step of SGD with the gradients as they are. Buffers change, too, on each rank differently.
  void update();
  /// A step without update().
  void communicate(Clear how = Clear::kNone, const std::vector<std::size_t>& unused = {});
  /// A whole step.
  void step(Clear how = Clear::kNone);

  /// A NoSync scope.
  class Scope {
   public:
    explicit Scope(Training& training);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    Training& training_;
    bool outer_;
    std::optional<NoSync> guard_;
  };

  Client& client() { return client_; }
  /// Until construction; afterwards the synchronizer alone keeps it alive.
  const ProcessGroupPtr& group() const { return group_; }
  GradientSynchronizer& synchronizer() { return *synchronizer_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const std::vector<at::Tensor>& listed() const { return listed_; }
  const std::vector<at::Tensor>& buffers() const { return buffers_; }

 private:
  void go_to(Phase phase);
  /// Gradients are the caller's again.
  void end_step();
  void tell_touched(std::size_t layer, const char* after);
  void expect(const KeptGradients& expected, const char* after);
  /// Hands in parameters and buffers, whose elements were at `places`.
  void keep_state(const std::vector<const void*>& places);
  void look_at_state();

  Client& client_;
  const TrainingOptions options_;
  const Factory make_;
  ProcessGroupPtr group_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> listed_;  // as given to the synchronizer
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> kept_;  // copies of parameters and buffers
  std::vector<bool> requires_grad_;
  KeptGradients gradients_;
  std::shared_ptr<std::vector<at::Tensor>> computed_;  // by layer, by backward, not yet accumulated
  int backwards_ = 0;
  int step_ = -1;
  bool scope_ = false;
  std::int64_t launches_ = 0;  // of the client, before this step's
  bool in_flight_ = false;     // from backward to finish(), gradients are the synchronizer's
  bool quiet_ = false;
  std::optional<GradientTap> tap_;
  std::unique_ptr<GradientSynchronizer> synchronizer_;
};

// The numbers that a Training computes with.

/// The edge cases of such a model.
EdgeCases edge_cases_of(const TrainingOptions& options);

/// The weights of a rank before construction.
std::vector<at::Tensor> parameters_of(const TrainingOptions& options, int rank);

/// A layer of so many elements each; `count` layers of `elements` elements.
std::vector<Layer> layers_of_sizes(const std::vector<std::int64_t>& elements);
std::vector<Layer> equal_layers(int count, std::int64_t elements);

/// The same values with another layout in memory.
at::Tensor laid_out(const at::Tensor& values, Layout layout);

/// The elements of a layer's weight.
std::int64_t count_of(const Layer& layer);

/// Values for a layer, different in every element, and with all digits.
at::Tensor numbers(const Layer& layer, double first, double step);

/// A layer's part of the loss, added to that of those before it: sum + <weight, factors>, in float64.
at::Tensor with_term(const at::Tensor& sum, const at::Tensor& weight, const at::Tensor& factors);

/// Of a layer that is not trained: NaNs whose payload says the rank, so that only their bits tell
/// ranks apart, or integers beyond the floats'.
at::Tensor frozen_values(const Layer& layer, int rank);

/// The model's buffers, and a view of the weights' tensor where they are views, too.
std::vector<at::Tensor> buffers_of(const TrainingOptions& options,
                                   const std::vector<at::Tensor>& parameters, int rank);

}  // namespace ddp::testing
