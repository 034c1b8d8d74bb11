#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "ddp/referee/access_watch.h"
#include "ddp/referee/client.h"
#include "grader/calls.h"
#include "grader/filled.h"
#include "grader/scenario.h"
#include "grader/settings.h"
#include "grader/training.h"
#include "scenarios.h"

namespace ddp::testing {

namespace {

// Passes its input on; its backward returns no gradient at all, which means zero.
struct Undefined : torch::autograd::Function<Undefined> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    return {at::Tensor()};
  }
};

// Records which ATen operators are called during its lifetime, on any thread of this process. Only
// one may exist at a time. The graded group's own operators are not recorded.
class OperatorWatch {
 public:
  OperatorWatch() {
    const std::scoped_lock lock(mutex);
    TORCH_CHECK(!std::exchange(watching, true), "one OperatorWatch at a time");
    names.clear();
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(on_operator).scopes({at::RecordScope::FUNCTION}));
  }
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;
  ~OperatorWatch() {
    at::removeCallback(handle_);
    const std::scoped_lock lock(mutex);
    watching = false;
  }

  // Their names, such as "aten::mul".
  std::set<std::string> called() const {
    const std::scoped_lock lock(mutex);
    return names;
  }

 private:
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call) {
    if (call.operator_name().has_value()) {  // else an autograd function, named by whoever wrote it
      const std::scoped_lock lock(mutex);
      names.insert(call.name());
    }
    return nullptr;
  }

  // A callback is a plain function, so its state is of the class.
  inline static std::mutex mutex;  // backward may run on its own threads
  inline static bool watching = false;
  inline static std::set<std::string> names;
  at::CallbackHandle handle_;
};

// Which of libtorch's normalizations were called.
void tell_normalizations(Client& client, const OperatorWatch& watch) {
  for (const std::string& name : watch.called()) {
    if (name.find("norm") != std::string::npos) {
      client.fact("called: " + name, 1);
    }
  }
}

}  // namespace

Use::Use(Client& client, int number, ProcessGroupPtr group, UseOptions options, NormModule module)
    : client_(client),
      number_(number),
      group_(std::move(group)),
      member_(group_->getRank()),
      options_(std::move(options)),
      module_(std::move(module)) {
  go_to(Phase::kSetup);
  const OwnAccess own;
  make_tensors();
  const std::vector<std::int64_t> equal(group_->getSize(), options_.shape[0]);
  make_input(options_.rows.empty() ? equal : options_.rows);
  make_upstream(options_.rows.empty() ? equal : options_.rows);
  note_places();
}

void Use::replace_tensors(const BatchNormTensors& others) {
  tensors = others;
  note_places();
}

void Use::note_places() {
  for (const auto& [name, tensor] : state()) {
    places_[name] = tensor.const_data_ptr();
  }
}

std::vector<std::pair<std::string, at::Tensor>> Use::state() const {
  std::vector<std::pair<std::string, at::Tensor>> all = {
      {"input", input},
      {"weight", tensors.weight},
      {"bias", tensors.bias},
      {"running_mean", tensors.running_mean},
      {"running_var", tensors.running_var},
      {"num_batches_tracked", batches},
      {"upstream", backwards_ > 0 ? upstream : at::Tensor()},
      {"output", output}};
  std::erase_if(
      all, [](const auto& entry) { return !entry.second.defined() || entry.second.is_meta(); });
  return all;
}

// Tensors of a module are those that the caller has got hold of before: their values must follow,
// and the module must still have them.
void Use::hand_in(Moment moment) {
  for (const auto& [name, tensor] : state()) {
    client_.value(name, tensor, moment);
    const auto place = places_.find(name);
    if (place != places_.end() && place->second != tensor.const_data_ptr()) {
      client_.fact("moved: " + name, 1);
    }
  }
  const auto check = [&](const char* name, const at::Tensor& mine, const at::Tensor& its) {
    if (!mine.is_same(its)) {
      client_.fact("moved: " + std::string(name), 1);
    }
  };
  if (module_ != nullptr) {
    check("weight", tensors.weight, module_->weight);
    check("bias", tensors.bias, module_->bias);
    check("running_mean", tensors.running_mean, module_->running_mean);
    check("running_var", tensors.running_var, module_->running_var);
    check("num_batches_tracked", batches, module_->num_batches_tracked);
  }
}

void Use::tell_edge_cases() const {
  const bool none = std::ranges::find(options_.rows, 0) != options_.rows.end();
  if (none || input.numel() == 0) {
    tell_edge_case(client_, kEmpty);
  }
  if (input.scalar_type() == at::kHalf || input.scalar_type() == at::kBFloat16) {
    tell_edge_case(client_, "half or bfloat16");
  }
  if (input.scalar_type() == at::kDouble) {
    tell_edge_case(client_, kFloat64);
  }
  for (const auto& [tensor, name] :
       {std::pair(tensors.weight, "weight"), std::pair(tensors.bias, "bias"),
        std::pair(tensors.running_mean, "running statistics")}) {
    if (!tensor.defined()) {
      tell_edge_case(client_, "no " + std::string(name));
    }
  }
  for (const auto& [name, tensor] : state()) {
    if (!tensor.is_contiguous()) {
      tell_edge_case(client_, kStridedTensors);
    }
  }
}

void Use::call() {
  const OperatorWatch watch;
  const at::Tensor given = options_.temporary ? input * 1 : input;
  {
    const KeptSurroundings kept(client_, "forward");
    output = module_ != nullptr ? module_->forward(given)
                                : sync_batch_norm(given, tensors, group_, options_.mode);
  }
  if (given.defined() && given.retains_grad()) {
    client_.fact("unasked: gradient of the input", 1);
  }
  tell_normalizations(client_, watch);
}

void Use::forward() {
  go_to(Phase::kSetup);
  client_.fact("group", options_.group);
  client_.fact("note: " + options_.note, 1);
  client_.fact("wants the input's gradient", input.requires_grad() && options_.graph);
  SyncBatchNormOptions mode = options_.mode;
  if (module_ != nullptr) {
    mode = {module_->is_training(),
            module_->options().momentum.value_or(std::numeric_limits<double>::quiet_NaN()),
            module_->options().eps};
  }
  client_.value("options", at::tensor({mode.training ? 1.0 : 0.0, mode.momentum, mode.eps,
                                       module_ != nullptr ? 1.0 : 0.0}));
  hand_in(kBefore);
  tell_edge_cases();
  go_to(Phase::kForward);
  {
    const c10::InferenceMode inference(options_.inference);
    const at::AutoGradMode grad_mode(options_.graph);
    call();
  }
  go_to(Phase::kSetup);
  for (int i = 0; i < 4 && options_.temporary; ++i) {
    litter_.push_back(at::full_like(input, std::numeric_limits<double>::quiet_NaN()));
  }
  hand_in(kAfterForward);
}

// Outside the step, so that it takes no part in its time.
void Use::end() {
  client_.go_to({.phase = Phase::kDestruction});
  for (const auto& [name, tensor] : state()) {
    client_.value(name, tensor, kAtEnd + number_);
  }
}

c10::weak_intrusive_ptr<c10d::ProcessGroup> Use::drop_group() {
  c10::weak_intrusive_ptr<c10d::ProcessGroup> weak(group_);
  module_.reset();
  group_.reset();
  if (weak.expired()) {
    client_.fact("the group is gone", 1);
  }
  return weak;
}

void Use::attempt(const std::string& what) {
  go_to(Phase::kSetup);
  hand_in(kBefore);
  tell_edge_cases();
  const at::AutoGradMode grad_mode(options_.graph);
  testing::attempt(client_, what, [&] { call(); });
  output.reset();
  hand_in(kAfterForward);
}

bool Use::has_graph() const {
  const auto wants = [](const at::Tensor& leaf) { return leaf.defined() && leaf.requires_grad(); };
  const bool due = options_.graph && (wants(input) || wants(tensors.weight) || wants(tensors.bias));
  TORCH_CHECK(!due || output.requires_grad(),
              "the output requires no gradient, although the input, the weight or the bias does");
  return due;
}

void Use::backward() {
  if (options_.upstream == Upstream::kUndefinedOnOdd && member_ % 2 == 1) {
    const at::Tensor root = Undefined::apply(output);
    backward_of(root, at::ones_like(root));
  } else {
    backward_of(output, upstream);
  }
}

void Use::run() {
  forward();
  if (has_graph()) {
    backward();
  }
}

void Use::backward_of(const at::Tensor& root, const at::Tensor& gradient, bool keep_graph) {
  const std::pair<const char*, at::Tensor> leaves[] = {{"gradient of the input", input},
                                                       {"gradient of the weight", tensors.weight},
                                                       {"gradient of the bias", tensors.bias}};
  for (const auto& [name, leaf] : leaves) {
    if (leaf.defined() && backwards_ == 0) {
      leaf.mutable_grad().reset();
    }
  }
  ++backwards_;
  go_to(Phase::kSetup);
  client_.fact("backward", 1);
  if (!keep_graph) {
    client_.value("upstream", upstream, kAfterForward);
  }
  go_to(Phase::kBackward);
  {
    const KeptSurroundings kept(client_, "backward");
    const OperatorWatch watch;
    if (backwards_ == 1 && number_ % 2 == 1) {
      ask_for_gradients(root, gradient, keep_graph);
    } else {
      root.backward(gradient, keep_graph);
    }
    tell_normalizations(client_, watch);
  }
  go_to(Phase::kSetup);
  if (keep_graph) {
    return;  // the last backward hands in what all have added up to
  }
  for (const auto& [name, leaf] : leaves) {
    if (leaf.defined() && leaf.requires_grad()) {
      client_.value(name, leaf.grad(), kAfterBackward);
    } else if (leaf.defined() && leaf.mutable_grad().defined()) {
      client_.fact("unasked: " + std::string(name), 1);
    }
  }
  hand_in(kAfterBackward);
}

// What backward accumulates, autograd can also return.
void Use::ask_for_gradients(const at::Tensor& root, const at::Tensor& gradient, bool keep_graph) {
  std::vector<at::Tensor> leaves = {input, tensors.weight, tensors.bias};
  std::erase_if(leaves,
                [](const at::Tensor& leaf) { return !leaf.defined() || !leaf.requires_grad(); });
  const auto gradients = torch::autograd::grad({root}, leaves, {gradient}, keep_graph,
                                               /*create_graph=*/false, /*allow_unused=*/true);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    leaves[i].mutable_grad() = gradients[i];
  }
}

void Uses::end() {
  for (const auto& use : all_) {
    if (use != nullptr && use->output.defined()) {
      use->end();
    }
  }
}

ProcessGroupPtr Uses::group(GroupIndex index) {
  ProcessGroupPtr& group = groups_[index];
  if (group == nullptr) {
    group = make_group(client_.shared_from_this(), index);
  }
  return group;
}

NormModule Uses::module(const BatchNormOptions& options, at::ScalarType dtype, GroupIndex group) {
  client_.go_to({.phase = Phase::kConstruction});
  // Its own handle, which nobody else keeps alive.
  const KeptSurroundings kept(client_, "construction");
  NormModule made = make_sync_batch_norm(options, make_group(client_.shared_from_this(), group));
  client_.go_to({.phase = Phase::kSetup});
  made->to(settings().device, dtype);
  return made;
}

Use* Uses::add(const UseOptions& options, const NormModule& module) {
  const auto members = members_of(client_.world(), options.group);
  const bool member = std::ranges::find(members, client_.rank()) != members.end();
  all_.push_back(member ? std::make_unique<Use>(client_, static_cast<int>(all_.size()),
                                                group(options.group), options, module)
                        : nullptr);
  return all_.back().get();
}

void Uses::run(const UseOptions& options, const NormModule& module) {
  if (Use* use = add(options, module)) {
    use->run();
  }
}

// The numbers that a use computes with.

namespace {

at::Tensor laid_out(const at::Tensor& values, const MemoryLayout& layout) {
  return layout ? layout(values) : values;
}

}  // namespace

namespace {

// One after the other, others for each `salt`.
std::function<double()> normal_numbers(std::uint64_t salt) {
  return [random = std::mt19937_64(settings().seed * 65536 + salt),
          normal = std::normal_distribution<double>()]() mutable { return normal(random); };
}

}  // namespace

at::Tensor random_numbers(at::IntArrayRef shape, std::uint64_t salt) {
  return filled(shape, at::kDouble, [normal = normal_numbers(salt)](auto) { return normal(); });
}

std::vector<std::int64_t> without_channels(const at::Tensor& input) {
  std::vector<std::int64_t> dims(input.dim() - 1);
  std::iota(dims.begin(), dims.end(), 1);
  dims.at(0) = 0;
  return dims;
}

at::Tensor along_channels(const at::Tensor& of_channels, const at::Tensor& input) {
  std::vector<std::int64_t> shape(input.dim(), 1);
  shape.at(1) = of_channels.numel();
  return of_channels.reshape(shape);
}

void Use::make_tensors() {
  if (module_ != nullptr) {
    tensors = {module_->weight, module_->bias, module_->running_mean, module_->running_var};
    batches = module_->num_batches_tracked;
    return;
  }
  const std::int64_t channels = options_.shape[1];
  const auto numbers = [&](std::uint64_t which, at::ScalarType dtype) {
    return random_numbers({channels}, salt(-1) + which)
        .to(dtype == at::ScalarType::Undefined ? options_.dtype : dtype);
  };
  if (options_.weight) {
    tensors.weight = numbers(1, options_.of_weight) * 0.3 + 1;
    tensors.weight.set_requires_grad(options_.wants & kWeight);
  }
  if (options_.bias) {
    tensors.bias = numbers(2, options_.of_bias).set_requires_grad(options_.wants & kBias);
  }
  if (options_.running) {
    tensors.running_mean = numbers(3, options_.of_bias) * 0.5;
    tensors.running_var = numbers(4, options_.of_weight).abs() + 0.5;
  }
}

// Values differ between ranks, channels and samples: local statistics are far from the global ones.
void Use::make_input(const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> shape = options_.shape;
  shape[0] = rows[member_];
  const auto first = std::accumulate(rows.begin(), rows.begin() + member_, std::int64_t{0});
  const auto total = std::accumulate(rows.begin(), rows.end(), 1.0);
  const std::int64_t channels = shape[1];
  const std::int64_t positions = c10::multiply_integers(shape.begin() + 2, shape.end());
  const auto normal = normal_numbers(salt(member_));
  const at::Tensor values = filled(shape, options_.dtype, [&](std::int64_t i) {
    const std::int64_t row = i / (channels * positions);
    const std::int64_t channel = i / positions % channels;
    if (options_.nan && member_ == 0 && row == 0 && channel == 1) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    const auto sign = static_cast<double>((channel + 1) % channels % 3 - 1);  // -1, 0, 1
    return normal() + static_cast<double>(channel % 7) / 4 + sign * options_.mean +
           static_cast<double>(row + first) * (3 / total);
  });
  input = laid_out(values, options_.of_input);
  input.set_requires_grad(options_.wants & kInput);
}

void Use::make_upstream(const std::vector<std::int64_t>& rows) {
  const std::int64_t mine = rows[member_];
  const auto first = std::accumulate(rows.begin(), rows.begin() + member_, std::int64_t{0});
  const auto half = std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) / 2;
  const auto normal = normal_numbers(salt(member_) + 1);
  const auto drawn = [&](at::IntArrayRef shape) {
    return filled(shape, options_.dtype, [&](auto) { return normal() + 0.25; });
  };
  const auto by_row = [&](const auto& of_row) {
    const std::int64_t in_row = mine > 0 ? input.numel() / mine : 1;
    return filled(input.sizes(), options_.dtype,
                  [&](std::int64_t i) { return of_row(i / std::max<std::int64_t>(in_row, 1)); });
  };
  at::Tensor values;
  switch (options_.upstream) {
    case Upstream::kRandom:
      values = drawn(input.sizes());
      break;
    case Upstream::kExpanded:
      values = drawn(input.sizes()).narrow(-1, 0, 1).expand_as(input);
      break;
    case Upstream::kSameRows:
      values = drawn(input.sizes()).narrow(0, 0, 1).expand_as(input);
      break;
    case Upstream::kOfChannels:
      values = along_channels(drawn({input.size(1)}), input).expand_as(input);
      break;
    case Upstream::kFirstHalf:
      values = by_row([&](std::int64_t row) { return first + row < half ? 1.0 : 0.0; });
      break;
    case Upstream::kBlocks:
      values = by_row([&](std::int64_t row) {
        return row >= mine / 4 && row < mine / 4 + mine / 2 ? -1.0 : 1.0;
      });
      break;
    case Upstream::kUndefinedOnOdd:
      values = member_ % 2 == 1 ? by_row([](auto) { return 0.0; }) : drawn(input.sizes());
  }
  upstream = laid_out(values, options_.of_upstream);
}

}  // namespace ddp::testing
