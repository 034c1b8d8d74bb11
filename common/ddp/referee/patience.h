#pragma once

#include <chrono>

/// How long is long: all by which time alone ends a hang, and tells one who waits from one who computes.
/// It decides no verdict on what a stage does. Looks at threads and processor time, since on a loaded
/// machine seconds say little: a rank that waits to be run neither sleeps nor computes.
namespace ddp::patience {

using std::chrono::milliseconds;

#ifdef DDP_LAB_SANITIZED
constexpr int kFactor = 5;  // code that is watched takes so much longer
#else
constexpr int kFactor = 1;
#endif

/// Between two looks of the referee at ranks of which nothing is heard.
constexpr auto kLook = milliseconds(2);
/// A thread sleeps if it is found in the same sleep after so long.
constexpr auto kMoment = std::chrono::microseconds(300);

/// So many looks have found a rank in the same sleep: backward waits; though others run; all ranks stand
/// still, and are told; they still do, which is the end.
constexpr int kLooksInBackward = 50 * kFactor;
constexpr int kLooksWhileOthersRun = 300 * kFactor;
constexpr int kLooksAtStandstill = 100 * kFactor;
constexpr int kLooksAtEnd = 400 * kFactor;
/// So many have found it stopped by a signal.
constexpr int kLooksAtStopped = 100 * kFactor;

/// Processor time. A thread that asks a future in a loop has waited for it.
constexpr auto kPolls = milliseconds(200 * kFactor);
/// A rank that has had so much since the last news computes.
constexpr auto kComputes = milliseconds(500 * kFactor);
/// It computes without end, and has been looked at so often: one that was itself stopped for a while counts
/// that as processor time.
constexpr auto kEndless = milliseconds(3'000 * kFactor);
constexpr int kLooksAtEndless = 50;

}  // namespace ddp::patience
