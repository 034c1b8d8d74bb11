#include <algorithm>
#include <cstring>

#include "ddp/shm/transfers.h"

namespace ddp {
namespace {

// A message: its size, then its bytes.
class Message : public Transfer {
 public:
  Message(SharedMemory& memory, SharedMemory::Channel& channel, int peer, char* bytes,
          std::int64_t size)
      : memory_(memory), channel_(channel), peer_(peer), bytes_(bytes), size_(size) {}

  bool advance() override {
    bool moved = false;
    while (!done() && step()) {
      moved = true;
      memory_.bell().ring();
    }
    return moved;
  }

  bool done() const override { return has_size_ && moved_ == size_; }
  bool waits_for(int rank) const override { return rank == peer_; }

 protected:
  // The length of the next piece: at most that much can be moved, and in one copy.
  static std::int64_t next_piece(std::uint64_t position, std::int64_t left, std::int64_t most) {
    const auto offset = static_cast<std::int64_t>(position % SharedMemory::kChannelBytes);
    return std::min({left, most, SharedMemory::kChannelBytes - offset, SharedMemory::kCellBytes});
  }
  static constexpr std::int64_t kAlignment = sizeof(std::int64_t);

  virtual bool step() = 0;
  char* place(std::uint64_t position) {
    return channel_.bytes + position % SharedMemory::kChannelBytes;
  }
  // Sizes lie at multiples of their own.
  static std::uint64_t aligned(std::uint64_t position) {
    return (position + kAlignment - 1) / kAlignment * kAlignment;
  }

  SharedMemory& memory_;
  SharedMemory::Channel& channel_;
  const int peer_;
  char* bytes_;
  const std::int64_t size_;
  bool has_size_ = false;
  std::int64_t moved_ = 0;
};

class Send : public Message {
 public:
  using Message::Message;
  bool owes() const override { return !done(); }

 private:
  bool step() override {
    std::uint64_t position = channel_.written;
    const std::uint64_t end = channel_.read + SharedMemory::kChannelBytes;
    if (!has_size_) {
      position = aligned(position);
      if (position + kAlignment > end) {
        return false;
      }
      std::memcpy(place(position), &size_, kAlignment);
      has_size_ = true;
      position += kAlignment;
    }
    const std::int64_t size =
        next_piece(position, size_ - moved_, static_cast<std::int64_t>(end - position));
    std::copy_n(bytes_ + moved_, size, place(position));  // null if the tensor is empty
    moved_ += size;
    const bool moved = channel_.written != position + size;
    channel_.written.store(position + size);
    return moved;
  }
};

class Receive : public Message {
 public:
  using Message::Message;
  // A sender waits only for what does not fit into the channel.
  bool owes() const override { return size_ + 2 * kAlignment > SharedMemory::kChannelBytes; }

 private:
  bool step() override {
    std::uint64_t position = channel_.read;
    const std::uint64_t end = channel_.written;
    if (!has_size_) {
      position = aligned(position);
      if (position + kAlignment > end) {
        return false;
      }
      std::int64_t sent = 0;
      std::memcpy(&sent, place(position), kAlignment);
      TORCH_CHECK(sent == size_, "rank ", peer_, " sent ", sent, " bytes, and ", size_,
                  " are expected");
      has_size_ = true;
      position += kAlignment;
    }
    const std::int64_t size =
        next_piece(position, size_ - moved_, static_cast<std::int64_t>(end - position));
    std::copy_n(place(position), size, bytes_ + moved_);
    moved_ += size;
    const bool moved = channel_.read != position + size;
    channel_.read.store(position + size);
    return moved;
  }
};

}  // namespace

std::unique_ptr<Transfer> make_message(const Operation& operation, SharedMemory& memory) {
  const int tag = operation.tag;
  TORCH_CHECK(tag >= 0 && tag < SharedMemory::kTags, "shared memory has the tags 0 to ",
              SharedMemory::kTags - 1, ", not ", tag);
  const int me = memory.rank();
  if (operation.type == c10d::OpType::SEND) {
    const at::Tensor sent = the_tensor(operation.inputs, operation);
    return std::make_unique<Send>(memory, memory.channel(me, operation.peer, tag), operation.peer,
                                  bytes_of(sent), sent.nbytes());
  }
  const at::Tensor received = the_tensor(operation.outputs, operation);
  return std::make_unique<Receive>(memory, memory.channel(operation.peer, me, tag), operation.peer,
                                   bytes_of(received), received.nbytes());
}

}  // namespace ddp
