#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "ddp/meters/memory_meter.h"
#include "ddp/referee/client.h"
#include "grader/evidence_view.h"
#include "grader/scenario.h"

// What ranks do in this stage, and what that is made of: calls of its functions, which hand in what a
// claim may want to know.

namespace ddp::testing {

enum class Function { kReduceScatter, kAllGather, kAllReduce };

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
constexpr auto kKept =
    std::to_array<const char*>({"the tensor's memory", "the tensor's shape", "the tensor's strides",
                                "the tensor's requires_grad", "the tensor's grad_fn",
                                "the tensor's gradient", "the gradient's values"});

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
};

/// While it lives, each send and recv is a moment to look at buffers in flight; from begin() to end()
/// each operator of libtorch is one to look at the heap, which takes some microseconds. One at a time
/// in a process.
class HeapWatch {
 public:
  explicit HeapWatch(Client& client);
  HeapWatch(const HeapWatch&) = delete;
  HeapWatch& operator=(const HeapWatch&) = delete;
  ~HeapWatch();

  void begin();
  /// The most bytes that any moment since begin() has seen, or that tensors took at any time.
  std::int64_t end();

 private:
  std::uint64_t handle_;
  MemoryMeter tensors_;  // sees every allocation of libtorch's
  std::int64_t heap_ = 0, tensors_before_ = 0;
};

// What is told of a call beside its group: the elements before and after it, in row-major order ...
constexpr ValueKey kInput{"input"}, kResult{"result"};
constexpr ValueKey kKeptBefore{"kept before"}, kKeptAfter{"kept after"};  // see kKept
constexpr const char* kCall = "call: ";  // begins the fact of what it is
constexpr FactKey kValues{"values"}, kIsStrided{"strided"};
constexpr FactKey kWrittenOutside{"written outside"};  // elements that are not the tensor's
// ... bytes of the heap without the tensor's, at the peak for a large tensor alone; ...
constexpr FactKey kHeapBefore{"heap before"}, kHeapPeak{"heap peak"}, kHeapAfter{"heap after"};
// ... and of printing, as it happens, and what came of it.
constexpr FactKey kWrote{"wrote"}, kFlushed{"flushed"}, kElsewhere{"characters in std::cout"};
constexpr ValueKey kMessage{"message"}, kText{"text"};

/// Makes calls on a rank, one in each step.
///
/// Tells of each call what it is (kCall, whose number is the function and whose index is the op),
/// its group, and what is listed above.
class RingCaller {
 public:
  /// Also says in the environment which rank this is, of how many: not so in every group.
  explicit RingCaller(Client& client);

  /// Ranks that are not in its group do nothing.
  void call(const RingCall& call);
  /// Calls of which only operations are told.
  void quiet_call(const RingCall& call);
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

// The scenarios.

/// The test that is charged with those of tensors that are not contiguous.
constexpr const char* kLayoutsTest = "tensors_need_not_be_contiguous";

/// "3 ranks".
std::string on_ranks(int ranks);

/// The edge cases of so many ranks; rings of two, four and eight are the ordinary ones.
EdgeCases with_ranks(EdgeCases edge_cases, int ranks);

/// A scenario whose ranks make these calls.
Scenario calling(const std::string& name, const World& world, const std::vector<RingCall>& calls,
                 const std::string& charged_to, const EdgeCases& edge_cases);

/// A scenario for each number of ranks.
std::vector<Scenario> for_ranks(std::initializer_list<int> numbers,
                                Scenario (*scenario)(int ranks));

/// What ranks do with a function of the ring, the simplest first.
std::vector<Scenario> scenarios_of(Function function);

/// With all of them, the all-reduce first.
std::vector<Scenario> all_scenarios();

/// Ranks print.
std::vector<Scenario> printing_scenarios();

/// Wrong arguments, which must be refused.
std::vector<Scenario> misuse_scenarios();

/// One call after another; what is held is counted three times.
constexpr int kCallsBetweenCounts = 20;
Scenario many_calls();

}  // namespace ddp::testing
