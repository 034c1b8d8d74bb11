#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp {

/// Which parameters share a bucket: indices into `parameters`, the buckets in the order in which a
/// backward through reversed `parameters` fills them. The plan of stage 03 (assign_buckets() in
/// 03_bucketed_ddp/bucketed_ddp.h has its rules), for those who build on it. A bucket is closed once it
/// holds at least `cap_bytes` and has one dtype and device; frozen parameters are in none, tied ones,
/// which are listed several times, count at their smallest index.
///
/// Throws c10::Error for cap_bytes <= 0, an empty list, an undefined tensor or one that is not a leaf
/// (the message names its index).
std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<at::Tensor>& parameters,
                                                   std::int64_t cap_bytes);

}  // namespace ddp
