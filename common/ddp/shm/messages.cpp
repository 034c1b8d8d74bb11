#include <algorithm>
#include <cstring>

#include "ddp/shm/transfers.h"

namespace ddp {
namespace {

// A rank's end of a message: its size, then its bytes.
class Message : public Transfer {
 public:
  Message(SharedMemory& memory, SharedMemory::Channel& channel, bool sends, int peer,
          const at::Tensor& tensor)
      : memory_(memory),
        channel_(channel),
        sends_(sends),
        peer_(peer),
        bytes_(bytes_of(tensor)),
        size_(static_cast<std::int64_t>(tensor.nbytes())) {}

  bool advance() override {
    bool moved = false;
    while (!done() && step()) {
      moved = true;
      memory_.bell().ring();
    }
    return moved;
  }

  bool done() const override { return has_size_ && moved_ == size_; }
  // A sender waits only for what does not fit into the channel.
  bool owes() const override {
    return sends_ ? !done() : size_ + 2 * kAlignment > SharedMemory::kChannelBytes;
  }
  bool waits_for(int rank) const override { return rank == peer_; }

 private:
  static constexpr std::int64_t kAlignment = sizeof(std::int64_t);

  char* place(std::uint64_t position) {
    return channel_.bytes + position % SharedMemory::kChannelBytes;
  }

  bool step() {
    std::atomic<std::uint64_t>& done_so_far = sends_ ? channel_.written : channel_.read;
    std::uint64_t position = done_so_far;
    const std::uint64_t end =
        sends_ ? channel_.read + SharedMemory::kChannelBytes : channel_.written.load();
    if (!has_size_) {
      position = (position + kAlignment - 1) / kAlignment * kAlignment;  // where sizes lie
      if (position + kAlignment > end) {
        return false;
      }
      pass_size(place(position));
      position += kAlignment;
    }
    // At most what can be moved, and in one copy.
    const auto offset = static_cast<std::int64_t>(position % SharedMemory::kChannelBytes);
    const std::int64_t size =
        std::min({size_ - moved_, static_cast<std::int64_t>(end - position),
                  SharedMemory::kChannelBytes - offset, SharedMemory::kCellBytes});
    if (sends_) {
      std::copy_n(bytes_ + moved_, size, place(position));  // null if the tensor is empty
    } else {
      std::copy_n(place(position), size, bytes_ + moved_);
    }
    moved_ += size;
    const bool moved = done_so_far != position + size;
    done_so_far.store(position + size);
    return moved;
  }

  void pass_size(char* where) {
    if (sends_) {
      std::memcpy(where, &size_, kAlignment);
    } else {
      std::int64_t sent = 0;
      std::memcpy(&sent, where, kAlignment);
      TORCH_CHECK(sent == size_, "rank ", peer_, " sent ", sent, " bytes, and ", size_,
                  " are expected");
    }
    has_size_ = true;
  }

  SharedMemory& memory_;
  SharedMemory::Channel& channel_;
  const bool sends_;
  const int peer_;
  char* bytes_;
  const std::int64_t size_;
  bool has_size_ = false;
  std::int64_t moved_ = 0;
};

}  // namespace

std::unique_ptr<Transfer> make_message(const Operation& operation, SharedMemory& memory) {
  const int tag = operation.tag;
  TORCH_CHECK(tag >= 0 && tag < SharedMemory::kTags, "shared memory has the tags 0 to ",
              SharedMemory::kTags - 1, ", not ", tag);
  const int me = memory.rank();
  const int peer = operation.peer;
  const bool sends = operation.type == c10d::OpType::SEND;
  return std::make_unique<Message>(
      memory, sends ? memory.channel(me, peer, tag) : memory.channel(peer, me, tag), sends, peer,
      the_tensor(sends ? operation.inputs : operation.outputs, operation));
}

}  // namespace ddp
