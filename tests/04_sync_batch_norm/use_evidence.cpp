#include <ATen/ATen.h>

#include <sstream>
#include <utility>

#include "claims.h"
#include "ddp/libtorch_versions.h"

namespace ddp::testing {

namespace {

int number_of(const Seen& seen) {
  const bool at_end = seen.place.phase == Phase::kDestruction && seen.kind == EventKind::kValue;
  return at_end ? static_cast<int>(seen.index - kAtEnd) : seen.place.step;
}

// Forward has returned.
bool has_output(const Said& use) {
  const Tensors& outputs = use[ValueKey{"output"}];
  const auto found = outputs.find(kAfterForward);
  return found != outputs.end() && found->second.defined();
}

std::vector<Batch> sort(const Evidence& evidence) {
  std::vector<Batch> batches;
  for (auto& [number, uses] : parts_of(evidence, number_of, has_output)) {
    const auto group = static_cast<int>(uses[0].number(kGroup).value_or(0));
    Batch together;
    for (RankSaid& said : uses) {
      UseOnRank use(std::move(said), number);
      if (use.training) {
        together.push_back(std::move(use));
      } else {
        batches.push_back({std::move(use)});
      }
    }
    if (together.size() == members_of(evidence.world, group).size()) {
      batches.push_back(std::move(together));
    }
  }
  return batches;
}

}  // namespace

UseOnRank::UseOnRank(RankSaid said, int index) : RankSaid(std::move(said)), index(index) {
  if (constexpr ValueKey kOptions{"options"}; has(kOptions)) {
    const auto option = [&](int i) { return tensor(kOptions)[i].item<double>(); };
    training = option(0) != 0;
    momentum = option(1);
    eps = option(2);
    of_module = option(3) != 0;
  }
  wants_input = number(FactKey{"wants the input's gradient"}).value_or(0) != 0;
  backwards = static_cast<int>((*this)[FactKey{"backward"}].size());
  for (const auto& [name, events] : facts()) {
    note = rest_of(name, "note: ").value_or(note);
  }
  for (const Seen* launch : launches()) {
    (launch->place.phase == Phase::kForward ? forward : backward).push_back(launch);
  }
}

at::Tensor UseOnRank::at(const std::string& name, Moment moment) const {
  const Tensors& moments = (*this)[ValueKey{name}];
  const auto found = moments.find(moment == kAtEnd ? kAtEnd + index : moment);
  return found == moments.end() ? at::Tensor() : found->second;
}

at::Tensor UseOnRank::wide(const std::string& name, Moment moment) const {
  const at::Tensor tensor = at(name, moment);
  return tensor.defined() ? tensor.to(at::kDouble) : tensor;
}

const std::vector<Batch>& batches_in(const Evidence& evidence) {
  return sorted_once(evidence, sort);
}

std::string describe(const Batch& batch, const UseOnRank& use) {
  const at::Tensor input = use.at("input", kBefore);
  std::ostringstream text;
  text << "rank " << use.rank << ", use " << use.index << " ("
       << (use.training ? "training" : "evaluation") << (use.of_module ? " by a module" : "")
       << ", input " << input.sizes() << " " << dtype_name(input.scalar_type());
  if (batch.size() > 1) {
    std::vector<std::int64_t> rows;
    for (const UseOnRank& other : batch) {
      rows.push_back(other.at("input", kBefore).size(0));
    }
    text << " where the ranks have " << at::IntArrayRef(rows) << " samples";
  }
  if (use.number(kGroup).value_or(0) > 0) {
    text << "; in the group of ranks";
    for (const UseOnRank& other : batch) {
      text << (&other == &batch.front() ? " " : ", ") << other.rank;
    }
  }
  text << (use.note.empty() ? "" : "; ") << use.note << ")";
  return text.str();
}

}  // namespace ddp::testing
