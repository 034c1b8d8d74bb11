#include "grader/training.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "ddp/referee/access_watch.h"
#include "ddp/referee/client.h"
#include "grader/calls.h"
#include "grader/compare.h"
#include "grader/scenario.h"
#include "grader/settings.h"
#include "grader/training_evidence.h"

namespace ddp::testing {

namespace autograd = torch::autograd;

namespace {

const void* place_of(const at::Tensor& gradient) {
  return gradient.defined() ? gradient.const_data_ptr() : nullptr;
}

// Calls a function before an autograd node runs, and passes the gradients on unchanged.
class BeforeNode : public autograd::FunctionPreHook {
 public:
  explicit BeforeNode(std::function<void(const at::Tensor&)> function)
      : function_(std::move(function)) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    function_(gradients[0]);
    return gradients;
  }

 private:
  std::function<void(const at::Tensor&)> function_;
};

// Calls a function with what a term of the loss has computed for its weight, before any hook of the
// weight, and passes it on unchanged.
class AfterTerm : public autograd::FunctionPostHook {
 public:
  explicit AfterTerm(std::function<void(const at::Tensor&)> function)
      : function_(std::move(function)) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients,
                                     const autograd::variable_list& /*upstream*/) override {
    function_(gradients[1]);
    return gradients;
  }

 private:
  std::function<void(const at::Tensor&)> function_;
};

// For what libtorch has to say of gradients laid out otherwise, and of graphs of graphs.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

// Autograd accumulates a gradient, which the tap sees, before it computes that of another layer.
void require_seen(const std::vector<at::Tensor>& computed, std::size_t layer) {
  for (std::size_t i = 0; i < computed.size(); ++i) {
    TORCH_CHECK(i == layer || !computed[i].defined(),
                "the hook by which the tests see the gradient of layer ", i, " is gone");
  }
}

}  // namespace

KeptGradients::KeptGradients(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
  keep();
}

void KeptGradients::keep() {
  const OwnAccess own;
  copies_.clear();
  places_.clear();
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor& gradient = parameter.grad();
    copies_.push_back(gradient.defined() ? gradient.detach().clone() : at::Tensor());
    places_.push_back(place_of(gradient));
  }
}

void KeptGradients::add(std::size_t parameter, const at::Tensor& incoming) {
  const OwnAccess own;
  const at::NoGradGuard no_grad;
  at::Tensor& sum = copies_[parameter];
  sum = sum.defined() ? sum + incoming : incoming.detach().clone();
}

std::vector<std::size_t> KeptGradients::changed() const {
  const OwnAccess own;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_identical(parameters_[i].grad(), copies_[i])) {
      found.push_back(i);
    }
  }
  return found;
}

std::vector<std::size_t> KeptGradients::moved() const {
  const OwnAccess own;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (place_of(parameters_[i].grad()) != places_[i]) {
      found.push_back(i);
    }
  }
  return found;
}

GradientTap::GradientTap(const std::vector<at::Tensor>& parameters, Function function)
    : function_(std::make_shared<const Function>(std::move(function))) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].requires_grad()) {
      continue;
    }
    const auto accumulator = autograd::impl::grad_accumulator(parameters[i]);
    // Weak: a graph may keep the accumulator alive, and with it the hook, longer than the tap.
    const std::weak_ptr<const Function> weak = function_;
    accumulator->add_pre_hook(std::make_unique<BeforeNode>([weak, i](const at::Tensor& incoming) {
      if (const auto alive = weak.lock()) {
        (*alive)(i, incoming);
      }
    }));
    accumulators_.push_back(accumulator);
  }
}

Training::Training(Client& client, TrainingOptions options, Factory make, ProcessGroupPtr group)
    : client_(client),
      options_(std::move(options)),
      make_(std::move(make)),
      group_(group ? std::move(group) : make_group(client.shared_from_this(), options_.group)),
      parameters_(parameters_of(options_, client.rank())),
      gradients_(parameters_),
      computed_(std::make_shared<std::vector<at::Tensor>>(parameters_.size())) {
  go_to(Phase::kSetup);
  const OwnAccess own;
  client_.fact(kGroup, options_.group);
  std::vector<NamedTensor> named;
  for (std::size_t i = 0; i < options_.layers.size(); ++i) {
    const Layer& layer = options_.layers[i];
    named.push_back({"layer " + std::to_string(i), parameters_[i]});
    client_.value(kStart, parameters_[i], static_cast<std::int64_t>(i));
    client_.fact(kTrainable, layer.trainable, static_cast<std::int64_t>(i));
    requires_grad_.push_back(layer.trainable);
  }
  listed_ = parameters_;
  if (options_.tied) {
    listed_.insert(listed_.begin() + 1, 3, parameters_.back());
  }
  for (const at::Tensor& tensor : listed_) {
    const auto layer = std::ranges::find_if(
        parameters_, [&](const at::Tensor& parameter) { return parameter.is_same(tensor); });
    client_.fact(kListed, layer - parameters_.begin());
  }
  buffers_ = buffers_of(options_, parameters_, client.rank());
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    named.push_back({"buffer " + std::to_string(i), buffers_[i]});
    client_.value(kInitialBuffer, buffers_[i], static_cast<std::int64_t>(i));
  }
  client_.name(named);
  tap_.emplace(parameters_, [this](std::size_t layer, const at::Tensor& incoming) {
    const at::Tensor computed = std::exchange((*computed_)[layer], at::Tensor());
    if (!quiet_) {
      gradients_.add(layer, computed.defined() ? computed : incoming);
      client_.look_at_buffers();
      client_.ready(static_cast<std::int64_t>(layer));
    }
  });
}

Training::~Training() { destroy(); }

void Training::construct() {
  std::vector<const void*> places;
  for (const auto* tensors : {&parameters_, &buffers_}) {
    for (const at::Tensor& tensor : *tensors) {
      places.push_back(tensor.const_data_ptr());
    }
  }
  gradients_.keep();
  go_to(Phase::kConstruction);
  {
    const KeptSurroundings kept(client_, "construction");
    synchronizer_ = make_(client_, listed_, buffers_, group_);
  }
  group_.reset();  // the synchronizer keeps it alive
  go_to(Phase::kSetup);
  {
    const OwnAccess own;
    for (const std::size_t i : gradients_.changed()) {
      const bool defined = gradients_.of(i).defined();
      if (defined) {  // else it may be there now: zeros, in the synchronizer's place
        tell_touched(i, "construction");
      }
    }
    gradients_.keep();
    keep_state(places);
    look_at_state();
  }
  launches_ = client_.launches();
  step_ = 0;
  go_to(Phase::kSetup);
}

void Training::destroy() {
  const bool constructed = synchronizer_ != nullptr;
  go_to(Phase::kDestruction);
  {
    const KeptSurroundings kept(client_, "destruction");
    synchronizer_.reset();
  }
  go_to(Phase::kSetup);
  if (constructed && !in_flight_) {
    expect(gradients_, "destruction");
  }
}

void Training::replace_synchronizer(std::unique_ptr<GradientSynchronizer> other) {
  destroy();
  synchronizer_ = std::move(other);
}

void Training::clear(Clear how) {
  go_to(Phase::kSetup);
  expect(gradients_, "the end of finish()");
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (how == Clear::kNone) {
      gradient.reset();
    } else if (gradient.defined() && how == Clear::kZero) {
      gradient = gradient.detach();  // as torch::optim's zero_grad() does
      gradient.zero_();
    } else if (gradient.defined() && how == Clear::kReplace) {
      const auto other = gradient.dim() == 4   ? Layout::kChannelsLast
                         : gradient.dim() >= 2 ? Layout::kTransposed
                                               : Layout::kEverySecond;
      const bool row_major = (i + client_.rank() + backwards_) % 2 == 0;
      gradient = laid_out(at::zeros_like(gradient), row_major ? Layout::kSlice : other);
      if (!gradient.is_contiguous()) {
        tell_edge_case(client_, kStridedGradients);
      }
    }
  }
  gradients_.keep();
  if (how == Clear::kNone) {
    client_.fact(kNoGradients, 1);
  }
}

void Training::set_gradient(std::size_t layer, const at::Tensor& gradient) {
  if (gradient.defined() && !gradient.is_contiguous()) {
    tell_edge_case(client_, kStridedGradients);
  }
  parameters_[layer].mutable_grad() = gradient;
  gradients_.keep();
}

void Training::train(std::size_t layer, bool trained) {
  parameters_[layer].requires_grad_(trained);
  requires_grad_[layer] = trained;
}

void Training::fill(double value) {
  const OwnAccess own;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].variable_data().fill_(value);
    kept_[i].fill_(value);
  }
}

at::Tensor Training::loss(const std::vector<std::size_t>& unused) {
  std::vector<std::size_t> used;
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    if (std::ranges::find(unused, i) == unused.end()) {
      used.push_back(i);
    }
  }
  return loss_in_order(used);
}

at::Tensor Training::loss_in_order(const std::vector<std::size_t>& layers) {
  go_to(Phase::kForward);
  // Its gradient comes after that of the last layer, when backward goes on.
  at::Tensor one = at::ones({}, at::TensorOptions(at::kDouble).device(settings().device));
  one.set_requires_grad(true).register_hook([this](const at::Tensor&) {
    if (!quiet_) {
      client_.fact(kGoesOn, 1);
    }
  });
  at::Tensor sum = one * 0;
  // Backward begins with what was added last.
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    const std::size_t i = *layer;
    const bool tied = options_.tied && i + 1 == parameters_.size();
    for (int use = 0; use < (tied ? 2 : 1) && options_.layers[i].trainable; ++use) {
      const double first = 2.0 + static_cast<double>(i) + 20.0 * client_.rank() + 0.3 * backwards_;
      sum = add_term(sum, i, numbers(options_.layers[i], first + use, 0.707107));
    }
  }
  ++backwards_;
  return sum;
}

at::Tensor Training::add_term(const at::Tensor& sum, std::size_t layer, const at::Tensor& factors) {
  at::Tensor more = with_term(sum, parameters_[layer], factors);
  // Weak: the graph may live longer than the model.
  const std::weak_ptr<std::vector<at::Tensor>> weak = computed_;
  more.grad_fn()->add_post_hook(std::make_unique<AfterTerm>(
      [weak, layer, weight = parameters_[layer]](const at::Tensor& more) {
        const OwnAccess own;
        const at::NoGradGuard no_grad;
        const auto alive = weak.lock();
        if (alive && weight.requires_grad()) {
          require_seen(*alive, layer);
          at::Tensor& computed = (*alive)[layer];
          computed = computed.defined() ? computed + more : more.detach().clone();
        }
      }));
  return more;
}

void Training::backward(const at::Tensor& loss, bool create_graph) {
  computed_->assign(parameters_.size(), at::Tensor());
  in_flight_ = in_flight_ || !scope_;
  go_to(Phase::kBackward);
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  const KeptSurroundings kept(client_, "backward");
  try {
    loss.backward({}, /*retain_graph=*/create_graph, create_graph);
    require_seen(*computed_, parameters_.size());
  } catch (...) {
    go_to(Phase::kSetup);
    throw;
  }
  go_to(Phase::kSetup);
  if (scope_ && !in_flight_) {
    expect(gradients_, "a backward inside NoSync");
  }
}

void Training::accumulate(const std::vector<std::size_t>& unused) {
  const Scope scope(*this);
  backward(loss(unused));
}

void Training::finish() {
  go_to(Phase::kSetup);
  std::optional<KeptGradients> before;
  if (!scope_) {
    hand_in_local();
    in_flight_ = true;
  } else if (client_.launches() == launches_) {  // else gradients may be in flight, and arrive
    before.emplace(parameters_);
  }
  go_to(Phase::kFinish);
  {
    const at::AutoGradMode autograd(step_ % 3 != 1);  // off around a whole update by hand
    const KeptSurroundings kept(client_, "finish()");
    synchronizer_->finish();
  }
  go_to(Phase::kSetup);
  look_at_state();
  if (before) {
    expect(*before, "a finish() inside NoSync");
    for (const std::size_t layer : before->moved()) {
      tell_touched(layer, "a finish() inside NoSync");
    }
  }
  if (scope_) {
    return;
  }
  hand_in(kGradient);
  end_step();
}

void Training::abandon() {
  go_to(Phase::kFinish);
  synchronizer_->finish();
  end_step();
}

void Training::quiet_step(Clear how) {
  clear(how);
  quiet_ = true;
  backward();
  quiet_ = false;
  synchronizer_->finish();
  end_step();
}

void Training::update() {
  const OwnAccess own;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].grad().defined()) {
      parameters_[i].variable_data().sub_(parameters_[i].grad(), /*alpha=*/0.125);
    }
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    kept_[i].copy_(parameters_[i]);
  }
  buffers_[0].add_(1 + client_.rank());
  kept_[parameters_.size()].copy_(buffers_[0]);
}

void Training::communicate(Clear how, const std::vector<std::size_t>& unused) {
  clear(how);
  backward(loss(unused));
  finish();
}

void Training::step(Clear how) {
  communicate(how);
  update();
}

void Training::go_to(Phase phase) {
  client_.go_to({.phase = phase, .no_sync = scope_, .step = step_, .model = options_.model});
}

void Training::end_step() {
  in_flight_ = false;
  launches_ = client_.launches();
  gradients_.keep();
  ++step_;
  go_to(Phase::kSetup);
}

Training::Scope::Scope(Training& training) : training_(training), outer_(training.scope_) {
  training_.scope_ = true;
  guard_.emplace(training_.synchronizer());
  training_.go_to(Phase::kSetup);
}

Training::Scope::~Scope() {
  guard_.reset();
  training_.scope_ = outer_;
  training_.go_to(Phase::kSetup);
}

// What a Training hands in.

void Training::hand_in_local() {
  const OwnAccess own;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool seen = options_.layers[i].trainable;  // by the tap
    const at::Tensor& gradient = parameters_[i].grad();
    const auto index = static_cast<std::int64_t>(i);
    client_.value(kLocal, seen ? gradients_.of(i) : gradient, index);
    if (seen && !gradients_.of(i).defined()) {
      tell_edge_case(client_, kUndefined);
    }
    if (gradient.defined() && gradient.layout() == at::kStrided && !gradient.is_contiguous()) {
      client_.fact(kStridedGradient, fingerprint(at::tensor(gradient.strides(), at::kLong)), index);
    }
  }
}

void Training::hand_in(const std::string& name) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    client_.value(name, parameters_[i].grad(), static_cast<std::int64_t>(i));
  }
}

void Training::tell_touched(std::size_t layer, const char* after) {
  client_.fact(std::string(kTouchedGradient) + after, 1, static_cast<std::int64_t>(layer));
}

void Training::expect(const KeptGradients& expected, const char* after) {
  for (const std::size_t layer : expected.changed()) {
    tell_touched(layer, after);
  }
}

void Training::keep_state(const std::vector<const void*>& places) {
  kept_.clear();
  for (const auto* tensors : {&parameters_, &buffers_}) {
    for (std::size_t i = 0; i < tensors->size(); ++i) {
      const at::Tensor& tensor = (*tensors)[i];
      const std::string what = tensors == &parameters_ ? kParameter : kBuffer;
      client_.value(what, tensor, static_cast<std::int64_t>(i));
      if (!tensor.is_contiguous()) {
        client_.fact(kStrided + what, 1, static_cast<std::int64_t>(i));
      }
      if (tensor.const_data_ptr() != places[kept_.size()]) {
        client_.fact(kMoved + what, 1, static_cast<std::int64_t>(i));
      }
      kept_.push_back(tensor.clone());
    }
  }
}

void Training::look_at_state() {
  const OwnAccess own;
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const bool parameter = i < parameters_.size();
    const std::size_t index = parameter ? i : i - parameters_.size();
    if (!same_bits(parameter ? parameters_[index] : buffers_[index], kept_[i])) {
      client_.fact(parameter ? "touched parameter" : "touched buffer", 1,
                   static_cast<std::int64_t>(index));
    }
    if (parameter && parameters_[i].requires_grad() != requires_grad_[i]) {
      client_.fact("touched requires_grad of parameter", 1, static_cast<std::int64_t>(i));
    }
  }
}

}  // namespace ddp::testing
