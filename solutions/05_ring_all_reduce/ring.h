#pragma once

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "ddp/balanced_split.h"

// What the ring's functions have in common.

namespace ddp {

/// Throws what the contract asks for; `function` is named in the message.
inline void check_arguments(const char* function, const at::Tensor& tensor,
                            const ProcessGroupPtr& group, ReduceOp op = ReduceOp::kSum) {
  TORCH_CHECK(group, function, ": the process group is null");
  TORCH_CHECK(tensor.defined(), function, ": the tensor is undefined");
  const at::ScalarType dtype = tensor.scalar_type();
  const bool floating = dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
                        dtype == at::kBFloat16;  // there are more, but they cannot be added
  TORCH_CHECK(floating || at::isIntegralType(dtype, /*includeBool=*/false), function, ": ", dtype,
              " cannot be added up; give floating point or integers");
  TORCH_CHECK(op == ReduceOp::kSum || op == ReduceOp::kAverage, function,
              ": the operation must be a sum or an average");
  TORCH_CHECK(op == ReduceOp::kSum || floating, function, ": an average of ", dtype,
              " is not defined; sum and divide instead");
}

/// The caller's tensor as one row of elements: the tensor itself where it is contiguous, else a copy
/// that has to be written back.
class FlatTensor {
 public:
  explicit FlatTensor(const at::Tensor& tensor)
      : tensor_(tensor.detach()), contiguous_(tensor_.contiguous()) {}

  at::Tensor elements() const { return contiguous_.view({-1}); }

  void write_back() const {
    if (!contiguous_.is_same(tensor_)) {
      tensor_.copy_(contiguous_);
    }
  }

 private:
  at::Tensor tensor_, contiguous_;
};

/// A row of elements, cut into one chunk for each rank, and this rank's place in the ring that the
/// chunks travel around. Upstream is where data comes from, downstream where it goes.
class Ring {
 public:
  /// Data moves from rank r to rank r + 1.
  Ring(const at::Tensor& elements, ProcessGroupPtr group)
      : elements_(elements),
        group_(std::move(group)),
        chunks_(balanced_split(elements.numel(), size())) {}

  int size() const { return group_->getSize(); }
  std::int64_t largest_chunk() const { return chunks_.front().size; }

  /// The chunk that is numbered like the rank so many hops upstream; 0: this rank's own.
  at::Tensor chunk(int hops_upstream) const {
    const Chunk& chunk = chunks_[rank_at(-hops_upstream)];
    return elements_.narrow(0, chunk.begin, chunk.size);
  }

  [[nodiscard]] WorkPtr send_on(const at::Tensor& elements) const {
    return send_async(elements, rank_at(1), group_);
  }
  [[nodiscard]] WorkPtr receive_into(const at::Tensor& elements) const {
    return recv_async(elements, rank_at(-1), group_);
  }

  /// Sends and receives at the same time. If every rank finished sending before it received, none
  /// would ever get to its recv.
  void shift(const at::Tensor& sent, const at::Tensor& received) const {
    const WorkPtr receiving = receive_into(received);
    const WorkPtr sending = send_on(sent);
    receiving->wait();
    sending->wait();
  }

 private:
  /// The rank so many hops downstream. C++'s remainder of a negative number is negative.
  int rank_at(int hops) const {
    const int remainder = (group_->getRank() + hops) % size();
    return remainder < 0 ? remainder + size() : remainder;
  }

  at::Tensor elements_;
  ProcessGroupPtr group_;
  std::vector<Chunk> chunks_;
};

}  // namespace ddp
