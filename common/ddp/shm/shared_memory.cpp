#include "ddp/shm/shared_memory.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "ddp/ranks/file_descriptor.h"

namespace ddp {
namespace {

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

}  // namespace

SharedMemory::SharedMemory(const StorePtr& store, int rank, int world_size)
    : rank_(rank),
      world_size_(world_size),
      bytes_(sizeof(Channel) * (1 + world_size * world_size * kTags) +
             world_size * (sizeof(Member) + kCells * kCellBytes)) {
  const FileDescriptor file(open_file(store, rank, bytes_));  // the mapping stays without it
  void* memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  TORCH_CHECK(memory != MAP_FAILED, "no address space for shared memory: ", std::strerror(errno));
  memory_ = static_cast<char*>(memory);
  me().process = getpid();
  store->set("rank " + std::to_string(rank), std::string());
  std::vector<std::string> all;
  all.reserve(world_size);
  for (int each = 0; each < world_size; ++each) {
    all.push_back("rank " + std::to_string(each));
  }
  store->wait(all);
}

SharedMemory::~SharedMemory() { munmap(memory_, bytes_); }

// In this order: the bell and the members, the cells, the channels.
std::span<SharedMemory::Member> SharedMemory::members() const {
  static_assert(sizeof(Bell) <= alignof(Member));
  return {reinterpret_cast<Member*>(memory_ + alignof(Member)),
          static_cast<std::size_t>(world_size_)};
}

Bell& SharedMemory::bell() const { return *reinterpret_cast<Bell*>(memory_); }

char* SharedMemory::cell(int rank, std::uint64_t round) const {
  char* cells = reinterpret_cast<char*>(members().data() + world_size_);
  const auto number = static_cast<std::int64_t>(round % kCells);
  return cells + (rank * std::int64_t{kCells} + number) * kCellBytes;
}

SharedMemory::Channel& SharedMemory::channel(int from, int to, int tag) const {
  auto* channels = reinterpret_cast<Channel*>(cell(world_size_, 0));
  return channels[(from * world_size_ + to) * kTags + tag];
}

bool SharedMemory::has_ended(int rank) const {
  return kill(members()[rank].process, 0) != 0 && errno == ESRCH;
}

}  // namespace ddp
