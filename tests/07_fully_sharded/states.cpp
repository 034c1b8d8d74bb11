#include <ATen/ATen.h>

#include <limits>

#include "cases.h"
#include "ddp/flat_layout.h"
#include "ddp/referee/client.h"
#include "grader/calls.h"
#include "grader/compare.h"
#include "grader/training_evidence.h"
#include "scenarios.h"

// Saving and loading: a model of the ranks 0 and 1, one of all four, and back.

namespace ddp::testing {

namespace {

const Case kSaved{.name = "a model that is saved",
                  .ranks = 4,
                  .units = {{{{5, 3}, {4}}}, {{{1}}}, {{{2, 2}, {3}}, true}, {{{40}}}}};

Case in_float64() {
  Case one = kSaved;
  one.dtype = at::kDouble;
  return one;
}

// Values whose bits change if anybody computes with them.
std::vector<Unit> unusual_units(Client& client, const Case& one, int rank) {
  std::vector<Unit> units = units_of(client, one, rank, nullptr);
  const at::NoGradGuard no_grad;
  units[0].parameters[0].view({-1})[0].fill_(-0.0);
  units[3].parameters[0][39].fill_(std::numeric_limits<float>::quiet_NaN());
  units[3].parameters[0][38].fill_(std::numeric_limits<float>::denorm_min());
  return units;
}

std::vector<std::vector<at::Tensor>> parameters_in(const std::vector<Unit>& units) {
  std::vector<std::vector<at::Tensor>> parameters;
  for (const Unit& unit : units) {
    parameters.push_back(unit.parameters);
  }
  return parameters;
}

// Communicates nothing, and leaves autograd's mode as it was: `without_autograd`, as where a checkpoint is read.
template <typename Call>
auto silently(Client& client, const char* name, bool without_autograd, const Call& call) {
  const at::AutoGradMode mode(!without_autograd);
  const KeptSurroundings kept(client, name);
  client.go_to({.phase = Phase::kCall, .step = 0});
  struct End {
    Client& client;
    ~End() { client.go_to({.phase = Phase::kSetup, .step = 0}); }
  } const end{client};
  return call();
}

// What a rank of `members` has saved, on every rank: as if it had been read from a file.
std::vector<SavedShards> exchanged(const ProcessGroupPtr& group, const SavedShards& own,
                                   int members) {
  std::vector<SavedShards> all(members, own);
  for (std::size_t i = 0; i < own.shards.size(); ++i) {
    const at::Tensor gathered = all_gather(own.shards[i], group);
    for (int rank = 0; rank < members; ++rank) {
      all[members - 1 - rank].rank = rank;  // in any order
      all[members - 1 - rank].shards[i] = gathered[rank];
    }
  }
  return all;
}

// A state as a model of `ranks` ranks would save it, for those that have none.
SavedShards empty_state(const Case& one, int ranks) {
  SavedShards state{.rank = 0, .ranks = ranks, .elements = {}, .shards = {}};
  for (const auto& parameters : parameters_of(one, 0)) {
    const FlatLayout layout(parameters, ranks, "unit");
    state.elements.push_back(layout.elements());
    state.shards.push_back(at::zeros({layout.padded_elements() / ranks}, one.dtype));
  }
  return state;
}

void save_and_load(Client& client, const Case& one, int small) {
  const auto group = make_group(client.shared_from_this());
  const int rank = client.rank();
  const bool is_small = rank < small;
  const bool alone = small == 1;  // without autograd, then
  const auto expected = parameters_in(unusual_units(client, one, 0));
  std::unique_ptr<FullySharded> two;
  if (is_small) {
    two = make_fully_sharded(unusual_units(client, one, rank),
                             make_group(client.shared_from_this(), 1));
  }
  auto four = make_fully_sharded(units_of(client, one, rank + 7, nullptr), group);
  const SavedShards saved = is_small
                                ? silently(client, "save()", alone, [&] { return two->save(); })
                                : empty_state(one, small);
  if (is_small) {
    compare(client, "what save() has of the small group's shards", saved.shards,
            chunks_of(expected, small, rank));
  }
  const auto all = exchanged(group, saved, small);
  const auto places = four->shards();
  silently(client, "load()", alone, [&] { four->load(all); });
  compare(client, "shards of an optimizer from before load()", places,
          chunks_of(expected, 4, rank));
  compare(client, "shards loaded into four ranks", four->shards(), chunks_of(expected, 4, rank));
  const auto back =
      exchanged(group, silently(client, "save()", alone, [&] { return four->save(); }), 4);
  two.reset();
  if (is_small) {
    two = make_fully_sharded(units_of(client, one, rank + 3, nullptr),
                             make_group(client.shared_from_this(), 1));
    silently(client, "load()", alone, [&] { two->load(back); });
    compare(client, "shards loaded back into the small group", two->shards(),
            chunks_of(expected, small, rank));
  }
}

std::vector<at::Tensor> listed(const std::vector<std::vector<at::Tensor>>& units) {
  std::vector<at::Tensor> all;
  for (const auto& parameters : units) {
    all.insert(all.end(), parameters.begin(), parameters.end());
  }
  return all;
}

void whole_and_back(Client& client) {
  const auto group = make_group(client.shared_from_this());
  const auto expected = parameters_in(unusual_units(client, kSaved, 0));
  auto model = make_fully_sharded(unusual_units(client, kSaved, client.rank()), group);
  for (const int root : {0, 2}) {
    client.go_to({.phase = Phase::kForward, .step = root});
    const auto whole = [&] {
      const at::AutoGradMode mode(root == 0);
      const KeptSurroundings kept(client, "whole_parameters()");
      return model->whole_parameters(root);
    }();
    client.go_to({.phase = Phase::kSetup, .step = root});
    compare(client, "whole parameters with root " + std::to_string(root), whole,
            client.rank() == root ? listed(expected) : std::vector<at::Tensor>());
    for (const at::Tensor& parameter : whole) {
      client.fact("number of whole parameters that require a gradient", parameter.requires_grad(),
                  0);
    }
  }
  auto other = make_fully_sharded(units_of(client, kSaved, client.rank() + 5, nullptr), group);
  std::vector<at::Tensor> given = listed(expected);
  given[0] = given[0].detach().t().contiguous().t();  // not contiguous
  const SavedShards before = other->save();
  const auto places = other->shards();
  for (const bool without_autograd : {true, false}) {
    silently(client, "load_whole()", without_autograd, [&] { other->load_whole(given); });
  }
  compare(client, "shards after load_whole()", other->shards(),
          chunks_of(expected, 4, client.rank()));
  compare(client, "shards of an optimizer from before load_whole()", places,
          chunks_of(expected, 4, client.rank()));
  compare(client, "shards that were saved before load_whole()", before.shards,
          chunks_of(parameters_in(units_of(client, kSaved, 5, nullptr)), 4, client.rank()));
}

}  // namespace

void compare(Client& client, const std::string& what, const std::vector<at::Tensor>& actual,
             const std::vector<at::Tensor>& expected) {
  client.fact("number of " + what, static_cast<std::int64_t>(actual.size()),
              static_cast<std::int64_t>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    at::Tensor found = i < actual.size() ? actual[i] : at::Tensor();
    if (found.defined() && found.dim() == 1 && found.numel() > expected[i].numel()) {
      found = found.narrow(0, 0, expected[i].numel());  // what follows is padding
    }
    client.value("should be: " + what, expected[i].detach(), static_cast<std::int64_t>(i));
    client.value("is: " + what, found.defined() ? found.detach() : found,
                 static_cast<std::int64_t>(i));
  }
}

std::vector<Scenario> states() {
  std::vector<Scenario> all;
  for (const int small : {2, 3, 1}) {
    const Case one = small == 3 ? in_float64() : kSaved;
    all.push_back({"states of " + std::to_string(small) + " and four ranks",
                   {.ranks = 4,
                    .subgroups = {small == 2   ? std::vector{0, 1}
                                  : small == 3 ? std::vector{0, 1, 2}
                                               : std::vector{0}},
                    .hold = false},
                   [one, small](Client& client) { save_and_load(client, one, small); },
                   kStateTest,
                   small == 3 ? EdgeCases{kDtype} : EdgeCases{}});
  }
  all.push_back({"whole parameters", {.ranks = 4, .hold = false}, whole_and_back, kStateTest});
  return all;
}

Finding whole_parameters_are_gathered_once(const Evidence& evidence) {
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    std::size_t next = 0;  // of all units, for each root
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind != EventKind::kLaunch || seen.place.phase != Phase::kForward) {
        continue;
      }
      const std::size_t unit = next++ % kSaved.units.size();
      if (!is_all_gather(seen) || seen.bytes != bytes_of(kSaved, unit).shard) {
        return "rank " + std::to_string(rank) + ": whole_parameters() launched " +
               describe_operation(seen) + ", and should gather unit " + std::to_string(unit) +
               ": each unit once, in the list's order";
      }
    }
    if (next % kSaved.units.size() != 0) {
      return "rank " + std::to_string(rank) + ": whole_parameters() launched " +
             std::to_string(next) + " all-gathers in two calls, and should gather each of " +
             std::to_string(kSaved.units.size()) + " units once";
    }
  }
  return "";
}

Finding states_are_those_saved(const Evidence& evidence) {
  for (std::size_t rank = 0; rank < evidence.of.size(); ++rank) {
    const std::string who = "rank " + std::to_string(rank) + ": ";
    at::Tensor expected;
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind == EventKind::kLaunch && seen.place.phase == Phase::kCall) {
        return who + "save(), load() and load_whole() communicate nothing, and " +
               describe_operation(seen) + " was launched";
      }
      if (seen.kind == EventKind::kFact && seen.text.starts_with("number of ") &&
          seen.number != seen.index) {
        return who + "the " + seen.text + " is " + std::to_string(seen.number) +
               ", and should be " + std::to_string(seen.index);
      }
      if (seen.kind == EventKind::kValue && seen.text.starts_with("should be: ")) {
        expected = seen.value;
      } else if (seen.kind == EventKind::kValue && seen.text.starts_with("is: ")) {
        const std::string name =
            who + "tensor " + std::to_string(seen.index) + " of " + seen.text.substr(4);
        const bool same = seen.value.defined() && seen.value.sizes() == expected.sizes() &&
                          same_bits(seen.value, expected);
        if (!same) {
          Finding found = seen.value.defined()
                              ? said(is_bitwise_equal({name}, seen.value, expected))
                              : Finding();
          found.text = found.empty() ? name + " is not what was saved" : found.text;
          return std::move(found).at(&seen, "wrong value");
        }
      }
    }
  }
  return "";
}

}  // namespace ddp::testing
