#pragma once

namespace ddp::testing {

/// While it lives, this test program may use the machine: beside others, or alone, for what measures
/// real time. Programs that were started with the same --machine keep to it.
class MachineShare {
 public:
  enum class Mode { kBesideOthers, kAlone };

  /// Blocks until the others let it. Does nothing without --machine.
  explicit MachineShare(Mode mode);
  MachineShare(const MachineShare&) = delete;
  MachineShare& operator=(const MachineShare&) = delete;
  ~MachineShare();

 private:
  int file_;
};

}  // namespace ddp::testing
