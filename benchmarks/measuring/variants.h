#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp/gradient_synchronizer.h"
#include "ddp/models/model.h"
#include "measuring/benchmark.h"
#include "models/small_models.h"

namespace torch::optim {
class Optimizer;
}

namespace ddp {

/// One of the training methods that benchmarks compare: what it does around the parts of a step.
/// The base class does nothing: it only computes.
class Variant {
 public:
  Variant() = default;
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;
  virtual ~Variant() = default;

  virtual void before_forward() {}
  /// What the model makes of x: what `whole` does, or the same by units that the variant has divided.
  using Forward = std::function<at::Tensor(const at::Tensor& x)>;
  virtual at::Tensor forward(const Forward& whole, const at::Tensor& x) { return whole(x); }
  virtual void before_backward() {}
  /// While it lives, gradients accumulate on this rank; null for those that cannot do so.
  virtual std::unique_ptr<NoSync> no_sync() { return nullptr; }
  /// After backward: when it returns, gradients are averages over the ranks; with an optimizer
  /// (VariantOptions), and of variants that shard it, parameters are new.
  virtual void finish() {}
};

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> parameters)>;

struct VariantOptions {
  std::int64_t cap_bytes = std::int64_t{25} << 20;          // a bucket's: bucketed (sync), Reducer
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;  // of the Reducer
  bool broadcast_buffers = false;       // of the Reducer, see ReducerBaselineOptions
  bool rebuilt_from_the_start = false;  // of the Reducer, see ReducerBaselineOptions
  MakeOptimizer optimizer = {};         // empty: none, or plain SGD where the variant shards it
  std::vector<ModelUnit> units = {};    // the whole model in the order of forward: fully sharded
  int prefetch = 1;                     // of fully sharded
};

/// What a variant is made from.
struct Ingredients {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> buffers;
  ProcessGroupPtr group;
  VariantOptions options;
};

/// An entry of the table of variants.
struct VariantKind {
  const char* name = "";
  const char* stage = "";  // that implements it; empty if none does
  std::unique_ptr<Variant> (*make)(const Ingredients&) = nullptr;
  bool special = false;  // not in all_variants(): available by name only
  bool updates = false;  // uses VariantOptions::optimizer itself
};

/// Adds variants to the table, which has those of stages 01 to 03 and their baselines: for static objects.
struct MoreVariants {
  explicit MoreVariants(std::vector<VariantKind> kinds);
};

/// A variant that averages nothing.
constexpr const char* kComputeOnly = "compute only";

/// "compute only", "naive", "flat", "overlapped", "bucketed", "Reducer", "Reducer as_view". Others
/// are available by name only: "bucketed sync", which reduces its buckets only in finish(), and
/// PyTorch's "Python DDP" and "Python DDP sync", whose buffers hold no more than the cap; and what
/// MoreVariants adds.
const std::vector<std::string>& all_variants();

/// "bucketed" and those that update parameters themselves, by an optimizer that they shard: what
/// MoreVariants adds.
std::vector<std::string> variants_with_optimizer();

/// The stage that implements a variant, such as "01_naive_ddp"; empty if none does. Throws
/// c10::ValueError for an unknown name.
std::string stage_of(const std::string& variant);

/// Makes the variant of that name. Collective: it broadcasts rank 0's parameters and buffers
/// ("compute only" does not). The library of its stage must be loaded: see usable_variants().
std::unique_ptr<Variant> make_variant(const std::string& name, const Model& model,
                                      const ProcessGroupPtr& group,
                                      const VariantOptions& options = {});

/// The same for parameters without a model.
std::unique_ptr<Variant> make_variant(const std::string& name,
                                      const std::vector<at::Tensor>& parameters,
                                      const ProcessGroupPtr& group,
                                      const VariantOptions& options = {});

/// Those of `names` that can be measured here, in the same order on all ranks, with their stages'
/// libraries loaded. Collective: every variant that has code trains a toy model for one step. A
/// variant is left out, with one line on stderr, if it calls a stub there or if its stage's library
/// cannot be loaded on some rank, as after a compiler error. Throws c10::NotImplementedError, which
/// run_benchmark() turns into kUnfinished, if `names` has variants of stages and none is left.
std::vector<std::string> usable_variants(const std::vector<std::string>& names,
                                         const std::string& implementation,
                                         const DeviceContext& device_context);

/// What usable_variants() does, with another notion of what a variant of a stage lacks: `problem_of`
/// returns it in words, empty if there is nothing. Without `tells` nothing is printed.
std::vector<std::string> keep_usable(
    const std::vector<std::string>& names, const std::string& implementation, bool tells,
    const std::function<std::string(const std::string& variant)>& problem_of);

}  // namespace ddp
