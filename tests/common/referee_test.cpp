// The referee: data that it moves, waits in backward, ranks that disagree or wait for each other.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "common/checks.h"
#include "common/referee_runs.h"
#include "ddp/collectives.h"
#include "ddp/libtorch_versions.h"

namespace ddp {
namespace {

using testing::expect_contains;

void go_to(const std::shared_ptr<Client>& client, Phase phase) { client->go_to({.phase = phase}); }

TEST(Referee, MovesTheDataOfCollectives) {
  const Evidence evidence = run_as({.ranks = 3}, [](const auto& client, const auto& group) {
    const double mine = client->rank() + 1;
    at::Tensor sum = at::full({3}, mine);
    all_reduce(sum, group);
    client->value("sum", sum);
    at::Tensor average = at::full({2}, mine, at::kDouble);
    all_reduce(average, group, ReduceOp::kAverage);
    client->value("average", average);
    at::Tensor from_2 = at::full({2}, mine);
    broadcast(from_2, group, 2);
    client->value("broadcast", from_2);
    client->value("gathered", all_gather(at::full({1}, mine), group));
    at::Tensor given = at::arange(6).to(at::kFloat) + 10 * mine;
    at::Tensor taken = at::zeros({6});
    std::vector<std::int64_t> equal;
    ((*group).*kAllToAllSingle)(taken, given, equal, equal, {})->wait();
    client->value("taken", taken);
    std::vector<at::Tensor> part = {at::zeros({2})};
    std::vector<std::vector<at::Tensor>> parts = {
        {given.chunk(3)[0], given.chunk(3)[1], given.chunk(3)[2]}};
    group->reduce_scatter(part, parts)->wait();
    client->value("part", part[0]);
    barrier(group);
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(value_of(evidence, rank, "sum").equal(at::full({3}, 6.0)));
    EXPECT_TRUE(value_of(evidence, rank, "average").equal(at::full({2}, 2.0, at::kDouble)));
    EXPECT_TRUE(value_of(evidence, rank, "broadcast").equal(at::full({2}, 3.0)));
    EXPECT_TRUE(
        value_of(evidence, rank, "gathered").flatten().equal(at::tensor({1.0F, 2.0F, 3.0F})));
    const at::Tensor own = at::arange(2 * rank, 2 * rank + 2).to(at::kFloat);
    EXPECT_TRUE(value_of(evidence, rank, "taken").equal(at::cat({own + 10, own + 20, own + 30})));
    EXPECT_TRUE(value_of(evidence, rank, "part").equal(own * 3 + 60));
  }
}

TEST(Referee, MessagesArriveByGroupAndTag) {
  const World world{.ranks = 3, .subgroups = {{2, 0}}};
  const Evidence evidence = run_as(world, [](const auto& client, const auto& group) {
    if (client->rank() == 1) {
      return;
    }
    const auto pair = make_group(client, 1);  // whose rank 0 is rank 2
    at::Tensor first = at::zeros({1});
    at::Tensor second = at::zeros({1});
    if (client->rank() == 2) {
      const WorkPtr one = send_async(at::full({1}, 1.0), 0, group, 7);
      send(at::full({1}, 2.0), 1, pair, 7);
      one->wait();
    } else {
      recv(second, 0, pair, 7);
      recv(first, 2, group, 7);
      client->value("first", first);
      client->value("second", second);
    }
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  EXPECT_EQ(value_of(evidence, 0, "first").item<float>(), 1);
  EXPECT_EQ(value_of(evidence, 0, "second").item<float>(), 2);
}

// Waits by handle, by future, and by a thread that backward waits for.
TEST(Referee, FindsEveryKindOfWaitInBackward) {
  const std::vector<std::function<void(const WorkPtr&)>> waits = {
      [](const WorkPtr& work) { work->wait(); },
      [](const WorkPtr& work) { work->getFuture()->wait(); },
      [](const WorkPtr& work) { std::thread([&] { work->wait(); }).join(); },
      [](const WorkPtr& work) {
        while (!work->isCompleted()) {
        }
      }};
  for (const auto& wait : waits) {
    const Evidence evidence = run_as({}, [&](const auto& client, const auto& group) {
      go_to(client, Phase::kBackward);
      const at::Tensor tensor = at::ones({2});
      const WorkPtr work = all_reduce_async(tensor, group);
      wait(work);
      go_to(client, Phase::kFinish);
      client->value("sum", tensor);
    });
    ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
    const bool found = first_of(evidence, 0, EventKind::kBlocked) != nullptr ||
                       first_of(evidence, 1, EventKind::kBlocked) != nullptr;
    EXPECT_TRUE(found);
    EXPECT_TRUE(value_of(evidence, 0, "sum").equal(at::full({2}, 2.0)));
  }
}

TEST(Referee, ALookIsNoWait) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    go_to(client, Phase::kBackward);
    const WorkPtr work = all_reduce_async(at::ones({2}), group);
    EXPECT_FALSE(work->isCompleted());
    go_to(client, Phase::kFinish);
    work->wait();
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  EXPECT_EQ(first_of(evidence, 0, EventKind::kBlocked), nullptr);
}

TEST(Referee, FindsWhatTouchesABufferInFlight) {
  const std::vector<std::function<void(const at::Tensor&)>> touches = {
      [](const at::Tensor& tensor) { tensor.div_(2); },
      [](const at::Tensor& tensor) { static_cast<void>(tensor.norm()); },
      [](const at::Tensor& tensor) { tensor.data_ptr<float>()[1] = 5; }};
  for (const auto& touch : touches) {
    const Evidence evidence = run_as({}, [&](const auto& client, const auto& group) {
      const AccessWatch watch(*client);
      const at::Tensor tensor = at::ones({4});
      client->name({{"weight", tensor}});
      const WorkPtr work = all_reduce_async(tensor, group);
      touch(tensor);
      work->wait();
    });
    const Seen* found = first_of(evidence, 1, EventKind::kTouch);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->text, "weight");
  }
}

TEST(Referee, AStoreIsRefused) {
  const Evidence evidence =
      run_as({}, [](const auto&, const auto& group) { group->getStore()->getNumKeys(); });
  expect_contains(evidence.reports.describe(), "store was used");
}

TEST(Referee, InASlowWorldAShortWaitFails) {
  const Evidence evidence = run_as({.slow = true}, [](const auto& client, const auto& group) {
    const WorkPtr work = all_reduce_async(at::ones({2}), group);
    EXPECT_FALSE(work->isCompleted());
    EXPECT_THROW(work->wait(std::chrono::milliseconds(200)), c10::Error);
    work->wait();
  });
  EXPECT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
}

TEST(Referee, RanksThatDisagreeAreNamed) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    all_reduce(at::zeros({2 + client->rank()}), group);
  });
  ASSERT_FALSE(evidence.reports.ok());
  const std::string text = evidence.reports.describe();
  expect_contains(text, "the ranks disagree on collective #0");
  expect_contains(text, "rank 1: all-reduce (sum) of a tensor float32 [3]");
  expect_contains(text, "at tests/common/referee_test.cpp:");
}

TEST(Referee, WhoWaitsForAnEndedRankIsToldSo) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    if (client->rank() == 0) {
      all_reduce(at::zeros({2}), group);
    }
  });
  const std::string text = evidence.reports.describe();
  expect_contains(text, "rank 1 has already returned without joining it\n    at tests/common/");
}

TEST(Referee, ADeadlockIsKnownAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    send(at::zeros({2}), 1 - client->rank(), group);
    recv(at::zeros({2}), 1 - client->rank(), group);
  });
  const std::string text = evidence.reports.describe();
  expect_contains(text, "until rank 1 receives it\n    rank 1 waits for send #0");
  expect_contains(text, "last seen: waits for send #0");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Referee, ADeadlockNamesItsCircle) {
  const Evidence evidence = run_as({.ranks = 4}, [](const auto& client, const auto& group) {
    if (client->rank() == 0) {
      return recv(at::zeros({2}), 1, group);  // waits for the circle, and is no part of it
    }
    recv(at::zeros({2}), client->rank() == 1 ? 3 : client->rank() - 1, group);
  });
  const std::string text = evidence.reports.describe();
  expect_contains(text, "in a circle: rank 1 -> rank 3 -> rank 2 -> rank 1:\n");
}

// Each of two threads has its own two partners, one for each tag.
TEST(Referee, TwoThreadsOfARankMayLaunch) {
  constexpr int kMessages = 100;
  const Evidence evidence = run_as({.ranks = 3}, [](const auto& client, const auto& group) {
    std::array<std::thread, 2> threads;
    std::array<at::Tensor, 2> sums = {at::zeros({1}), at::zeros({1})};
    for (int tag : {0, 1}) {
      threads[tag] = std::thread([&, tag] {
        const int step = tag == 0 ? 1 : 2;
        for (int i = 0; i < kMessages; ++i) {
          const at::Tensor incoming = at::zeros({1});
          const WorkPtr sending = send_async(at::full({1}, 10.0 * client->rank() + tag),
                                             (client->rank() + step) % 3, group, tag);
          recv(incoming, (client->rank() + 3 - step) % 3, group, tag);
          sending->wait();
          sums[tag] += incoming;
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    client->value("sums", at::cat({sums[0], sums[1]}));
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  for (int rank = 0; rank < 3; ++rank) {
    const at::Tensor sums = value_of(evidence, rank, "sums");
    EXPECT_EQ(sums[0].item<double>(), kMessages * 10.0 * ((rank + 2) % 3));
    EXPECT_EQ(sums[1].item<double>(), kMessages * (10.0 * ((rank + 1) % 3) + 1));
  }
}

// The order of two threads' collectives is up to chance, and may differ between ranks.
TEST(Referee, CollectivesOfTwoThreadsAreRightOrRefused) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    const auto launch = [&](std::int64_t size) {
      for (int i = 0; i < 50; ++i) {
        const at::Tensor tensor = at::ones({size});
        all_reduce(tensor, group);
        TORCH_CHECK(tensor.eq(2).all().template item<bool>(), "a wrong sum");
      }
    };
    std::array<std::string, 2> refused;
    std::thread other([&] { refused[1] = testing::error_of([&] { launch(3); }); });
    refused[0] = testing::error_of([&] { launch(2); });
    other.join();
    for (const std::string& text : refused) {
      client->threw("launches", text);
    }
  });
  for (int rank : {0, 1}) {
    int threads = 0;
    for (const Seen& seen : evidence.of[rank]) {
      if (seen.kind == EventKind::kThrew) {
        ++threads;
        EXPECT_TRUE(seen.detail == "no error" ||
                    seen.detail.starts_with("the ranks disagree on collective") ||
                    seen.detail.starts_with("waits in vain"))
            << seen.detail;
      }
    }
    EXPECT_EQ(threads, 2) << evidence.reports.describe();
  }
}

TEST(Referee, AnEndlessLoopIsToldFromAWait) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    if (client->rank() == 1) {
      volatile bool forever = true;
      while (forever) {
      }
    }
    all_reduce(at::zeros({2}), group);
  });
  ASSERT_EQ(evidence.reports.culprit, 1) << evidence.reports.describe();
  expect_contains(evidence.reports.describe(), "an endless loop?");
}

TEST(Referee, WhoSaysThingsWithoutEndIsStopped) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto&) {
    while (client->rank() == 1) {
      client->fact("the same again", 1);
    }
  });
  ASSERT_EQ(evidence.reports.culprit, 1) << evidence.reports.describe();
  expect_contains(evidence.reports.describe(), "told the network of more than");
}

TEST(Referee, WhoTouchesOnPurposeWithoutEndIsStopped) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto&) {
    while (client->rank() == 1) {
      client->say(EventKind::kTouch, -1);
    }
  });
  ASSERT_EQ(evidence.reports.culprit, 1) << evidence.reports.describe();
  expect_contains(evidence.reports.describe(), "told the network of more than");
}

// What a rank has read could be a tensor's name, or the text of its shape.
TEST(Referee, NamesThatTheLabDoesNotGiveAreWithheld) {
  const auto kept = [](EventKind kind, const std::string& name, const std::string& shape) {
    Event event{{.kind = kind}};
    event.text = name;
    event.shape = shape;
    withhold_names(event);
    return event.text + event.shape;
  };
  EXPECT_EQ(kept(EventKind::kLaunch, "the gradients of layer 7 and 2 others", "[2, 3] [4]"),
            "the gradients of layer 7 and 2 others[2, 3] [4]");
  EXPECT_EQ(kept(EventKind::kTouch, "the gradient of fc1.weight", ""),
            "the gradient of fc1.weight");
  EXPECT_EQ(kept(EventKind::kLaunch, "layer 7 is what it read", "read"), "a tensor");
  EXPECT_EQ(kept(EventKind::kTouch, "read", ""), "a tensor");
  EXPECT_EQ(kept(EventKind::kLaunch, "", ""), "") << "a barrier";
  EXPECT_EQ(kept(EventKind::kFact, "held: threads", ""), "held: threads");
}

// Each wait says what itself waits for, and of whom.
TEST(Referee, EachOfSeveralOperationsIsToldItsOwnReason) {
  const Evidence evidence = run_as({.ranks = 3}, [](const auto& client, const auto& group) {
    if (client->rank() > 0) {
      return;
    }
    const std::vector<WorkPtr> works = {recv_async(at::zeros({2}), 1, group),
                                        recv_async(at::zeros({2}), 2, group),
                                        all_reduce_async(at::zeros({2}), group)};
    for (const WorkPtr& work : works) {
      try {
        work->wait();
      } catch (const c10::Error& error) {
        client->threw("wait", error.what_without_backtrace());
      }
    }
  });
  std::vector<std::string> told;
  for (const Seen& seen : evidence.of[0]) {
    if (seen.kind == EventKind::kThrew) {
      told.push_back(seen.detail);
    }
  }
  ASSERT_EQ(told.size(), 3);
  expect_contains(told[0],
                  "recv #0 of a tensor float32 [2] (8 bytes): rank 1 has already returned");
  expect_contains(told[1],
                  "recv #1 of a tensor float32 [2] (8 bytes): rank 2 has already returned");
  expect_contains(told[2], "all-reduce #2 of a tensor float32 [2] (8 bytes): rank ");
}

TEST(Referee, WhoHasTooMuchInFlightIsToldWhat) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    const at::Tensor large = at::zeros({100 << 20}, at::kByte);
    for (int i = 0; i < 3 && client->rank() == 0; ++i) {
      send_async(large, 1, group);
    }
    barrier(group);
  });
  expect_contains(evidence.reports.describe(),
                  "rank 0 has more than 256 MiB in flight: send #0 of");
}

// Whoever can write into its mailbox can forge each of these.
TEST(Referee, WhatNoClientPostsEndsTheRank) {
  const auto launch = [](EventData data, Client& client) {
    data.kind = EventKind::kLaunch;
    client.launch({data}, [](char*) {});
  };
  using OpType = c10d::OpType;
  const std::vector<std::function<void(Client&)>> forgeries = {
      [](Client& client) { client.say(EventKind::kWait, 7); },
      [](Client& client) { client.say(EventKind::kBlocked, 0); },
      [](Client& client) { client.say(EventKind::kThrew, Mailbox::kOperations); },
      [&](Client& client) { launch({.type = OpType::SEND, .operation = 0}, client); },
      [&](Client& client) {
        launch({.type = OpType::BROADCAST, .peer = 2, .operation = 0}, client);
      },
      [&](Client& client) {
        launch({.type = OpType::BARRIER, .group = 1, .operation = 0}, client);
      },
      [&](Client& client) {
        launch({.type = OpType::ALLREDUCE, .operation = 0, .bytes = 8, .input_bytes = 16}, client);
      },
      [&](Client& client) {
        launch({.type = OpType::BARRIER, .dtype = at::kQInt8, .operation = 0}, client);
      },
      [&](Client& client) { launch({.type = OpType{50}, .operation = 0}, client); },
      [&](Client& client) {  // and what is behind the bytes that are sent to it
        launch({.type = OpType::RECVANYSOURCE, .peer = 0, .operation = 0, .output_bytes = 64},
               client);
      },
      [&](Client& client) {
        launch({.type = OpType::SEND, .peer = 0, .operation = 0}, client);
        launch({.type = OpType::SEND, .peer = 0, .operation = 0}, client);
      },
      [&](Client& client) {
        launch({.type = OpType::RECV, .peer = 0, .operation = 0}, client);
        client.say(EventKind::kDone, 0);
      },
      [](Client& client) {
        client.go_to({.phase = Phase::kEnd});
        client.go_to({.phase = Phase::kSetup});
      }};
  for (std::size_t i = 0; i < forgeries.size(); ++i) {
    const Evidence evidence = run_as({}, [&](const auto& client, const auto& group) {
      if (client->rank() == 1) {
        forgeries[i](*client);
      }
      all_reduce(at::zeros({2}), group);
    });
    const std::string text = evidence.reports.describe();
    EXPECT_EQ(evidence.reports.culprit, 1) << i << text;
    expect_contains(text, "rank 1 was ended: its mailbox holds what no client posts: ");
    expect_contains(text, "rank 0 gave up: waits in vain for all-reduce #0");
  }
}

// Ranks that agree on an operation that needs more bytes than they gave.
TEST(Referee, NoOperationReachesBeyondItsBytes) {
  using OpType = c10d::OpType;
  constexpr std::int64_t kMuch = Mailbox::kArenaBytes / 4;
  const std::vector<EventData> launches = {
      {.type = OpType::_REDUCE_SCATTER_BASE, .bytes = 8, .input_bytes = 8, .output_bytes = kMuch},
      {.type = OpType::SCATTER, .peer = 0, .bytes = kMuch, .input_bytes = 8, .output_bytes = kMuch},
      {.type = OpType::ALLREDUCE, .bytes = 6, .input_bytes = 6, .output_bytes = 6},
      {.type = OpType::ALLGATHER, .bytes = 8, .input_bytes = 8, .output_bytes = kMuch},
      {.type = OpType::ALLTOALL, .bytes = 8, .input_bytes = 24, .output_bytes = kMuch}};
  for (EventData data : launches) {
    data.kind = EventKind::kLaunch;
    data.operation = 0;
    const Evidence evidence = run_as({}, [&](const auto& client, const auto&) {
      client->launch({data}, [&](char* bytes) { std::memset(bytes, 0x7F, data.input_bytes); });
      client->fact("answer", static_cast<std::int64_t>(client->await(0)));
    });
    ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
    EXPECT_EQ(first_of(evidence, 1, EventKind::kFact)->number,
              static_cast<std::int64_t>(Answer::kRefused));
  }
}

TEST(Referee, WhatIsTouchedOnPurposeMustBeFound) {
  for (const bool watched : {true, false}) {
    const Evidence evidence =
        run_as({.touch_on_purpose = true}, [&](const auto& client, const auto&) {
          std::optional<AccessWatch> watch;
          if (watched) {
            watch.emplace(*client);
          }
          for (int step = 0; step < 30; ++step) {
            client->go_to({.step = step});
          }
          go_to(client, Phase::kCanary);
        });
    ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
    EXPECT_EQ(evidence.doubts[0].empty(), watched) << evidence.doubts[0];
    EXPECT_EQ(first_of(evidence, 0, EventKind::kTouch), nullptr);
    EXPECT_EQ(evidence.of[0].size(), 31);  // of which one is the end
  }
}

TEST(Referee, AReadBehindAnInPlaceChunkIsFound) {
  const Evidence evidence = run_as({}, [](const auto& client, const auto& group) {
    const AccessWatch watch(*client);
    at::Tensor whole = at::ones({4});
    at::Tensor own = whole.narrow(0, 2 * client->rank(), 2);
    const WorkPtr work = ((*group).*kAllGatherSingle)(whole, own, {});
    static_cast<void>(whole.narrow(0, 3, 1).norm());
    work->wait();
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  EXPECT_NE(first_of(evidence, 1, EventKind::kTouch), nullptr);
}

// Whether the page of an address is there in this process.
bool is_mapped(const void* address) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  void* const begin =
      reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) / page * page);
  return mincore(begin, 1, &resident) == 0;
}

TEST(Referee, LaterRanksAreNotGivenTheEvidence) {
  const std::vector<std::int64_t> sizes = {0, 1, 100'000, 3, 200'000, 1'000'000, 0, 5};
  const Evidence evidence = run_as({}, [&](const auto& client, const auto&) {
    for (const std::int64_t elements : sizes) {
      client->value(std::to_string(elements), at::arange(elements).to(at::kInt));
    }
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  std::vector<const void*> places = {evidence.of[0].data(), evidence.of[1].data()};
  for (const std::int64_t elements : sizes) {
    for (int rank : {0, 1}) {
      const at::Tensor value = value_of(evidence, rank, std::to_string(elements));
      EXPECT_TRUE(at::equal(value, at::arange(elements).to(at::kInt))) << elements;
      places.push_back(elements > 0 ? value.const_data_ptr() : places[0]);
    }
  }
  EXPECT_TRUE(std::ranges::all_of(places, is_mapped));
  const RankReports reports = fork_ranks({.world_size = 2}, [&](RankContext&) {
    TORCH_CHECK(std::ranges::none_of(places, is_mapped), "a rank has the evidence");
  });
  EXPECT_TRUE(reports.ok()) << reports.describe();
}

// By what this process could tell another something, or be told, if that had it, too: shared memory, pipes, bells.
std::set<std::string> channels() {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t rights = line.find(' ') + 1;
    const bool only_a_file = line.at(rights + 1) != 'w' && line.find("/dev/zero") == line.npos;
    if (line.at(rights + 3) == 's' && !only_a_file) {
      found.insert(line.substr(0, rights - 1));
    }
  }
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(file, gone).string();
    if (target.starts_with("pipe:")) {
      found.insert(target);
    } else if (target.starts_with("anon_inode:")) {
      std::ifstream info("/proc/self/fdinfo/" + file.path().filename().string());
      const std::string text{std::istreambuf_iterator<char>(info), {}};
      found.insert(text.substr(text.find("eventfd-id:")));
    }
  }
  return found;
}

bool are_one(const std::string& channel, const std::string& other) {
  std::array<std::uintptr_t, 4> ends{};
  const std::string both = channel + " " + other;
  const int found =
      std::sscanf(both.c_str(), "%lx-%lx %lx-%lx", &ends[0], &ends[1], &ends[2], &ends[3]);
  return found == 4 ? ends[0] < ends[3] && ends[2] < ends[1] : channel == other;
}

TEST(Referee, RanksHaveNoWayToEachOtherButOperations) {
  const Evidence evidence = run_refereed({}, {}, [](Client&, RankContext& context) {
    for (const std::string& channel : channels()) {
      context.send_to_parent(channel);
    }
  });
  ASSERT_TRUE(evidence.reports.ok()) << evidence.reports.describe();
  const auto& ranks = evidence.reports.ranks;
  EXPECT_GE(ranks[0].messages.size(), 5);  // two parts of a mailbox, bell, output, report
  for (const std::string& channel : ranks[0].messages) {
    for (const std::string& other : ranks[1].messages) {
      EXPECT_FALSE(are_one(channel, other)) << channel << " and " << other;
    }
  }
}

}  // namespace
}  // namespace ddp
