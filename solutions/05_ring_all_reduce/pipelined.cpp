#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "ddp/balanced_split.h"
#include "ring.h"

namespace ddp {
namespace {

/// One direction of the pipelined ring. Steps 1 ... N-1 reduce and steps N ... 2(N-1) gather. In
/// both phases step s passes on chunk r - s and receives chunk r - s - 1. All chunks are cut into
/// the same number of segments, and each segment is passed on as soon as it has arrived, while those
/// behind it are still on their way. Segments are numbered in the order in which they are received:
/// 0 ... length() - 1, over all steps.
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

  /// How many segments this rank receives in all. To start, it posts window() recvs and sends the
  /// segments() of its first chunk.
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
    sending_[i - length() / 2]->wait();  // N-1 steps ago, from the place that is now received into
    receiving_[i] = ring_.receive_into(segment(i, step + 1));
  }

  /// Waits for segment i, adds this rank's part in the reducing phase, and passes it on.
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
      receive(i + window_);  // before sending: the neighbour waits for this recv
    }
    if (i + segments_ < length()) {
      sending_[i + segments_] = ring_.send_on(mine);
    }
  }

  /// Waits for the sends of the second half; receive() has waited for those of the first.
  void finish() {
    for (std::int64_t i = length() / 2; i < length(); ++i) {
      sending_[i]->wait();
    }
  }

 private:
  /// Recvs that are posted ahead, so that no sender has to wait for one.
  static constexpr std::int64_t kWindow = 4;

  std::int64_t step_of(std::int64_t i) const { return 1 + i / segments_; }

  /// Where segment i is in the chunk so many hops upstream.
  at::Tensor segment(std::int64_t i, std::int64_t hops_upstream) const {
    const at::Tensor chunk = ring_.chunk(static_cast<int>(hops_upstream));
    const std::int64_t most = incoming_.size(1);
    const std::int64_t begin = std::min(i % segments_ * most, chunk.numel());
    return chunk.narrow(0, begin, std::min(most, chunk.numel() - begin));
  }

  /// Where segment i arrives in the reducing phase, before it is added.
  at::Tensor slot(std::int64_t i) const {
    return incoming_[i % window_].narrow(0, 0, segment(i, step_of(i) + 1).numel());
  }

  Ring ring_;
  ReduceOp op_;
  std::int64_t segments_;                     // of each chunk
  std::int64_t window_;                       // recvs posted ahead; at most a chunk's segments
  at::Tensor incoming_;                       // [window_, elements of the largest segment]
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

/// The row in two halves that travel in opposite directions, so that every link is used both ways.
/// Two ranks share a single link, which one direction already uses both ways.
std::vector<Pipeline> pipelines_of(const at::Tensor& elements, const ProcessGroupPtr& group,
                                   const PipelinedRingOptions& options) {
  const int directions = group->getSize() > 2 ? 2 : 1;
  std::vector<Pipeline> pipelines;
  std::int64_t segments = 0;  // the same in both halves; the first is the larger one
  for (const Chunk& part : balanced_split(elements.numel(), directions)) {
    const at::Tensor half = elements.narrow(0, part.begin, part.size);
    Ring ring(half, group, pipelines.empty() ? 1 : -1);
    segments = pipelines.empty() ? segments_of(ring.largest_chunk(), half, options) : segments;
    pipelines.emplace_back(std::move(ring), half, segments, options.op);
  }
  return pipelines;
}

}  // namespace

void pipelined_ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group,
                               const PipelinedRingOptions& options) {
  check_arguments("pipelined_ring_all_reduce", tensor, group, options.op);
  TORCH_CHECK(options.segment_bytes > 0, "pipelined_ring_all_reduce: segment_bytes is ",
              options.segment_bytes, ", but must be greater than 0");
  const at::NoGradGuard no_grad;
  const FlatTensor flat(tensor);
  std::vector<Pipeline> pipelines = pipelines_of(flat.elements(), group, options);
  // The two directions take turns, in the same order on every rank.
  const auto for_each_direction = [&](std::int64_t count, const auto& call) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (Pipeline& pipeline : pipelines) {
        call(pipeline, i);
      }
    }
  };
  const Pipeline& any = pipelines.front();  // both have the same number of segments
  for_each_direction(any.window(), [](Pipeline& pipeline, std::int64_t i) { pipeline.receive(i); });
  for_each_direction(any.segments(),
                     [](Pipeline& pipeline, std::int64_t i) { pipeline.send_own(i); });
  for_each_direction(any.length(), [](Pipeline& pipeline, std::int64_t i) { pipeline.advance(i); });
  for (Pipeline& pipeline : pipelines) {
    pipeline.finish();
  }
  flat.write_back();
}

}  // namespace ddp
