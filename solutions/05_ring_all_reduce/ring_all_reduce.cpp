#include "05_ring_all_reduce/ring_all_reduce.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <ostream>
#include <utility>
#include <vector>

#include "ddp/balanced_split.h"

namespace ddp {
namespace {

void check_arguments(const char* function, const at::Tensor& tensor, const ProcessGroupPtr& group,
                     ReduceOp op = ReduceOp::kSum) {
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

/// The caller's tensor as one row of elements: itself where it is contiguous, else a copy, to be
/// written back.
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

/// A row of elements in chunks, one for each rank, and this rank's place in the ring that they
/// travel round.
class Ring {
 public:
  /// Data moves from rank r to rank r + direction, which is 1 or -1.
  Ring(const at::Tensor& elements, ProcessGroupPtr group, int direction = 1)
      : elements_(elements),
        group_(std::move(group)),
        direction_(direction),
        chunks_(balanced_split(elements.numel(), size())) {}

  int size() const { return group_->getSize(); }
  std::int64_t largest_chunk() const { return chunks_.front().size; }

  /// The chunk with the number of the rank that is so many places back, where data comes from.
  at::Tensor chunk(int places_back) const {
    const Chunk& chunk = chunks_[rank_at(-places_back)];
    return elements_.narrow(0, chunk.begin, chunk.size);
  }

  [[nodiscard]] WorkPtr send_on(const at::Tensor& elements) const {
    return send_async(elements, rank_at(1), group_, tag());
  }
  [[nodiscard]] WorkPtr receive_into(const at::Tensor& elements) const {
    return recv_async(elements, rank_at(-1), group_, tag());
  }

  /// Sends on while it receives: where everybody sends first and receives afterwards, nobody would
  /// ever receive.
  void shift(const at::Tensor& sent, const at::Tensor& received) const {
    const WorkPtr receiving = receive_into(received);
    const WorkPtr sending = send_on(sent);
    receiving->wait();
    sending->wait();
  }

 private:
  /// Who is so many places on from this rank. C++'s remainder of a negative number is negative.
  int rank_at(int places_on) const {
    const int remainder = (group_->getRank() + direction_ * places_on) % size();
    return remainder < 0 ? remainder + size() : remainder;
  }

  /// With two ranks both directions lead to the same neighbour; tags keep them apart.
  int tag() const { return direction_ > 0 ? 0 : 1; }

  at::Tensor elements_;
  ProcessGroupPtr group_;
  int direction_;
  std::vector<Chunk> chunks_;
};

/// One direction of the pipelined ring. Steps 1 ... N-1 reduce and steps N ... 2(N-1) gather: step
/// s passes on chunk r - s and receives chunk r - s - 1, in the one phase as in the other. Each
/// chunk is cut into as many segments, and a segment that has come goes on at once, while those
/// behind it are still on their way.
class Pipeline {
 public:
  Pipeline(Ring ring, const at::Tensor& elements, std::int64_t segments, ReduceOp op)
      : ring_(std::move(ring)),
        op_(op),
        segments_(segments),
        window_(std::min(kWindow, segments)),
        incoming_(at::empty({window_, (ring_.largest_chunk() + segments - 1) / segments},
                            elements.options())),
        sending_(2 * (ring_.size() - 1) * segments),
        receiving_(sending_.size()) {}

  /// How many segments this rank receives: first of all it posts window() recvs, then it sends the
  /// segments() that it has from the start.
  std::int64_t length() const { return static_cast<std::int64_t>(receiving_.size()); }
  std::int64_t window() const { return std::min(window_, length()); }
  std::int64_t segments() const { return std::min(segments_, length()); }

  void send_own(std::int64_t i) { sending_[i] = ring_.send_on(segment(i, 1)); }

  void receive(std::int64_t i) {
    const std::int64_t step = step_of(i);
    if (step < ring_.size()) {
      receiving_[i] = ring_.receive_into(slot(i));
      return;
    }
    sending_[i - length() / 2]->wait();  // N-1 steps ago it left from the place where this comes in
    receiving_[i] = ring_.receive_into(segment(i, step + 1));
  }

  /// Waits for segment i of all that come, adds to it or keeps it, and passes it on.
  void advance(std::int64_t i) {
    const std::int64_t step = step_of(i);
    const at::Tensor mine = segment(i, step + 1);
    receiving_[i]->wait();
    if (step < ring_.size()) {
      mine.add_(slot(i));
    }
    if (step == ring_.size() - 1 && op_ == ReduceOp::kAverage) {
      mine.div_(ring_.size());
    }
    if (i + window_ < length()) {
      receive(i + window_);  // first: the word to the sender would come behind a segment
    }
    if (i + segments_ < length()) {
      sending_[i + segments_] = ring_.send_on(mine);
    }
  }

  /// Waits for what was sent in the second half; receive() has waited for the first.
  void finish() {
    for (std::int64_t i = length() / 2; i < length(); ++i) {
      sending_[i]->wait();
    }
  }

 private:
  /// Receives that are posted ahead, so that what comes goes straight to its place.
  static constexpr std::int64_t kWindow = 4;

  std::int64_t step_of(std::int64_t i) const { return 1 + i / segments_; }

  at::Tensor segment(std::int64_t i, std::int64_t places_back) const {
    const at::Tensor chunk = ring_.chunk(static_cast<int>(places_back));
    const std::int64_t most = incoming_.size(1);
    const std::int64_t begin = std::min(i % segments_ * most, chunk.numel());
    return chunk.narrow(0, begin, std::min(most, chunk.numel() - begin));
  }

  /// Where segment i arrives while it is still to be added.
  at::Tensor slot(std::int64_t i) const {
    return incoming_[i % window_].narrow(0, 0, segment(i, step_of(i) + 1).numel());
  }

  Ring ring_;
  ReduceOp op_;
  std::int64_t segments_;  // of each chunk
  std::int64_t window_;    // receives under way; never those of the next step but one
  at::Tensor incoming_;    // [window_, elements of the largest segment]
  std::vector<WorkPtr> sending_, receiving_;  // by step, then by segment
};

/// How many segments each chunk has, so that none is larger than options.segment_bytes, or than one
/// element.
std::int64_t segments_of(std::int64_t largest_chunk, const at::Tensor& elements,
                         const PipelinedRingOptions& options) {
  const std::int64_t one = 1;
  const std::int64_t most = std::max(options.segment_bytes / elements.element_size(), one);
  return std::max((largest_chunk + most - 1) / most, one);
}

/// The row in two halves that go round in opposite directions, so that both ways of every link are
/// used. Two ranks have one link only, and use both of its ways already.
std::vector<Pipeline> pipelines_of(const at::Tensor& elements, const ProcessGroupPtr& group,
                                   const PipelinedRingOptions& options) {
  const int directions = group->getSize() > 2 ? 2 : 1;
  std::vector<Pipeline> pipelines;
  std::int64_t segments = 0;  // by the first half, which is the larger one
  for (const Chunk& part : balanced_split(elements.numel(), directions)) {
    const at::Tensor half = elements.narrow(0, part.begin, part.size);
    Ring ring(half, group, pipelines.empty() ? 1 : -1);
    segments = pipelines.empty() ? segments_of(ring.largest_chunk(), half, options) : segments;
    pipelines.emplace_back(std::move(ring), half, segments, options.op);
  }
  return pipelines;
}

}  // namespace

void print_in_rank_order(std::string_view message, std::ostream& out,
                         const ProcessGroupPtr& group) {
  TORCH_CHECK(group, "print_in_rank_order: the process group is null");
  const int rank = group->getRank();
  const at::Tensor turn = at::zeros({1});  // its content says nothing, its arrival everything
  if (rank > 0) {
    recv(turn, rank - 1, group);
  }
  out << message << '\n' << std::flush;
  if (rank + 1 < group->getSize()) {
    send(turn, rank + 1, group);
  }
}

void ring_reduce_scatter(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check_arguments("ring_reduce_scatter", tensor, group, op);
  const at::NoGradGuard no_grad;
  const FlatTensor flat(tensor);
  const Ring ring(flat.elements(), group);
  const int size = ring.size();
  const at::Tensor incoming = at::empty({size > 1 ? ring.largest_chunk() : 0}, tensor.options());
  // In step s rank r passes on chunk r - s, to which s ranks have added by then. What it receives
  // in the last step, and completes, is chunk r - N: its own.
  for (int step = 1; step < size; ++step) {
    const at::Tensor sum = ring.chunk(step + 1);
    const at::Tensor received = incoming.narrow(0, 0, sum.numel());
    ring.shift(ring.chunk(step), received);
    sum.add_(received);
  }
  if (op == ReduceOp::kAverage) {
    ring.chunk(0).div_(size);
  }
  flat.write_back();
}

void ring_all_gather(at::Tensor tensor, const ProcessGroupPtr& group) {
  check_arguments("ring_all_gather", tensor, group);
  const at::NoGradGuard no_grad;
  const FlatTensor flat(tensor);
  const Ring ring(flat.elements(), group);
  // Each step passes on what came in the step before; the first, this rank's own.
  for (int step = 0; step + 1 < ring.size(); ++step) {
    ring.shift(ring.chunk(step), ring.chunk(step + 1));
  }
  flat.write_back();
}

void ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check_arguments("ring_all_reduce", tensor, group, op);
  const at::NoGradGuard no_grad;
  const FlatTensor flat(tensor);
  ring_reduce_scatter(flat.elements(), group, op);
  ring_all_gather(flat.elements(), group);
  flat.write_back();
}

void pipelined_ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group,
                               const PipelinedRingOptions& options) {
  check_arguments("pipelined_ring_all_reduce", tensor, group, options.op);
  TORCH_CHECK(options.segment_bytes > 0, "pipelined_ring_all_reduce: segment_bytes is ",
              options.segment_bytes, ", but must be greater than 0");
  const at::NoGradGuard no_grad;
  const FlatTensor flat(tensor);
  std::vector<Pipeline> pipelines = pipelines_of(flat.elements(), group, options);
  // Messages of both directions have the same order on every rank.
  const auto by_turns = [&](std::int64_t count, const auto& call) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (Pipeline& pipeline : pipelines) {
        call(pipeline, i);
      }
    }
  };
  const Pipeline& any = pipelines.front();
  by_turns(any.window(), [](Pipeline& pipeline, std::int64_t i) { pipeline.receive(i); });
  by_turns(any.segments(), [](Pipeline& pipeline, std::int64_t i) { pipeline.send_own(i); });
  by_turns(any.length(), [](Pipeline& pipeline, std::int64_t i) { pipeline.advance(i); });
  for (Pipeline& pipeline : pipelines) {
    pipeline.finish();
  }
  flat.write_back();
}

}  // namespace ddp
