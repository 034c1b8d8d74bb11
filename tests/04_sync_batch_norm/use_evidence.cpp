#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "claims.h"
#include "ddp/libtorch_versions.h"
#include "grader/training_evidence.h"

namespace ddp::testing {

namespace {

void sort_fact(const Seen& seen, UseOnRank& use) {
  constexpr std::string_view kNote = "note: ";
  const std::string_view text = seen.text;
  if (text == "group") {
    use.group = static_cast<int>(seen.number);
  } else if (text == "wants the input's gradient") {
    use.wants_input = seen.number != 0;
  } else if (text == "backward") {
    ++use.backwards;
  } else if (text.starts_with(kNote)) {
    use.note = text.substr(kNote.size());
  } else {
    use.facts.emplace(text);
  }
}

void sort_value(const Seen& seen, UseOnRank& use) {
  if (seen.text == "options") {
    const auto* options = seen.value.const_data_ptr<double>();
    use.training = options[0] != 0;
    use.momentum = options[1];
    use.eps = options[2];
    use.of_module = options[3] != 0;
  } else {
    use.tensors[seen.text][std::min<std::int64_t>(seen.index, kAtEnd)] = seen.value;
  }
}

int number_of(const Seen& seen) {
  const bool at_end = seen.place.phase == Phase::kDestruction && seen.kind == EventKind::kValue;
  return at_end ? static_cast<int>(seen.index - kAtEnd) : seen.place.step;
}

std::vector<Batch> sort(const Evidence& evidence) {
  std::vector<Batch> batches;
  for (auto& [number, uses] : parts_of<UseOnRank>(evidence, number_of)) {
    const std::size_t members = members_of(evidence.world, uses[0].group).size();
    Batch together;
    for (UseOnRank& use : uses) {
      if (use.training) {
        together.push_back(std::move(use));
      } else {
        batches.push_back({std::move(use)});
      }
    }
    if (together.size() == members) {
      batches.push_back(std::move(together));
    }
  }
  return batches;
}

}  // namespace

void UseOnRank::add(const Seen& seen) {
  number = number_of(seen);
  if (seen.kind == EventKind::kFact) {
    sort_fact(seen, *this);
  } else if (seen.kind == EventKind::kValue) {
    sort_value(seen, *this);
  } else if (seen.kind == EventKind::kLaunch) {
    (seen.place.phase == Phase::kForward ? forward : backward).push_back(&seen);
  }
}

at::Tensor UseOnRank::at(const std::string& name, Moment moment) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    return {};
  }
  const auto then = found->second.find(moment);
  return then == found->second.end() ? at::Tensor() : then->second;
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
  text << "rank " << use.rank << ", use " << use.number << " ("
       << (use.training ? "training" : "evaluation") << (use.of_module ? " by a module" : "")
       << ", input " << input.sizes() << " " << dtype_name(input.scalar_type());
  if (batch.size() > 1) {
    std::vector<std::int64_t> rows;
    for (const UseOnRank& other : batch) {
      rows.push_back(other.at("input", kBefore).size(0));
    }
    text << " where the ranks have " << at::IntArrayRef(rows) << " samples";
  }
  if (use.group > 0) {
    text << "; in the group of ranks";
    for (const UseOnRank& other : batch) {
      text << (&other == &batch.front() ? " " : ", ") << other.rank;
    }
  }
  text << (use.note.empty() ? "" : "; ") << use.note << ")";
  return text.str();
}

}  // namespace ddp::testing
