#include "ddp/shm/shm_backend.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <span>
#include <thread>
#include <utility>

#include "ddp/backends/operation_backend.h"
#include "ddp/backends/worker_queue.h"
#include "ddp/launching/launch.h"
#include "ddp/ranks/bell.h"
#include "ddp/ranks/file_descriptor.h"

namespace ddp {
namespace {

using c10d::OpType;
using Clock = std::chrono::steady_clock;

// What another core does meanwhile often takes less than a sleep, which costs two switches.
constexpr auto kSpinTime = std::chrono::microseconds(30);
// After so long without news one looks whether the others still live.
constexpr auto kNap = std::chrono::milliseconds(100);

// Rank 0's new file in memory, or, on the others, that file by way of rank 0's process.
int open_file(const StorePtr& store, int rank, std::size_t bytes) {
  if (rank == 0) {
    const int file = memfd_create("ddp_lab_shm", MFD_CLOEXEC);
    TORCH_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0,
                "no shared memory for the ranks: ", std::strerror(errno));
    store->set("file", "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file));
    return file;
  }
  const std::string path = store->get_to_str("file");
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  TORCH_CHECK(file >= 0, "cannot open rank 0's shared memory, ", path, ": ", std::strerror(errno),
              ". Ranks must be of one user and one container; take --backend gloo otherwise");
  return file;
}

// The memory that the ranks of a group share. It has no name in any file system: when the last rank
// has ended, in whatever way, it is gone. Only pages in use take memory.
//
// Collectives go through cells: each rank has a few, which it fills in turn, round by round, and
// which all ranks read. Messages go through the cells of a channel, one for each pair of ranks,
// direction and tag.
class SharedMemory {
 public:
  static constexpr int kCells = 4;
  static constexpr std::int64_t kCellBytes = std::int64_t{128} << 10;
  static constexpr int kTags = 4;

  struct Cell {
    std::int64_t message_size;  // in bytes, of all cells
    alignas(64) char bytes[kCellBytes];
  };

  // A rank's place. Counts are of rounds since the group was made.
  struct Member {
    alignas(64) std::atomic<std::uint64_t> posted;  // cells that it has filled
    alignas(64) std::atomic<std::uint64_t> read;    // rounds of which it has read all cells
    std::atomic<int> process;
    Cell cells[kCells];
  };

  // From one rank to another. Counts are of cells.
  struct Channel {
    alignas(64) std::atomic<std::uint64_t> posted;
    alignas(64) std::atomic<std::uint64_t> read;
    Cell cells[kCells];
  };

  // All ranks must call it; it returns when they have. Throws c10::Error if a rank cannot open what
  // rank 0 has made.
  SharedMemory(const StorePtr& store, int rank, int world_size, std::chrono::milliseconds timeout);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  int ranks() const { return world_size_; }
  std::span<Member> members() const;
  Member& me() const { return members()[rank_]; }
  // The cell that a rank fills in a round.
  Cell& cell(int rank, std::uint64_t round) const { return members()[rank].cells[round % kCells]; }
  Channel& channel(int from, int to, int tag) const;

  // Tells all ranks that something has changed.
  void ring() const { bell().ring(); }
  // Blocks until `condition`. Throws c10::Error, which names the operation's type, after the timeout,
  // after give_up(), or if a rank has ended that is `needed`.
  void await(OpType type, const std::function<bool()>& condition,
             const std::function<bool(const Member&)>& needed) const;
  // Nothing waits any longer.
  void give_up();

 private:
  Bell& bell() const { return *reinterpret_cast<Bell*>(memory_); }

  const int rank_, world_size_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::microseconds spin_time_;
  std::atomic<bool> given_up_ = false;
  const std::size_t bytes_;
  char* memory_;  // the mapping
};

SharedMemory::SharedMemory(const StorePtr& store, int rank, int world_size,
                           std::chrono::milliseconds timeout)
    : rank_(rank),
      world_size_(world_size),
      timeout_(timeout),
      // Without a core for each rank, one that spins keeps another from what it waits for.
      spin_time_(static_cast<int>(std::thread::hardware_concurrency()) >= world_size
                     ? kSpinTime
                     : std::chrono::microseconds(0)),
      bytes_(sizeof(Channel) * (1 + world_size * world_size * kTags) +
             sizeof(Member) * world_size) {
  const FileDescriptor file(open_file(store, rank, bytes_));  // the mapping stays without it
  void* memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  TORCH_CHECK(memory != MAP_FAILED, "no address space for shared memory: ", std::strerror(errno));
  memory_ = static_cast<char*>(memory);
  me().process = getpid();
  store->set("rank " + std::to_string(rank), std::string());
  for (int each = 0; each < world_size; ++each) {
    store->get("rank " + std::to_string(each));
  }
}

SharedMemory::~SharedMemory() { munmap(memory_, bytes_); }

// In this order: the bell, the members, the channels.
std::span<SharedMemory::Member> SharedMemory::members() const {
  static_assert(sizeof(Bell) <= alignof(Member));
  return {reinterpret_cast<Member*>(memory_ + alignof(Member)),
          static_cast<std::size_t>(world_size_)};
}

SharedMemory::Channel& SharedMemory::channel(int from, int to, int tag) const {
  auto* channels = reinterpret_cast<Channel*>(members().data() + world_size_);
  return channels[(from * world_size_ + to) * kTags + tag];
}

void SharedMemory::await(OpType type, const std::function<bool()>& condition,
                         const std::function<bool(const Member&)>& needed) const {
  const auto deadline = Clock::now() + timeout_;
  for (std::uint32_t seen = bell().rings(); !condition(); seen = bell().rings()) {
    TORCH_CHECK(!given_up_, "rank ", rank_, " has left its group without waiting for its ",
                operation_name(type));
    TORCH_CHECK(Clock::now() < deadline, "rank ", rank_, " has waited too long for its ",
                operation_name(type), " through shared memory");
    for (const auto end = Clock::now() + spin_time_;
         bell().rings() == seen && Clock::now() < end;) {
    }
    if (bell().rings() == seen) {
      bell().sleep(seen, kNap);
    }
    for (int rank = 0; rank < world_size_ && bell().rings() == seen; ++rank) {
      const Member& member = members()[rank];
      const bool has_ended = needed(member) && kill(member.process, 0) != 0 && errno == ESRCH;
      TORCH_CHECK(!has_ended || condition(), "rank ", rank, " has ended, and rank ", rank_, "'s ",
                  operation_name(type), " needs it");
    }
  }
}

void SharedMemory::give_up() {
  given_up_ = true;
  ring();
}

constexpr auto kCellBytes = SharedMemory::kCellBytes;

void combine_into(at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                  c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::AVG:
      at::add_out(result, a, b);
      break;
    case c10d::ReduceOp::PRODUCT:
      at::mul_out(result, a, b);
      break;
    case c10d::ReduceOp::MIN:
      at::minimum_out(result, a, b);
      break;
    case c10d::ReduceOp::MAX:
      at::maximum_out(result, a, b);
      break;
    default:
      TORCH_CHECK(false,
                  "shared memory sums, averages, multiplies, and finds minima and maxima; "
                  "take --backend gloo for more");
  }
}

// A tensor's bytes.
struct Memory {
  char* bytes;
  std::int64_t size;
};

// A part of it, as large as a cell or smaller.
struct Piece {
  std::int64_t begin, size;
};

// Of so many bytes; there is always one, which may be empty.
std::uint64_t pieces_of(std::int64_t bytes) {
  return std::max<std::int64_t>((bytes + kCellBytes - 1) / kCellBytes, 1);
}

Piece piece(std::int64_t bytes, std::uint64_t number) {
  const std::int64_t begin = static_cast<std::int64_t>(number) * kCellBytes;
  return {begin, std::min(bytes - begin, kCellBytes)};
}

char* bytes_of(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

// Of the only tensor of a list. Throws c10::Error if there are more, or it is not dense and on the CPU.
Memory the_tensor(const std::vector<at::Tensor>& tensors, const Operation& operation) {
  TORCH_CHECK(tensors.size() == 1, "shared memory takes one tensor for each ",
              operation_name(operation.type), ", not ", tensors.size());
  const at::Tensor& tensor = tensors.front();
  TORCH_CHECK(tensor.is_cpu() && tensor.is_non_overlapping_and_dense(),
              "shared memory moves dense CPU tensors, not ", tensor.toString(), " of strides ",
              tensor.strides());
  return {bytes_of(tensor), static_cast<std::int64_t>(tensor.nbytes())};
}

// Combines a part of all ranks' cells, in the order of the ranks, so that all get the same bits.
void reduce_cells(const SharedMemory& memory, std::uint64_t round, const Operation& operation,
                  const Piece& part, char* result) {
  const at::ScalarType type = operation.outputs[0].scalar_type();
  const auto elements = [&](char* bytes) {
    return at::from_blob(bytes, {part.size / static_cast<std::int64_t>(elementSize(type))}, type);
  };
  const auto cell = [&](int rank) { return elements(memory.cell(rank, round).bytes + part.begin); };
  at::Tensor sum = elements(result);
  if (memory.ranks() == 1) {
    sum.copy_(cell(0));
  }
  for (int rank = 1; rank < memory.ranks(); ++rank) {
    combine_into(sum, rank == 1 ? cell(0) : sum, cell(rank), operation.reduce_op);
  }
  if (operation.reduce_op == c10d::ReduceOp::AVG) {
    sum.div_(memory.ranks());
  }
}

class ShmBackend : public OperationBackend {
 public:
  ShmBackend(const StorePtr& store, int rank, int world_size, std::chrono::milliseconds timeout)
      : OperationBackend(rank, world_size), memory_(store, rank, world_size, timeout) {}
  ~ShmBackend() override { memory_.give_up(); }

  const std::string getBackendName() const override { return "shm"; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return memory_.me().posted; }

  WorkPtr run(Operation operation) override {
    return queues_.submit(std::move(operation), [this](Operation& operation) { move(operation); });
  }

 private:
  using Read = std::function<void(const Piece& piece, std::uint64_t round)>;

  void move(const Operation& operation) {
    switch (operation.type) {
      case OpType::SEND:
      case OpType::RECV:
        return run_message(operation);
      case OpType::ALLREDUCE:
        return run_all_reduce(operation);
      case OpType::_REDUCE_SCATTER_BASE:
        return run_reduce_scatter(operation);
      case OpType::BROADCAST:
        return run_broadcast(operation);
      case OpType::ALLGATHER:
      case OpType::_ALLGATHER_BASE:
        return run_all_gather(operation);
      case OpType::BARRIER:
        return exchange(operation.type, {nullptr, 0}, [](const Piece&, std::uint64_t) {});
      default:
        TORCH_CHECK(false, "there is no ", operation_name(operation.type),
                    " through shared memory; take --backend gloo");
    }
  }

  // What all collectives do: every rank fills a cell with each piece of what it sends, or leaves it as
  // it is if it sends nothing, and reads those of all ranks. A rank is ahead of the slowest reader by
  // at most as many cells as it has.
  void exchange(OpType type, const Memory& sent, const Read& read) {
    SharedMemory::Member& me = memory_.me();
    const std::uint64_t begin = me.read;
    const std::uint64_t end = begin + pieces_of(sent.size);
    const auto may_post = [&](const SharedMemory::Member& member) {
      return me.posted < end && me.posted < member.read + SharedMemory::kCells;
    };
    const auto may_read = [&](const SharedMemory::Member& member) {
      return me.read < member.posted;
    };
    const auto all = [&](const auto& holds) {
      return std::ranges::all_of(memory_.members(), holds);
    };
    while (me.read < end) {
      memory_.await(
          type, [&] { return all(may_post) || all(may_read); },
          [&](const SharedMemory::Member& member) {
            return !may_read(member) || (me.posted < end && !may_post(member));
          });
      if (const std::uint64_t round = me.posted; all(may_post)) {
        const Piece next = piece(sent.size, round - begin);
        if (sent.bytes != nullptr) {
          std::copy_n(sent.bytes + next.begin, next.size, memory_.cell(rank_, round).bytes);
        }
        ++me.posted;
      } else {
        read(piece(sent.size, me.read - begin), me.read);
        ++me.read;
      }
      memory_.ring();
    }
  }

  void run_all_reduce(const Operation& operation) {
    const Memory tensor = the_tensor(operation.outputs, operation);
    exchange(operation.type, tensor, [&](const Piece& piece, std::uint64_t round) {
      reduce_cells(memory_, round, operation, {0, piece.size}, tensor.bytes + piece.begin);
    });
  }

  void run_reduce_scatter(const Operation& operation) {
    const Memory input = the_tensor(operation.inputs, operation);
    const Memory output = the_tensor(operation.outputs, operation);
    const std::int64_t mine = rank_ * output.size;
    exchange(operation.type, input, [&](const Piece& piece, std::uint64_t round) {
      const std::int64_t begin = std::max(mine, piece.begin);
      const std::int64_t end = std::min(mine + output.size, piece.begin + piece.size);
      if (begin < end) {
        reduce_cells(memory_, round, operation, {begin - piece.begin, end - begin},
                     output.bytes + begin - mine);
      }
    });
  }

  void run_broadcast(const Operation& operation) {
    const Memory tensor = the_tensor(operation.outputs, operation);
    const int root = operation.peer;
    const Memory sent{root == rank_ ? tensor.bytes : nullptr, tensor.size};
    exchange(operation.type, sent, [&](const Piece& piece, std::uint64_t round) {
      if (root != rank_) {
        std::copy_n(memory_.cell(root, round).bytes, piece.size, tensor.bytes + piece.begin);
      }
    });
  }

  void run_all_gather(const Operation& operation) {
    const Memory input = the_tensor(operation.inputs, operation);
    const auto& outputs = operation.outputs;
    const auto place_of = [&](int rank) {
      return operation.type == OpType::ALLGATHER ? bytes_of(outputs.at(rank))
                                                 : bytes_of(outputs.at(0)) + rank * input.size;
    };
    exchange(operation.type, input, [&](const Piece& piece, std::uint64_t round) {
      for (int rank = 0; rank < size_; ++rank) {
        std::copy_n(memory_.cell(rank, round).bytes, piece.size, place_of(rank) + piece.begin);
      }
    });
  }

  // The two ends fill and read the cells of their channel in turn.
  void run_message(const Operation& operation) {
    const int peer = operation.peer;
    TORCH_CHECK(operation.tag >= 0 && operation.tag < SharedMemory::kTags,
                "shared memory has the tags 0 to ", SharedMemory::kTags - 1, ", not ",
                operation.tag);
    const bool sends = operation.type == OpType::SEND;
    const Memory message = the_tensor(sends ? operation.inputs : operation.outputs, operation);
    SharedMemory::Channel& channel = sends ? memory_.channel(rank_, peer, operation.tag)
                                           : memory_.channel(peer, rank_, operation.tag);
    std::atomic<std::uint64_t>& done = sends ? channel.posted : channel.read;
    for (std::uint64_t number = 0; number < pieces_of(message.size); ++number) {
      memory_.await(
          operation.type,
          [&] {
            return sends ? channel.posted < channel.read + SharedMemory::kCells
                         : channel.read < channel.posted;
          },
          [&](const SharedMemory::Member& member) { return &member == &memory_.members()[peer]; });
      const Piece next = piece(message.size, number);
      SharedMemory::Cell& cell = channel.cells[done % SharedMemory::kCells];
      if (sends) {
        cell.message_size = message.size;
        std::copy_n(message.bytes + next.begin, next.size, cell.bytes);
      } else {
        TORCH_CHECK(cell.message_size == message.size, "rank ", peer, " sent ", cell.message_size,
                    " bytes, and ", message.size, " are expected");
        std::copy_n(cell.bytes, next.size, message.bytes + next.begin);
      }
      ++done;
      memory_.ring();
    }
  }

  SharedMemory memory_;
  OperationQueues queues_;  // last: its threads use the memory
};

}  // namespace

BackendPtr make_shm_backend(const RankContext& context, std::chrono::milliseconds timeout) {
  TORCH_CHECK(placement_of(context).one_machine,
              "shared memory joins ranks of one machine, and these run on several; take --backend "
              "gloo");
  BackendPtr backend = c10::make_intrusive<ShmBackend>(store_for_next_backend(context),
                                                       context.rank, context.world_size, timeout);
  keep_to_own_cores(context.rank, context.world_size);
  return backend;
}

}  // namespace ddp
