#include "ddp/referee/referee.h"

#include <c10/core/alignment.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

#include "ddp/backends/operation_backend.h"
#include "ddp/ranks/exceptions.h"
#include "ddp/referee/client.h"
#include "ddp/referee/exchange.h"
#include "ddp/referee/patience.h"

namespace ddp {

namespace {

using std::chrono::milliseconds;

// News that comes sooner is not worth a sleep.
constexpr int kGlancesOfReferee = 100;
constexpr auto kVisit = milliseconds(20);  // the longest time in attend()
// Of one rank. Most scenarios have no more; room that stays empty takes no memory.
constexpr std::size_t kExpectedEvents = 4096;
constexpr std::size_t kExpectedValues = std::size_t{1} << 20;  // bytes of all ranks, likewise

// What the ranks of a run may hand in, and those of all runs of this process, as all of it is kept.
// Scenarios hand in 201 MiB at most, and those of a stage 360 MiB.
constexpr std::size_t kMostHandedIn = std::size_t{512} << 20;
constexpr std::size_t kMostOfAllRuns = std::size_t{2} << 30;
// Of so many moments at which a buffer may be touched on purpose one is chosen.
constexpr int kMomentsForATouch = 8;

// Memory that forked processes do not have; for few and large blocks. What the referee keeps of all
// runs would otherwise make every fork slower, as the kernel copies its page tables, and then each
// page that is written. Copies of containers in it are in ordinary memory.
class OwnMemory : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t /*alignment: a page's is enough*/) override {
    void* const block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) {
      throw std::bad_alloc();
    }
    madvise(block, bytes, MADV_DONTFORK);
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t /*alignment*/) override {
    munmap(block, bytes);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

std::pmr::memory_resource* own_memory() {
  static OwnMemory memory;
  return &memory;
}

std::int64_t bytes_in_arena(const Event& event) {
  return std::max(event.input_bytes, event.output_bytes);
}

// Whether a rank says it of an operation that it has launched.
bool is_of_operation(EventKind kind) {
  return kind == EventKind::kWait || kind == EventKind::kPoll || kind == EventKind::kAwaited ||
         kind == EventKind::kDone || kind == EventKind::kTouch;
}

}  // namespace

Referee::Referee(const World& world, const Mailroom& mailroom, const ForkOptions& options)
    : values_(std::make_shared<std::pmr::monotonic_buffer_resource>(kExpectedValues, own_memory())),
      patience_(options.deadline),
      withhold_(options.withhold),
      members_(world.ranks) {
  evidence_.world = world;
  evidence_.launches.resize(world.ranks);
  evidence_.doubts.resize(world.ranks);
  for (int rank = 0; rank < world.ranks; ++rank) {
    evidence_.of.emplace_back(own_memory()).reserve(kExpectedEvents);
    boxes_.push_back(mailroom.of(rank));
  }
  for (std::size_t group = 0; group <= world.subgroups.size(); ++group) {
    const auto members = members_of(world, static_cast<int>(group));
    groups_.push_back({members, std::vector<std::list<Launched>>(members.size()), 0});
  }
}

milliseconds Referee::attend(const std::vector<pid_t>& processes) {
  set_asleep(false);
  const auto end = Clock::now() + kVisit;
  while (Clock::now() < end) {
    if (turn()) {
      standstill_.reset();
      told_standstill_ = false;
      next_look_.reset();
      last_news_ = Clock::now();
      continue;
    }
    const bool all_ended = std::ranges::all_of(members_, [](const Member& m) { return m.ended(); });
    if (all_ended || hang_) {
      return milliseconds(1);
    }
    if (next_look_ && Clock::now() >= *next_look_) {
      next_look_.reset();
      look_for_standstill(processes);
      return milliseconds(0);
    }
    for (int glance = 0; glance < kGlancesOfReferee && !has_news(); ++glance) {
      std::this_thread::yield();
    }
    // An event that is not seen after this one finds the flag set, and rings.
    set_asleep(true);
    if (!has_news()) {
      next_look_ = next_look_.value_or(Clock::now() + patience::kLook);
      return std::chrono::ceil<milliseconds>(*next_look_ - Clock::now());
    }
    set_asleep(false);
  }
  return milliseconds(0);
}

bool Referee::has_news() const {
  for (std::size_t rank = 0; rank < boxes_.size(); ++rank) {
    if (!members_[rank].refused && boxes_[rank].has_event()) {
      return true;
    }
  }
  return false;
}

void Referee::set_asleep(bool asleep) {
  for (Mailbox& box : boxes_) {
    box.set_asleep(asleep);
  }
}

bool Referee::turn() {
  bool any = false;
  for (int rank = 0; rank < evidence_.world.ranks; ++rank) {
    while (take(rank)) {
      any = true;
    }
  }
  return any;
}

// A copy, in memory that goes with the last value of the run.
at::Tensor Referee::kept(const at::Tensor& value) const {
  void* const place = values_->allocate(value.nbytes(), c10::gAlignment);
  const auto let_go = [values = values_](void*) {};
  return at::from_blob(place, value.sizes(), let_go, value.options()).copy_(value);
}

bool Referee::take(int rank) {
  try {
    return !members_[rank].refused && take_next(rank);
  } catch (const std::exception& error) {
    refuse(rank, what_of(error));
    return false;
  }
}

void Referee::refuse(int rank, const std::string& reason) {
  members_[rank].refused = true;
  refused_ = Hang{rank, reason};
}

bool Referee::take_next(int rank) {
  auto event = boxes_[rank].peek();
  if (!event) {
    return false;
  }
  require_possible(rank, *event);
  require_room(*event);
  Member& member = members_[rank];
  const bool is_place = event->kind == EventKind::kPhase || event->kind == EventKind::kReady;
  if (is_place) {
    if (event->kind == EventKind::kPhase) {
      member.place = event->place;
    } else {
      member.place.ready = static_cast<std::int32_t>(event->index);
    }
    settle_touch(rank, /*found=*/false);
    member.touch_due = draws_touch(member.place);
  }
  event->place = member.place;
  const bool is_touch = event->kind == EventKind::kTouch && event->operation < 0;
  if (is_touch) {
    settle_touch(rank, /*found=*/true);
  }
  const bool is_canary = event->kind == EventKind::kPhase && member.place.phase == Phase::kCanary;
  if (!is_touch && !is_canary) {  // which are no evidence of the scenario's
    keep(rank, *std::move(event));
  }
  boxes_[rank].pop(is_place && member.touch_due);
  if (is_canary) {
    on_phase(rank);
  } else if (!is_touch) {
    act_on(rank, evidence_.of[rank].back());
  }
  return true;
}

void Referee::keep(int rank, Event event) {
  if (withhold_) {
    withhold_names(event);
  }
  Seen seen{std::move(event), std::ssize(evidence_.of[rank]), {}};
  if (seen.kind == EventKind::kValue && seen.tensors > 0) {
    seen.value = kept(at::from_blob(boxes_[rank].bytes(seen.offset), seen.sizes, seen.dtype));
  }
  evidence_.of[rank].push_back(std::move(seen));
}

void Referee::act_on(int rank, const Seen& said) {
  switch (said.kind) {
    case EventKind::kLaunch:
      return on_launch(rank, said);
    case EventKind::kWait:
      return on_wait(rank, said);
    case EventKind::kPoll:
      return on_poll(rank, said);
    case EventKind::kDone:
      return on_done(rank, said);
    case EventKind::kReady:
      return members_[rank].polls.clear();
    case EventKind::kPhase:
      return on_phase(rank);
    default:
      return;
  }
}

// What a client's code makes sure of.
void Referee::require_possible(int rank, const Event& event) const {
  const Member& member = members_[rank];
  require_of_client(event.kind != EventKind::kBlocked, "a finding of the referee's");
  require_of_client(
      !member.returned || (event.kind != EventKind::kPhase && event.kind != EventKind::kReady),
      "a place after its end");
  const bool on_purpose = event.kind == EventKind::kTouch && event.operation < 0;
  require_of_client(
      on_purpose || !is_of_operation(event.kind) || has_launched(rank, event.operation),
      "an operation that it has not launched");
  require_of_client(
      event.kind != EventKind::kDone || boxes_[rank].answer(event.operation) != Answer::kNone,
      "an operation that is complete before its answer");
  if (event.kind == EventKind::kLaunch) {
    require_possible_launch(rank, event);
  }
  const std::int64_t begin = event.offset;
  const std::int64_t end = begin + bytes_in_arena(event);
  const auto next = member.arena.lower_bound(begin);
  require_of_client(
      begin == end || ((next == member.arena.end() || next->first >= end) &&
                       (next == member.arena.begin() || std::prev(next)->second <= begin)),
      "bytes on those of an operation");
}

void Referee::require_possible_launch(int rank, const Event& launch) const {
  require_of_client(launch.operation >= 0 && !has_launched(rank, launch.operation),
                    "an operation's number");
  require_of_client(launch.group >= 0 && launch.group < static_cast<int>(groups_.size()),
                    "a group");
  const auto& members = groups_[launch.group].members;
  require_of_client(std::ranges::find(members, rank) != members.end(), "another's group");
  require_of_client(is_possible(launch, std::ssize(members)),
                    "an operation that does not fit its bytes");
}

bool Referee::has_launched(int rank, std::int64_t operation) const {
  const auto& launches = evidence_.launches[rank];
  return operation >= 0 && operation < std::ssize(launches) && launches[operation] != kNotLaunched;
}

void Referee::require_room(const Event& event) {
  static std::size_t of_all_runs = 0;
  const std::size_t texts = event.text.size() + event.detail.size() + event.shape.size();
  const std::size_t bytes =
      sizeof(Seen) + texts + (event.kind == EventKind::kValue ? event.input_bytes : 0);
  handed_in_ += bytes;
  of_all_runs += bytes;
  TORCH_CHECK(handed_in_ <= kMostHandedIn, "it told the network of more than ", kMostHandedIn >> 20,
              " MiB in one run: a loop without end?");
  TORCH_CHECK(of_all_runs <= kMostOfAllRuns, "the network was told of more than ",
              kMostOfAllRuns >> 20, " MiB in all runs");
}

bool Referee::draws_touch(const Place& place) {
  return evidence_.world.touch_on_purpose && place.phase != Phase::kEnd &&
         (place.phase == Phase::kCanary || chance_() % kMomentsForATouch == 0);
}

// Whether the last buffer that was touched on purpose was found, if there is one.
void Referee::settle_touch(int rank, bool found) {
  if (std::exchange(members_[rank].touch_due, false) && !found) {
    evidence_.doubts[rank] =
        "but a buffer in flight that was touched on purpose was not noticed: something has "
        "switched off what looks at tensors";
  }
}

void Referee::on_phase(int rank) {
  Member& member = members_[rank];
  const Phase phase = member.place.phase;
  member.in_backward = phase == Phase::kBackward;
  if (phase == Phase::kFinish) {
    member.backward.reset();
  } else if (member.in_backward && !member.backward) {
    member.backward = evidence_.of[rank].size();
  }
  if (!some_in_backward()) {
    release();
  }
  if (phase == Phase::kEnd) {
    member.returned = true;
    dismiss_partners_of_ended();
  }
}

void Referee::on_done(int rank, const Seen& done) {
  const Seen& launch = evidence_.launch_of(rank, done.operation);
  if (bytes_in_arena(launch) > 0) {  // or others begin where it does
    members_[rank].arena.erase(launch.offset);
  }
}

void Referee::on_launch(int rank, const Seen& launch) {
  const Launched launched{rank, evidence_.of[rank].size() - 1};
  auto& launches = evidence_.launches[rank];
  launches.resize(std::max<std::size_t>(launches.size(), launch.operation + 1), kNotLaunched);
  launches[launch.operation] = launched.index;
  if (bytes_in_arena(launch) > 0) {
    members_[rank].arena[launch.offset] = launch.offset + bytes_in_arena(launch);
  }
  Group& group = groups_[launch.group];
  const auto self = std::ranges::find(group.members, rank) - group.members.begin();
  if (!c10d::isP2POp(launch.type)) {
    group.waiting.at(self).push_back(launched);
    return match(group);
  }
  const int peer = group.members.at(launch.peer);
  const bool send = launch.type == c10d::OpType::SEND;
  const ChannelKey key{launch.group, send ? rank : peer, send ? peer : rank, launch.tag};
  (send ? channels_[key].sends : channels_[key].recvs).push_back(launched);
  match(key);
}

void Referee::match(Group& group) {
  while (std::ranges::none_of(group.waiting, [](const auto& list) { return list.empty(); })) {
    std::vector<Part> parts;
    std::vector<Launched> all;
    for (auto& list : group.waiting) {
      all.push_back(list.front());
      parts.push_back({&seen(list.front()), bytes(list.front())});
      list.pop_front();
    }
    std::string refusal = disagreement(parts);
    if (!refusal.empty()) {
      refusal.insert(
          0, "the ranks disagree on collective #" + std::to_string(group.done) + " of this group:");
    } else {
      try {
        exchange(parts);
      } catch (const std::exception& error) {
        refusal = what_of(error);
      }
    }
    ++group.done;
    for (const Launched& launched : all) {
      answer(launched, refusal.empty() ? Answer::kComplete : Answer::kRefused, refusal);
    }
  }
  dismiss_in(group);
}

void Referee::match(const ChannelKey& key) {
  Channel& channel = channels_[key];
  const auto [group, from, to, tag] = key;
  while (!channel.sends.empty() && !channel.recvs.empty()) {
    const Launched send = channel.sends.front();
    const Launched recv = channel.recvs.front();
    channel.sends.pop_front();
    channel.recvs.pop_front();
    std::string refusal = disagreement({&seen(send), nullptr}, from, {&seen(recv), nullptr}, to);
    if (refusal.empty()) {
      // memcpy takes no null pointer, which an empty chunk has.
      std::copy_n(bytes(send), seen(recv).output_bytes, bytes(recv));
    } else {
      refusal.insert(0, "the two ends of a message disagree:");
    }
    for (const Launched& end : {send, recv}) {
      answer(end, refusal.empty() ? Answer::kComplete : Answer::kRefused, refusal);
    }
  }
  dismiss_in(key);
}

void Referee::answer(const Launched& launched, Answer answer, const std::string& refusal) {
  // Refusals are not held: they end the rank.
  if (answer == Answer::kComplete && evidence_.world.hold && !lifted_ && some_in_backward()) {
    owed_.push_back(launched);
  } else {
    give(launched, answer, refusal);
  }
}

void Referee::give(const Launched& launched, Answer answer, const std::string& refusal) {
  const std::int64_t operation = seen(launched).operation;
  Member& member = members_[launched.rank];
  member.awaited = member.awaited == operation ? -1 : member.awaited;
  boxes_[launched.rank].give(operation, answer, refusal);
}

void Referee::on_wait(int rank, const Seen& wait) {
  Member& member = members_[rank];
  if (!wait.home) {
    return;
  }
  if (boxes_[rank].answer(wait.operation) == Answer::kNone) {
    member.awaited = wait.operation;
  }
  // Answered or not, which may hang on another rank that has lifted the hold.
  if (member.in_backward && (member.awaited == wait.operation ||
                             evidence_.launches[rank].at(wait.operation) > *member.backward)) {
    lift_hold(rank, wait.operation, "was waited for inside backward");
  }
}

void Referee::on_poll(int rank, const Seen& poll) {
  Member& member = members_[rank];
  if (poll.home && member.in_backward && ++member.polls[poll.operation] > kPollsAllowed) {
    lift_hold(rank, poll.operation,
              "was asked for its completion " + std::to_string(kPollsAllowed) +
                  " times inside backward, which is a way to wait for it");
  }
}

bool Referee::some_in_backward() const {
  return std::ranges::any_of(
      members_, [](const Member& member) { return member.in_backward && !member.ended(); });
}

// Backward stands still: that is the finding, and the ranks may go on. One for each rank, so that it
// does not matter which is the first.
void Referee::lift_hold(int rank, std::int64_t operation, const std::string& how) {
  if (!evidence_.world.hold || std::exchange(members_[rank].blocked, true)) {
    return;
  }
  Seen finding;
  finding.kind = EventKind::kBlocked;
  finding.operation = operation;
  finding.order = static_cast<std::int64_t>(evidence_.of[rank].size());
  finding.place = members_[rank].place;
  finding.text = how;
  evidence_.of[rank].push_back(finding);
  lifted_ = true;
  release();
}

void Referee::release() {
  for (const Launched& launched : std::exchange(owed_, {})) {
    give(launched, Answer::kComplete);
  }
}

void Referee::rank_ended(int rank, bool finished) {
  turn();  // what it said last
  settle_touch(rank, /*found=*/false);
  const auto& launches = evidence_.launches[rank];
  if (!evidence_.world.failure && std::ranges::find(launches, kNotLaunched) != launches.end()) {
    evidence_.doubts[rank] = "but of an operation that it had numbered nothing was heard";
  }
  if (!finished) {
    members_[rank].failed = true;
    if (!some_in_backward()) {
      release();
    }
    dismiss_partners_of_ended();
  }
}

// A rank that waits for one that has ended waits in vain.
void Referee::dismiss_partners_of_ended() {
  for (Group& group : groups_) {
    dismiss_in(group);
  }
  for (auto& [key, channel] : channels_) {
    dismiss_in(key);
  }
}

void Referee::dismiss(std::list<Launched>& waiting, int gone, const std::string& missing) {
  for (const Launched& launched : waiting) {
    const char* how = members_[gone].failed ? " has failed" : " has already returned";
    answer(launched, Answer::kGone, rank_text(gone) + how + missing);
  }
  waiting.clear();
}

void Referee::dismiss_in(Group& group) {
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const Member& member = members_[group.members[i]];
    if (group.waiting[i].empty() && member.ended()) {
      for (auto& list : group.waiting) {
        dismiss(list, group.members[i], " without joining it");
      }
    }
  }
}

void Referee::dismiss_in(const ChannelKey& key) {
  const auto [group, from, to, tag] = key;
  Channel& channel = channels_[key];
  if (members_[from].ended()) {
    dismiss(channel.recvs, from, " without a send for it");
  }
  if (members_[to].ended()) {
    dismiss(channel.sends, to, " without a recv for it");
  }
}

Evidence run_refereed(const World& world, ForkOptions options, const RefereedScenario& scenario) {
  options.world_size = world.ranks;
  const Mailroom mailroom(world.ranks);
  Referee referee(world, mailroom, options);
  RankReports reports = fork_ranks(
      options,
      [&](RankContext& context) {
        // Not destroyed: handles and threads of the code under test may outlive the scenario.
        static std::shared_ptr<Client> client;
        mailroom.enter(context.rank);
        client =
            std::make_shared<Client>(world, context.rank, mailroom.of(context.rank, context.bell));
        scenario(*client, context);
        Place end = client->place();
        end.phase = Phase::kEnd;
        client->go_to(end);
      },
      &referee);
  Evidence evidence = referee.take_evidence();
  evidence.reports = std::move(reports);
  return evidence;
}

}  // namespace ddp
