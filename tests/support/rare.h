#pragma once

#include <set>
#include <string>

#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"

namespace ddp::testing {

/// What is rare about a body: a student who has not thought of it has made one slip, which shows in
/// every body that has it, and costs the points of one test; see tools/grading/scoring/price.py. Most bodies have
/// nothing rare, and those that have, one such thing, where more than one does not matter.
using Rare = std::set<std::string>;

constexpr const char* kStridedState = "parameters or buffers that are not contiguous";
constexpr const char* kStridedGradients = "gradients that are not contiguous";
constexpr const char* kStridedTensors = "tensors that are not contiguous";
constexpr const char* kUndefined = "gradients that are undefined";
constexpr const char* kDtype = "another dtype than float32";
constexpr const char* kTied = "a weight that is listed twice";
constexpr const char* kEmpty = "tensors without elements";
constexpr const char* kShared = "tensors that share memory";
constexpr const char* kThawed = "layers that are frozen or thawed in training";
constexpr const char* kSeveral = "several synchronizers";
constexpr const char* kGroups = "groups other than the whole world";
constexpr const char* kOneRank = "a single rank";
constexpr const char* kManyRanks = "more than two ranks";

/// Where two ranks are the ordinary case.
Rare rare_of(const World& world);

/// Within a body: what comes from here on is rare. What a rank has broken before, it has without it.
void tell_rare(Client& client, const std::string& rare);

/// All that the ranks of a run have told.
Rare told_rare(const Evidence& evidence);

}  // namespace ddp::testing
