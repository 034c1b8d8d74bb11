#pragma once

#include <memory>

#include "cases.h"
#include "ddp/referee/client.h"

namespace ddp::testing {

/// A case's model on a rank, in training. Evidence, beside operations:
///
///     facts    "case"; "forward" and "backward" of the unit `index`, when its function begins and
///              before its own backward; "pass" when one begins (`number`: whether it is inside NoSync)
///     values   "output" of each pass; after finish() "gradient" of each shard, and "norm"; after the
///              optimizer's step "shard"; all by unit
class Trainer {
 public:
  Trainer(Client& client, const Case& one);

  void construct();
  void step(int number);
  void run();
  /// One pass; its output, without backward.
  at::Tensor forward(const Pass& pass, at::Tensor x);
  /// As a call of the code under test, which is told if it changes its surroundings.
  void go_to(Phase phase);
  void hand_in_shards(const char* name);

  FullySharded& model() { return *model_; }
  void destroy();

 private:
  void run_pass(const Pass& pass, std::size_t place);
  void update(const Step& step);

  Client& client_;
  const Case& case_;
  ProcessGroupPtr group_;
  int step_ = -1;
  bool throws_ = false;
  std::unique_ptr<FullySharded> model_;
};

/// The units of a case, whose functions tell what they do. `throws`: when they are to throw.
std::vector<Unit> units_of(Client& client, const Case& one, int rank, const bool* throws);

/// The rank's chunk of each unit's flat parameters, without padding.
std::vector<at::Tensor> chunks_of(const std::vector<std::vector<at::Tensor>>& units, int ranks,
                                  int place);

}  // namespace ddp::testing
