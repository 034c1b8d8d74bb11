#include "ring_calls.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <ostream>
#include <sstream>

#include "ddp/libtorch_versions.h"
#include "ddp/referee/client_group.h"
#include "ddp/referee/own_access.h"
#include "support/body.h"
#include "support/calls.h"
#include "support/compare.h"
#include "support/settings.h"

namespace ddp::testing {

namespace {

constexpr double kOutside = 77;                           // elements that are not the tensor's
constexpr std::int64_t kMargin = 5;                       // of them, before and after a row
constexpr std::int64_t kLarge = std::int64_t{128} << 10;  // bytes: what takes memory is watched

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
    case Function::kPipelined:
      return pipelined_ring_all_reduce(tensor, group,
                                       {.op = call.op, .segment_bytes = call.segment_bytes});
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

// What a stream's user writes, and when.
class WatchedBuffer : public std::streambuf {
 public:
  explicit WatchedBuffer(Client& client) : client_(client) {}

  const std::string& text() const { return text_; }

 protected:
  int overflow(int character) override {
    const char one = traits_type::to_char_type(character);
    return xsputn(&one, 1) == 1 ? character : traits_type::eof();
  }

  std::streamsize xsputn(const char* characters, std::streamsize count) override {
    client_.fact("wrote", count);
    text_.append(characters, count);
    return count;
  }

  int sync() override {
    client_.fact("flushed", 1);
    return 0;
  }

 private:
  Client& client_;
  std::string text_;
};

at::Tensor as_tensor(const std::string& text) {
  return at::tensor(std::vector<std::uint8_t>(text.begin(), text.end()), at::kByte);
}

}  // namespace

std::string to_string(Function function) {
  static constexpr const char* kNames[] = {"ring_reduce_scatter()", "ring_all_gather()",
                                           "ring_all_reduce()", "pipelined_ring_all_reduce()"};
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
  client_.fact("call: " + describe(call, seen), static_cast<std::int64_t>(call.function),
               static_cast<std::int64_t>(call.op));
  client_.fact("group", call.group);
  client_.fact("strided", is_strided(call, group->getRank()));
  client_.fact("values", static_cast<std::int64_t>(call.values));
  client_.value("input", seen.reshape({-1}));
  if (call.view != nullptr && seen.numel() == 0) {
    tell_rare(client_, kEmpty);
  }
  const at::AutoGradMode mode(call.autograd != Autograd::kOff);
  client_.value("kept before", kept(placed_.tensor));
  run_watched(call, group);
  client_.value("kept after", kept(placed_.tensor));
  const OwnAccess unseen;
  client_.value("result", seen.reshape({-1}));
  placed_.part.fill_(kOutside);
  client_.fact("written outside", placed_.whole.ne(kOutside).sum().item<std::int64_t>());
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
  client_.fact("heap before", heap_bytes() - own);
  go_to(Phase::kCall);
  const KeptSurroundings kept(client_, to_string(call.function));
  if (own < kLarge) {
    run(call, placed_.tensor, group);
  } else {
    heap_.begin();
    run(call, placed_.tensor, group);
    client_.fact("heap peak", heap_.end() - own);
  }
  client_.fact("heap after", heap_bytes() - own);
  go_to(Phase::kSetup);
}

void RingCaller::quiet_call(const RingCall& call) {
  ++step_;
  go_to(Phase::kSetup);
  const at::Tensor tensor = at::ones({call.elements}, settings().device);
  run(call, tensor, group(call.group));
}

void RingCaller::print(const std::string& message, GroupIndex group) {
  ++step_;
  go_to(Phase::kSetup);
  if (!is_member(group)) {
    return;
  }
  client_.fact("prints", group);
  client_.value("message", as_tensor(message));
  const ProcessGroupPtr in = this->group(group);
  WatchedBuffer buffer(client_);
  std::ostream out(&buffer);
  std::stringbuf elsewhere;
  const std::shared_ptr<std::streambuf> terminal(std::cout.rdbuf(&elsewhere),
                                                 [](auto* own) { std::cout.rdbuf(own); });
  const std::string around = "[" + message + "]";  // a string_view need not be zero-terminated
  go_to(Phase::kCall);
  const KeptSurroundings kept(client_, "print_in_rank_order()");
  print_in_rank_order(std::string_view(around).substr(1, message.size()), out, in);
  go_to(Phase::kSetup);
  client_.fact("characters in std::cout", static_cast<std::int64_t>(elsewhere.str().size()));
  client_.value("text", as_tensor(buffer.text()));
}

void RingCaller::count_what_is_held() {
  namespace fs = std::filesystem;
  client_.fact("held: handles of messages", client_.live_handles());
  client_.fact("held: bytes of the heap", heap_bytes());
  client_.fact("held: threads",
               std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()));
}

}  // namespace ddp::testing
