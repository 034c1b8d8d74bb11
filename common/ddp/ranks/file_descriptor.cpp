#include "ddp/ranks/file_descriptor.h"

#include <unistd.h>

#include <utility>

namespace ddp {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    FileDescriptor old(std::exchange(fd_, other.release()));
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

}  // namespace ddp
