#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>
#include <random>

#include "ddp/balanced_split.h"
#include "ddp/libtorch_versions.h"
#include "ddp/referee/access_watch.h"
#include "ddp/referee/client.h"
#include "grader/calls.h"
#include "grader/compare.h"
#include "grader/filled.h"
#include "grader/scenario.h"
#include "grader/settings.h"
#include "scenarios.h"

namespace ddp::testing {

namespace {

constexpr double kOutside = 77;                           // elements that are not the tensor's
constexpr std::int64_t kMargin = 5;                       // of them, before and after a row
constexpr std::int64_t kLarge = std::int64_t{128} << 10;  // bytes: what takes memory is watched

// By a loop, not by an operator: see grader/filled.h.
at::Tensor bits_of(std::int64_t elements, at::ScalarType dtype, std::mt19937_64& random) {
  at::Tensor bits = at::empty({elements}, dtype);
  auto* bytes = static_cast<std::uint8_t*>(bits.mutable_data_ptr());
  std::generate_n(bytes, bits.nbytes(), [&] { return static_cast<std::uint8_t>(random()); });
  return bits;
}

// The bits of the smallest numbers are small integers beside a sign. No arithmetic of floating point
// makes them, which may have been told to flush them.
at::Tensor small_integers_as_bits(std::int64_t elements, at::ScalarType dtype,
                                  std::mt19937_64& random) {
  constexpr at::ScalarType kBySize[] = {at::kByte, at::kByte, at::kShort, at::kInt, at::kInt,
                                        at::kLong, at::kLong, at::kLong,  at::kLong};
  const auto bytes = static_cast<int>(c10::elementSize(dtype));
  const at::Tensor numbers = at::empty({elements}, at::kLong);
  const at::Tensor signs = at::empty({elements}, at::kLong);
  std::generate_n(numbers.mutable_data_ptr<std::int64_t>(), elements,
                  [&] { return random() % 10; });
  std::generate_n(signs.mutable_data_ptr<std::int64_t>(), elements, [&] { return random() % 2; });
  return (numbers + signs * (std::int64_t{-1} << (8 * bytes - 1))).to(kBySize[bytes]).view(dtype);
}

// What a call's tensor holds on a rank of `ranks`, in row-major order, in the call of this number.
at::Tensor values_of(const RingCall& call, int rank, int ranks, int number) {
  const std::int64_t elements =
      call.view == nullptr ? call.elements : call.view->of(at::empty(call.view->whole)).numel();
  std::mt19937_64 random(settings().seed * 64 + rank + 1'000'003 * number);
  if (call.values == Values::kBits || !at::isFloatingType(call.dtype)) {
    at::Tensor bits = bits_of(elements, call.dtype, random);
    if (bits.is_floating_point()) {
      const auto chunks = balanced_split(elements, ranks);
      const Chunk& zeros = chunks[1 % ranks];  // equal to the others', but for their sign
      bits.narrow(0, zeros.begin, zeros.size).fill_(rank == 1 % ranks ? -0.0 : 0.0);
      bits.narrow(0, chunks[rank].begin, chunks[rank].size > 0 ? 1 : 0).fill_(-0.0);
    }
    return bits;
  }
  if (call.values == Values::kZeros) {
    return at::full({elements}, rank % 2 == 0 ? 0.0 : -0.0, call.dtype);
  }
  if (call.values == Values::kSubnormal) {
    return small_integers_as_bits(elements, call.dtype, random);
  }
  std::uniform_real_distribution<double> uniform(-1, 1);
  at::Tensor values = filled({elements}, call.dtype, [&](auto) { return uniform(random); });
  if (call.values == Values::kNotFinite) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (std::int64_t at = 0; at + 8 <= elements && rank < 2; at += 8) {
      values[at + 1 + rank].fill_(std::numeric_limits<double>::quiet_NaN());
      values[at + 4].fill_(rank == 0 ? kInfinity : -kInfinity);
      values[at + 6].fill_(rank == 0 ? -kInfinity : 1.0);
    }
  }
  return values;
}

bool is_strided(const RingCall& call, int rank) {
  return call.view != nullptr && (!call.on_odd_ranks || rank % 2 == 1);
}

// The tensor of a call, as the part of a larger one, whose other elements are kOutside.
RingCaller::Placed place(const RingCall& call, const at::Tensor& values, int rank) {
  const std::vector<std::int64_t> shape =
      call.view == nullptr ? values.sizes().vec()
                           : call.view->of(at::empty(call.view->whole)).sizes().vec();
  const StridedView row = {"", {values.numel() + 2 * kMargin}, [&](const at::Tensor& whole) {
                             return whole.narrow(0, kMargin, values.numel()).view(shape);
                           }};
  const StridedView& view = is_strided(call, rank) ? *call.view : row;
  RingCaller::Placed placed;
  placed.whole =
      at::full(view.whole, kOutside, at::TensorOptions(call.dtype).device(settings().device));
  placed.part = view.of(placed.whole);
  placed.part.copy_(values.view(placed.part.sizes()));
  placed.tensor = placed.part.alias();
  if (call.autograd == Autograd::kParameter) {
    placed.tensor.set_requires_grad(true);
    placed.tensor.mutable_grad() = at::ones_like(placed.tensor.detach());
  } else if (call.autograd == Autograd::kResult) {
    placed.tensor = placed.part * at::ones({}, placed.part.options()).set_requires_grad(true);
  }
  return placed;
}

std::string describe(const RingCall& call, const at::Tensor& tensor) {
  std::string text = to_string(call.function) + " of " + std::to_string(tensor.numel());
  text += call.op == ReduceOp::kAverage ? " elements, averaged, of " : " elements of ";
  text += dtype_name(call.dtype);
  text += call.view != nullptr
              ? " (" + call.view->name + (call.on_odd_ranks ? ", on odd ranks alone)" : ")")
              : "";
  text += call.values == Values::kNotFinite   ? ", of which some are NaN or infinite"
          : call.values == Values::kSubnormal ? ", subnormal numbers"
          : call.values == Values::kZeros     ? ", zeros of either sign"
                                              : "";
  return text;
}

void run(const RingCall& call, const at::Tensor& tensor, const ProcessGroupPtr& group) {
  switch (call.function) {
    case Function::kReduceScatter:
      return ring_reduce_scatter(tensor, group, call.op);
    case Function::kAllGather:
      return ring_all_gather(tensor, group);
    case Function::kAllReduce:
      return ring_all_reduce(tensor, group, call.op);
  }
}

std::int64_t hash_of(at::IntArrayRef numbers) {
  return fingerprint(at::tensor(numbers, at::kLong));
}

// What a call leaves as it was, see kKept.
at::Tensor kept(const at::Tensor& tensor) {
  const auto address = [](const void* what) { return reinterpret_cast<std::intptr_t>(what); };
  const at::Tensor& gradient = tensor.mutable_grad();
  const std::int64_t numbers[] = {address(tensor.detach().data_ptr()),
                                  hash_of(tensor.sizes()),
                                  hash_of(tensor.strides()),
                                  tensor.requires_grad(),
                                  address(tensor.grad_fn().get()),
                                  address(gradient.unsafeGetTensorImpl()),
                                  gradient.defined() ? fingerprint(gradient) : 0};
  static_assert(std::size(numbers) == std::size(kKept));
  return at::tensor(at::ArrayRef<std::int64_t>(numbers), at::kLong);
}

}  // namespace

std::string to_string(Function function) {
  static constexpr const char* kNames[] = {"ring_reduce_scatter()", "ring_all_gather()",
                                           "ring_all_reduce()"};
  return kNames[static_cast<int>(function)];
}

const std::vector<StridedView>& strided_views() {
  using at::Tensor;
  static const std::vector<StridedView> views = {
      {"a transposed matrix", {9, 7}, [](const Tensor& t) { return t.t(); }},
      {"every second column", {5, 12}, [](const Tensor& t) { return t.slice(1, 0, 12, 2); }},
      {"some columns", {6, 11}, [](const Tensor& t) { return t.narrow(1, 3, 5); }},
      {"one column", {13, 3}, [](const Tensor& t) { return t.select(1, 2); }},
      {"a block, transposed", {4, 5, 6}, [](const Tensor& t) { return t.transpose(0, 1); }},
      {"a permuted block, cut",
       {4, 5, 6},
       [](const Tensor& t) {
         return t.permute({2, 0, 1}).narrow(0, 1, 3);
       }},
      {"a channels-last image",
       {2, 4, 5, 3},
       [](const Tensor& t) {
         return t.permute({0, 3, 1, 2});
       }},
      {"a large transposed matrix", {301, 613}, [](const Tensor& t) { return t.t(); }},
      {"a channels-last volume",
       {2, 3, 4, 5, 3},
       [](const Tensor& t) {
         return t.permute({0, 4, 1, 2, 3});
       }},
      {"a single number", {3}, [](const Tensor& t) { return t.select(0, 1); }},
      {"an empty selection", {4, 6}, [](const Tensor& t) { return t.slice(1, 2, 2, 2); }},
  };
  return views;
}

RingCaller::RingCaller(Client& client) : client_(client), heap_(client) {
  setenv("RANK", std::to_string(client.rank()).c_str(), /*overwrite=*/1);
  setenv("WORLD_SIZE", std::to_string(client.world().ranks).c_str(), /*overwrite=*/1);
}

void RingCaller::go_to(Phase phase) { client_.go_to({.phase = phase, .step = step_}); }

bool RingCaller::is_member(GroupIndex group) const {
  const auto members = members_of(client_.world(), group);
  return std::ranges::find(members, client_.rank()) != members.end();
}

ProcessGroupPtr RingCaller::group(GroupIndex index) {
  if (!group_ || index != index_) {
    group_.reset();
    group_ = make_group(client_.shared_from_this(), index_ = index);
  }
  return group_;
}

void RingCaller::call(const RingCall& call) {
  ++step_;
  go_to(Phase::kSetup);
  if (!is_member(call.group)) {
    return;
  }
  const ProcessGroupPtr group = this->group(call.group);
  fill(call, values_of(call, group->getRank(), group->getSize(), /*number=*/step_));
  const at::Tensor seen = placed_.tensor.detach();
  client_.fact(kCall + describe(call, seen), static_cast<std::int64_t>(call.function),
               static_cast<std::int64_t>(call.op));
  client_.fact(kGroup, call.group);
  client_.fact(kIsStrided, is_strided(call, group->getRank()));
  client_.fact(kValues, static_cast<std::int64_t>(call.values));
  client_.value(kInput, seen.reshape({-1}));
  if (call.view != nullptr && seen.numel() == 0) {
    tell_edge_case(client_, kEmpty);
  }
  const at::AutoGradMode mode(call.autograd != Autograd::kOff);
  client_.value(kKeptBefore, kept(placed_.tensor));
  run_watched(call, group);
  client_.value(kKeptAfter, kept(placed_.tensor));
  const OwnAccess unseen;
  client_.value(kResult, seen.reshape({-1}));
  placed_.part.fill_(kOutside);
  client_.fact(kWrittenOutside, placed_.whole.ne(kOutside).sum().item<std::int64_t>());
}

void RingCaller::fill(const RingCall& call, const at::Tensor& values) {
  if (call.same_tensor) {
    placed_.part.copy_(values.view(placed_.part.sizes()));
  } else {
    placed_ = place(call, values, this->group(call.group)->getRank());
  }
}

void RingCaller::run_watched(const RingCall& call, const ProcessGroupPtr& group) {
  const at::Tensor& gradient = placed_.tensor.mutable_grad();
  const auto own = static_cast<std::int64_t>(placed_.whole.nbytes() +
                                             (gradient.defined() ? gradient.nbytes() : 0));
  client_.fact(kHeapBefore, heap_bytes() - own);
  go_to(Phase::kCall);
  const KeptSurroundings kept(client_, to_string(call.function));
  if (own < kLarge) {
    run(call, placed_.tensor, group);
  } else {
    heap_.begin();
    run(call, placed_.tensor, group);
    client_.fact(kHeapPeak, heap_.end() - own);
  }
  client_.fact(kHeapAfter, heap_bytes() - own);
  go_to(Phase::kSetup);
}

void RingCaller::quiet_call(const RingCall& call) {
  ++step_;
  go_to(Phase::kSetup);
  const at::Tensor tensor = at::ones({call.elements}, settings().device);
  run(call, tensor, group(call.group));
}

void RingCaller::count_what_is_held() {
  namespace fs = std::filesystem;
  client_.fact("held: handles of messages", client_.live_handles());
  client_.fact("held: bytes of the heap", heap_bytes());
  client_.fact("held: threads",
               std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()));
}

}  // namespace ddp::testing
