#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/model.h"
#include "harness/benchmark.h"

namespace ddp {

/// One of the ways of training that benchmarks compare: what it does around the parts of a step.
/// The base class does nothing, which is computing alone.
class Variant {
 public:
  Variant() = default;
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;
  virtual ~Variant() = default;

  virtual void before_forward() {}
  virtual void before_backward() {}
  /// After backward: when it returns, gradients are averages.
  virtual void finish() {}
};

struct VariantOptions {
  std::int64_t cap_bytes = std::int64_t{25} << 20;          // a bucket's: bucketed (sync), Reducer
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;  // of the Reducer
};

/// A variant that averages nothing.
constexpr const char* kComputeOnly = "compute only";

/// "compute only", "naive", "flat", "overlapped", "bucketed", "Reducer", "Reducer as_view". There
/// is one more, "bucketed sync", for who asks for it: buckets that are reduced in finish() alone.
const std::vector<std::string>& all_variants();

/// The stage whose code a variant is, such as "01_naive_ddp"; empty if it is none's. Throws
/// c10::ValueError for an unknown name.
std::string stage_of(const std::string& variant);

/// Makes the variant of that name. Collective: it broadcasts rank 0's parameters and buffers
/// ("compute only" does not). The library of its stage must be loaded: see usable_variants().
std::unique_ptr<Variant> make_variant(const std::string& name, const Model& model,
                                      const ProcessGroupPtr& group,
                                      const VariantOptions& options = {});

/// Those of `names` that can be measured here, in the same order on all ranks, with their stages'
/// libraries loaded. Collective: every variant that has code trains a toy for one step. Left out,
/// with one line on stderr, is whatever meets a stub there, or whose stage's library cannot be
/// loaded on some rank, as after a compiler error. Throws c10::NotImplementedError, which
/// run_benchmark() turns into kUnfinished, if stages' variants are among `names` and none is left.
std::vector<std::string> usable_variants(const std::vector<std::string>& names,
                                         const std::string& implementation,
                                         const DeviceContext& device_context);

}  // namespace ddp
