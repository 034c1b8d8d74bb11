// Correct, and unusual: blocking messages only; in each step a thread sends while the caller
// receives. Half and bfloat16 are added in float32, a few elements at a time; the average is divided
// by whoever sends a completed chunk first; a rank prints from a thread, too.
#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <ostream>
#include <thread>
#include <utility>

#include "05_ring_all_reduce/ring_all_reduce.h"
#include "ddp/balanced_split.h"

namespace ddp {
namespace {

/// Runs a function on a thread of its own; what it throws comes out of join().
class Helper {
 public:
  explicit Helper(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          try {
            work();
          } catch (...) {
            error_ = std::current_exception();
          }
        }) {}
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  void join() {
    thread_.join();
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

 private:
  std::exception_ptr error_;
  std::thread thread_;
};

class Circle {
 public:
  Circle(at::Tensor row, ProcessGroupPtr group)
      : row_(std::move(row)),
        group_(std::move(group)),
        size_(group_->getSize()),
        chunks_(balanced_split(row_.numel(), size_)) {}

  int size() const { return size_; }
  int rank() const { return group_->getRank(); }
  at::Tensor chunk(int number) const {
    const Chunk& chunk = chunks_[(number + 2 * size_) % size_];
    return row_.narrow(0, chunk.begin, chunk.size);
  }
  void turn(const at::Tensor& out, const at::Tensor& in) const {
    Helper sender([&] { send(out, (rank() + 1) % size_, group_); });
    recv(in, (rank() + size_ - 1) % size_, group_);
    sender.join();
  }

 private:
  at::Tensor row_;
  ProcessGroupPtr group_;
  int size_;
  std::vector<Chunk> chunks_;
};

void add_to(const at::Tensor& sum, const at::Tensor& next) {
  constexpr std::int64_t kPart = 1'024;
  for (std::int64_t begin = 0; begin < sum.numel(); begin += kPart) {
    const std::int64_t size = std::min(kPart, sum.numel() - begin);
    const at::Tensor part = sum.narrow(0, begin, size);
    const bool narrow = sum.element_size() == 2 && sum.is_floating_point();
    part.copy_(narrow ? part.to(at::kFloat).add_(next.narrow(0, begin, size))
                      : part.add(next.narrow(0, begin, size)));
  }
}

void reduce(const Circle& circle, ReduceOp op) {
  at::Tensor incoming;
  for (int chunk = circle.rank() - 1; chunk > circle.rank() - circle.size(); --chunk) {
    const at::Tensor sum = circle.chunk(chunk - 1);
    incoming.reset();  // free the old one before allocating the new one
    incoming = at::empty_like(sum);
    circle.turn(circle.chunk(chunk), incoming);
    add_to(sum, incoming);
  }
  if (op == ReduceOp::kAverage) {
    circle.chunk(circle.rank()).div_(circle.size());
  }
}

void gather(const Circle& circle) {
  for (int chunk = circle.rank(); chunk > circle.rank() - circle.size() + 1; --chunk) {
    circle.turn(circle.chunk(chunk), circle.chunk(chunk - 1));
  }
}

void check(const at::Tensor& tensor, const ProcessGroupPtr& group, ReduceOp op) {
  TORCH_CHECK(group, "no group");
  TORCH_CHECK(tensor.defined(), "no tensor");
  const at::ScalarType type = tensor.scalar_type();
  const bool real =
      type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
  TORCH_CHECK(real || at::isIntegralType(type, /*includeBool=*/false), "not ", type);
  TORCH_CHECK(op == ReduceOp::kSum || (op == ReduceOp::kAverage && real), "not this op");
}

template <typename Body>
void in_one_row(const at::Tensor& tensor, const ProcessGroupPtr& group, const Body& body) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = tensor.detach();
  const at::Tensor row = own.contiguous();
  body(Circle(row.view({-1}), group));
  if (!row.is_same(own)) {
    own.copy_(row);
  }
}

}  // namespace

void print_in_rank_order(std::string_view message, std::ostream& out,
                         const ProcessGroupPtr& group) {
  TORCH_CHECK(group, "no group");
  Helper printer([&] {
    const int rank = group->getRank();
    if (rank > 0) {
      recv(at::zeros({1}), rank - 1, group);
    }
    (out << message << '\n').flush();
    if (rank + 1 < group->getSize()) {
      send(at::zeros({1}), rank + 1, group);
    }
  });
  printer.join();
}

void ring_reduce_scatter(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check(tensor, group, op);
  in_one_row(tensor, group, [&](const Circle& circle) { reduce(circle, op); });
}

void ring_all_gather(at::Tensor tensor, const ProcessGroupPtr& group) {
  check(tensor, group, ReduceOp::kSum);
  in_one_row(tensor, group, gather);
}

void ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group, ReduceOp op) {
  check(tensor, group, op);
  in_one_row(tensor, group, [&](const Circle& circle) {
    reduce(circle, op);
    gather(circle);
  });
}

void pipelined_ring_all_reduce(at::Tensor tensor, const ProcessGroupPtr& group,
                               const PipelinedRingOptions& options) {
  TORCH_CHECK(options.segment_bytes > 0, "no bytes in a segment");
  ring_all_reduce(tensor, group, options.op);
}

}  // namespace ddp
