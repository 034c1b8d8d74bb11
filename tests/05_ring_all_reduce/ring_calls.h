#pragma once

#include <functional>
#include <string>
#include <vector>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "ddp/referee/client.h"
#include "heap_watch.h"

// What bodies of this stage are made of: calls of its functions, which hand in what a claim may want
// to know.

namespace ddp::testing {

enum class Function { kReduceScatter, kAllGather, kAllReduce, kPipelined };

/// "ring_all_reduce()".
std::string to_string(Function function);

/// Where a tensor's elements lie: the view of a tensor with the shape `whole`.
struct StridedView {
  std::string name;  // "a transposed matrix"
  std::vector<std::int64_t> whole;
  std::function<at::Tensor(const at::Tensor&)> of;
};

/// Views with gaps between elements, or in an order that is not row-major.
const std::vector<StridedView>& strided_views();

/// What a tensor's elements are on each rank, different ones on all of them.
enum class Values {
  kPlain,      // integers of any bits; floating point in [-1, 1), with all its digits
  kBits,       // any bits: NaNs with a payload, infinities, subnormal numbers, a negative zero
  kSubnormal,  // multiples of the smallest number, whose sums are subnormal, too
  kZeros,      // zeros, on odd ranks negative ones
  kNotFinite,  // some are NaN or infinite, on rank 0 or 1
};

/// What a call leaves as it was.
constexpr const char* kKept[] = {"the tensor's memory",  "the tensor's shape",
                                 "the tensor's strides", "the tensor's requires_grad",
                                 "the tensor's grad_fn", "the tensor's gradient",
                                 "the gradient's values"};

enum class Autograd { kNone, kParameter, kResult, kOff };

/// A call of one of the functions, on all ranks of a group.
struct RingCall {
  Function function = Function::kAllReduce;
  std::int64_t elements = 0;
  at::ScalarType dtype = at::kFloat;
  ReduceOp op = ReduceOp::kSum;
  Values values = Values::kPlain;
  /// None: a row of `elements` elements, amid others in memory.
  const StridedView* view = nullptr;
  bool on_odd_ranks = false;  // the view; elsewhere a row of the same shape
  bool same_tensor = false;   // that of the call before, with new values
  Autograd autograd = Autograd::kNone;
  GroupIndex group = 0;
  std::int64_t segment_bytes = 0;  // of the pipelined ring
};

/// What its tensor holds on a rank of `ranks`, in row-major order, in the call of this number.
at::Tensor values_of(const RingCall& call, int rank, int ranks, int number);

/// Makes calls on a rank, one in each step.
///
/// Evidence of each: the facts "call: <what>" (the function; its index is the op), "group", "strided"
/// and "values"; the values "input" and "result" (the elements in row-major order), "kept before"
/// and "kept after"; the facts "written outside" (elements that are not the tensor's), "heap before"
/// and, of a large tensor, "heap peak" (bytes, without the tensor's).
class RingCaller {
 public:
  /// Also says in the environment which rank this is, of how many: not so in every group.
  explicit RingCaller(Client& client);

  /// Ranks that are not in its group do nothing.
  void call(const RingCall& call);
  /// Calls of which only operations are told.
  void quiet_call(const RingCall& call);
  /// Evidence: the facts "prints" (the group), "wrote" and "flushed" as it happens, and the values
  /// "message" and "text" (what came of it).
  void print(const std::string& message, GroupIndex group = 0);
  /// The facts "held: <what>".
  void count_what_is_held();

  ProcessGroupPtr group(GroupIndex index);

  /// A call's tensor, and the memory around it.
  struct Placed {
    at::Tensor whole;
    at::Tensor part;
    at::Tensor tensor;  // of the part's memory, or made from it
  };

 private:
  void fill(const RingCall& call, const at::Tensor& values);
  void run_watched(const RingCall& call, const ProcessGroupPtr& group);
  void go_to(Phase phase);
  bool is_member(GroupIndex group) const;

  Client& client_;
  HeapWatch heap_;
  // The last one alone: the next may come to lie at its address.
  GroupIndex index_ = -1;
  ProcessGroupPtr group_;
  Placed placed_;  // the last call's
  int step_ = -1;
};

}  // namespace ddp::testing
