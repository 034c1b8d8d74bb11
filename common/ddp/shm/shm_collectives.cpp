#include <ATen/Dispatch.h>
#include <ATen/NumericUtils.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>

#include "ddp/shm/transfers.h"

namespace ddp {

namespace {

using c10d::OpType;

// How the elements of a type are combined.
struct Reduction {
  // Writes a op b; `out` may be a or b. `bytes` is a multiple of an element's size.
  void (*combine)(char* out, const char* a, const char* b, std::int64_t bytes);
  // Makes the result of that of all ranks: divides it for an average.
  void (*finish)(char* result, std::int64_t bytes, int ranks);
};

struct Least {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a || at::_isnan(b) ? b : a;  // a NaN wins
  }
};

struct Greatest {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b || at::_isnan(b) ? b : a;
  }
};

template <typename T, typename Operator>
void combine(char* out, const char* a, const char* b, std::int64_t bytes) {
  const auto count = bytes / static_cast<std::int64_t>(sizeof(T));
  std::transform(reinterpret_cast<const T*>(a), reinterpret_cast<const T*>(a) + count,
                 reinterpret_cast<const T*>(b), reinterpret_cast<T*>(out),
                 [](T x, T y) { return static_cast<T>(Operator()(x, y)); });
}

void leave(char*, std::int64_t, int) {}

template <typename T>
void divide(char* result, std::int64_t bytes, int ranks) {
  auto* elements = reinterpret_cast<T*>(result);
  const auto count = bytes / static_cast<std::int64_t>(sizeof(T));
  std::transform(elements, elements + count, elements,
                 [ranks](T sum) { return static_cast<T>(sum / static_cast<T>(ranks)); });
}

template <typename T>
Reduction of_type(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return {combine<T, std::plus<>>, leave};
    case c10d::ReduceOp::AVG:
      return {combine<T, std::plus<>>, divide<T>};
    case c10d::ReduceOp::PRODUCT:
      return {combine<T, std::multiplies<>>, leave};
    case c10d::ReduceOp::MIN:
      return {combine<T, Least>, leave};
    case c10d::ReduceOp::MAX:
      return {combine<T, Greatest>, leave};
    default:
      TORCH_CHECK(false,
                  "shared memory sums, averages, multiplies, and finds minima and maxima; "
                  "take --backend gloo for more");
  }
}

// Throws c10::Error for another operation or type.
Reduction reduction_of(at::ScalarType type, c10d::ReduceOp::RedOpType op) {
  return AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "shared memory",
                                    [&] { return of_type<scalar_t>(op); });
}

// A part of a tensor, or of a cell.
struct Piece {
  std::int64_t begin, size;  // bytes
};

// A collective, in rounds: every rank fills a cell, or leaves it as it is, and reads all of them.
class Collective : public Transfer {
 public:
  using Read = std::function<void(const Piece& piece, std::uint64_t round)>;

  // `sent` may be null.
  Collective(SharedMemory& memory, const char* sent, std::int64_t bytes, Read read)
      : memory_(memory),
        sent_(sent),
        bytes_(bytes),
        rounds_(std::max<std::int64_t>(
            (bytes + SharedMemory::kCellBytes - 1) / SharedMemory::kCellBytes, 1)),
        read_(std::move(read)) {}

  bool advance() override {
    for (bool moved = false;; moved = true) {
      const bool has_posted = post();
      const bool has_read = read();
      if (!has_posted && !has_read) {
        return moved;
      }
    }
  }

  bool done() const override { return read_rounds_ == rounds_; }
  bool owes() const override { return posted_rounds_ < rounds_; }
  bool waits_for(int rank) const override {
    const SharedMemory::Member& member = memory_.members()[rank];
    return member.posted <= memory_.me().read ||
           member.read + SharedMemory::kCells <= memory_.me().posted;
  }

 private:
  Piece piece(std::int64_t round) const {
    const std::int64_t begin = round * SharedMemory::kCellBytes;
    return {begin, std::min(bytes_ - begin, SharedMemory::kCellBytes)};
  }

  bool post() {
    std::atomic<std::uint64_t>& posted = memory_.me().posted;
    const std::uint64_t round = posted;
    const bool free = std::ranges::all_of(memory_.members(), [&](const auto& member) {
      return member.read + SharedMemory::kCells > round;
    });
    if (posted_rounds_ == rounds_ || !free) {
      return false;
    }
    const Piece next = piece(posted_rounds_++);
    if (sent_ != nullptr) {
      std::copy_n(sent_ + next.begin, next.size, memory_.cell(memory_.rank(), round));
    }
    posted.store(round + 1);
    memory_.bell().ring();
    return true;
  }

  bool read() {
    std::atomic<std::uint64_t>& read = memory_.me().read;
    const std::uint64_t round = read;
    const bool complete = std::ranges::all_of(
        memory_.members(), [&](const auto& member) { return member.posted > round; });
    if (read_rounds_ == posted_rounds_ || !complete) {
      return false;
    }
    read_(piece(read_rounds_++), round);
    read.store(round + 1);
    memory_.bell().ring();
    return true;
  }

  SharedMemory& memory_;
  const char* sent_;
  std::int64_t bytes_, rounds_;
  Read read_;
  std::int64_t posted_rounds_ = 0, read_rounds_ = 0;
};

// Combines a part of all ranks' cells, in the order of the ranks, so that all get the same bits.
void reduce_cells(const SharedMemory& memory, std::uint64_t round, const Reduction& reduction,
                  const Piece& part, char* result) {
  const auto cell = [&](int rank) { return memory.cell(rank, round) + part.begin; };
  const int ranks = static_cast<int>(memory.members().size());
  if (ranks == 1) {
    std::copy_n(cell(0), part.size, result);  // null if the tensor is empty
    return;
  }
  reduction.combine(result, cell(0), cell(1), part.size);
  for (int rank = 2; rank < ranks; ++rank) {
    reduction.combine(result, result, cell(rank), part.size);
  }
  reduction.finish(result, part.size, ranks);
}

std::unique_ptr<Transfer> make_all_reduce(const Operation& operation, SharedMemory& memory) {
  const at::Tensor tensor = the_tensor(operation.outputs, operation);
  char* bytes = bytes_of(tensor);
  const Reduction reduction = reduction_of(tensor.scalar_type(), operation.reduce_op);
  return std::make_unique<Collective>(
      memory, bytes, tensor.nbytes(),
      [&memory, bytes, reduction](const Piece& piece, std::uint64_t round) {
        reduce_cells(memory, round, reduction, {0, piece.size}, bytes + piece.begin);
      });
}

std::unique_ptr<Transfer> make_reduce_scatter(const Operation& operation, SharedMemory& memory) {
  const at::Tensor input = the_tensor(operation.inputs, operation);
  const at::Tensor output = the_tensor(operation.outputs, operation);
  const Reduction reduction = reduction_of(input.scalar_type(), operation.reduce_op);
  const auto size = static_cast<std::int64_t>(output.nbytes());
  return std::make_unique<Collective>(
      memory, bytes_of(input), input.nbytes(),
      [&memory, reduction, size, result = bytes_of(output)](const Piece& piece,
                                                            std::uint64_t round) {
        const std::int64_t mine = memory.rank() * size;
        const std::int64_t begin = std::max(mine, piece.begin);
        const std::int64_t end = std::min(mine + size, piece.begin + piece.size);
        if (begin < end) {
          reduce_cells(memory, round, reduction, {begin - piece.begin, end - begin},
                       result + begin - mine);
        }
      });
}

std::unique_ptr<Transfer> make_broadcast(const Operation& operation, SharedMemory& memory) {
  const at::Tensor tensor = the_tensor(operation.outputs, operation);
  char* bytes = bytes_of(tensor);
  const int root = operation.peer;
  const bool mine = root == memory.rank();
  return std::make_unique<Collective>(
      memory, mine ? bytes : nullptr, tensor.nbytes(),
      [&memory, bytes, root, mine](const Piece& piece, std::uint64_t round) {
        if (!mine) {
          std::copy_n(memory.cell(root, round), piece.size, bytes + piece.begin);
        }
      });
}

std::unique_ptr<Transfer> make_all_gather(const Operation& operation, SharedMemory& memory) {
  const at::Tensor input = the_tensor(operation.inputs, operation);
  const std::size_t ranks = memory.members().size();
  std::vector<char*> places;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    places.push_back(operation.type == OpType::ALLGATHER
                         ? bytes_of(operation.outputs.at(rank))
                         : bytes_of(operation.outputs.at(0)) + rank * input.nbytes());
  }
  return std::make_unique<Collective>(memory, bytes_of(input), input.nbytes(),
                                      [&memory, places](const Piece& piece, std::uint64_t round) {
                                        for (std::size_t rank = 0; rank < places.size(); ++rank) {
                                          std::copy_n(memory.cell(static_cast<int>(rank), round),
                                                      piece.size, places[rank] + piece.begin);
                                        }
                                      });
}

}  // namespace

std::unique_ptr<Transfer> make_collective(const Operation& operation, SharedMemory& memory) {
  switch (operation.type) {
    case OpType::ALLREDUCE:
      return make_all_reduce(operation, memory);
    case OpType::_REDUCE_SCATTER_BASE:
      return make_reduce_scatter(operation, memory);
    case OpType::BROADCAST:
      return make_broadcast(operation, memory);
    case OpType::ALLGATHER:
    case OpType::_ALLGATHER_BASE:
      return make_all_gather(operation, memory);
    case OpType::BARRIER:
      return std::make_unique<Collective>(memory, nullptr, 0, [](const Piece&, std::uint64_t) {});
    default:
      TORCH_CHECK(false, "there is no ", operation_name(operation.type),
                  " through shared memory; take --backend gloo");
  }
}

}  // namespace ddp
