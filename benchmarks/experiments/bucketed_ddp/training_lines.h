#pragma once

#include <string>

#include "harness/result.h"

namespace ddp {

// The labels of bucketed_ddp's series; each series has one of kIterationParts and one rank.
constexpr const char* kBatchLabel = "local_bs";
constexpr const char* kLengthLabel = "seq_len";
constexpr const char* kVariantLabel = "variant";
constexpr const char* kMegabytesLabel = "bucket_size_mb";  // as published; only of "bucketed"
constexpr const char* kCapLabel = "cap_bytes";             // here; only of "bucketed"
constexpr const char* kPartLabel = "part";

/// The lines of the published experiment, for each batch, sequence length and bucket size:
///
///     Training DDP model, local_bs: 2, seq_len: 128, bucket_size_mb: 1
///     total time train: tensor([0.7293], device='cuda:0')
///     total time grad all reduce: tensor([0.2165], device='cuda:0')
///     ratio grad all reduce to train time: tensor([0.2969], device='cuda:0')
///
/// in seconds: means over the iterations, the maximum over all ranks. If a cap is not of the
/// published size, the first line gives both. Then follow similar lines for the variants without
/// buckets, with their names. The Reducer waits inside backward: its lines give, instead of the
/// all-reduce, the time of its backward beyond that of "compute only".
std::string training_lines(const Result& result);

}  // namespace ddp
