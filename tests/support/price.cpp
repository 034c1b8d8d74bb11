#include "support/price.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "support/grading.h"
#include "support/settings.h"

namespace ddp::testing {

namespace {

using Rares = std::set<Rare>;

// Of what is broken: what is rare there, without that which has more of it than another one has.
Rares minimal(const Judgement& found) {
  Rares all;
  for (const Broken& broken : found.broken) {
    all.insert(broken.body->rare);
  }
  Rares least;
  std::ranges::copy_if(all, std::inserter(least, least.end()), [&](const Rare& rare) {
    return std::ranges::none_of(
        all, [&](const Rare& less) { return less != rare && std::ranges::includes(rare, less); });
  });
  return least;
}

bool is_plain(const Rares& rares) { return rares.contains(Rare()); }

// The test that has lost its points for something rare.
std::map<Rare, std::string>& charged_tests() {
  static std::map<Rare, std::string> charged;
  return charged;
}

std::string charged_for(const Rare& rare) {
  for (const auto& [less, test] : charged_tests()) {
    if (std::ranges::includes(rare, less)) {
      return test;
    }
  }
  return "";
}

// The test that is rehearsed, and what it finds; null: none is.
const DeclaredTest* rehearsed = nullptr;
Rares rehearsed_rares;

// Where a test is broken only together with something rare: what; its turn has not come yet.
const Rares& rares_of_test(const DeclaredTest& test) {
  static std::map<std::string, Rares> known;
  const auto [found, is_new] = known.try_emplace(test.claim.name);
  if (is_new) {
    rehearsed = &test;
    rehearsed_rares.clear();
    test.body();
    rehearsed = nullptr;
    found->second = is_plain(rehearsed_rares) ? Rares() : rehearsed_rares;
  }
  return found->second;
}

// Null if it is none with points.
const DeclaredTest* test_with_points(const std::string& name) {
  const auto found = std::ranges::find(declared_tests(), name,
                                       [](const DeclaredTest& test) { return test.claim.name; });
  return found != declared_tests().end() && found->claim.points > 0 ? &*found : nullptr;
}

// Null if it is not to be run after the current one.
const DeclaredTest* later_test(const std::string& name) {
  const auto* suite = ::testing::UnitTest::GetInstance()->current_test_suite();
  const std::string current = test_in_question();
  bool later = false;
  for (int i = 0; i < suite->total_test_count(); ++i) {
    const ::testing::TestInfo* info = suite->GetTestInfo(i);
    if (later && info->should_run() && info->name() == name) {
      return test_with_points(name);
    }
    later = later || info->name() == current;
  }
  return nullptr;
}

// The test that will lose its points for it: one that finds it with less that is rare, or the one that
// such a body is charged to.
std::string test_to_be_charged(const Judgement& found, const Rare& rare) {
  if (!settings().device.is_cpu()) {
    return "";
  }
  for (const std::string& name : tests_with_bodies()) {
    const bool own = std::ranges::any_of(found.broken, [&](const Broken& broken) {
      return broken.body->rare == rare && broken.body->charged_to == name;
    });
    const DeclaredTest* test = later_test(name);
    if (test != nullptr && std::ranges::any_of(rares_of_test(*test), [&](const Rare& less) {
          return std::ranges::includes(rare, less) && (own || less != rare);
        })) {
      return name;
    }
  }
  return "";
}

std::string list_of(const Rare& rare) {
  std::string text;
  for (const std::string& each : rare) {
    text += (text.empty() ? "" : ", ") + each;
  }
  return text;
}

// "the claim holds in 24 of 26 runs; it is broken in "a", too, and in 1 more"
std::string counts(const Judgement& found, const Broken& first, const Rare& rare) {
  const auto broken = static_cast<int>(found.broken.size());
  std::ostringstream text;
  text << "the claim holds in " << found.judged - broken << " of " << found.judged << " runs";
  const auto next = std::ranges::find_if(
      found.broken, [&](const Broken& each) { return each.body != first.body; });
  if (next != found.broken.end()) {
    text << "; it is broken in \"" << next->body->name << "\", too"
         << (broken > 2 ? ", and in " + std::to_string(broken - 2) + " more" : "");
  }
  if (!rare.empty()) {
    text << "\n  what these runs have and others have not: " << list_of(rare)
         << "; no other test loses points for it";
  }
  return text.str();
}

void fail(const Judgement& found, const Rare& rare) {
  const auto first =
      std::ranges::find(found.broken, rare, [](const Broken& broken) { return broken.body->rare; });
  ADD_FAILURE() << "in " << in_body(*first->body) << ": " << first->text;
  if (!settings().brief && found.judged > 1) {
    ADD_FAILURE() << counts(found, *first, rare);
  }
}

}  // namespace

void charge(const Rare& rare, const std::string& test) { charged_tests().try_emplace(rare, test); }

bool is_rehearsal() { return rehearsed != nullptr; }

void rehearse(const Judgement& found) { rehearsed_rares.merge(minimal(found)); }

std::string test_in_question() {
  return rehearsed != nullptr ? rehearsed->claim.name
                              : ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

void settle(const Judgement& found) {
  note_runs(found.judged - static_cast<int>(found.broken.size()), found.judged);
  const Rares rares = minimal(found);
  if (is_plain(rares)) {
    return fail(found, Rare());
  }
  const std::string current = test_in_question();
  std::string others;  // that are charged
  for (const Rare& rare : rares) {
    std::string charged = charged_for(rare);
    charged = charged.empty() ? test_to_be_charged(found, rare) : charged;
    if (charged.empty() || charged == current) {
      for (const Rare& each : test_with_points(current) != nullptr ? rares : Rares()) {
        charge(each, current);
      }
      return fail(found, rare);
    }
    others += (others.empty() ? "" : "; ") + ("of " + list_of(rare)) + " see " + charged;
  }
  if (!rares.empty() && found.broken.size() == static_cast<std::size_t>(found.judged)) {
    note_not_judged("nothing is left to judge: " + others);
  } else if (!found.unjudged.empty()) {
    note_not_judged(found.unjudged);
  } else if (!rares.empty()) {
    note_measured("judged without some runs: " + others);
  }
}

}  // namespace ddp::testing
