#include "ddp/launching/meeting.h"

#include <c10/util/Exception.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "ddp/ranks/file_descriptor.h"

namespace ddp {

namespace {

constexpr auto kMeetingTime = std::chrono::minutes(2);
constexpr auto kPartingTime = std::chrono::seconds(10);
constexpr const char* kInterface = "GLOO_SOCKET_IFNAME";

std::string machine_key(int rank) { return "machine/" + std::to_string(rank); }
std::string ended_key(int rank) { return "ended/" + std::to_string(rank); }
std::string address_key(int rank) { return "address/" + std::to_string(rank); }
// The two ends of a rank's way to rank 0's store.
std::string here_key(int rank) { return "here/" + std::to_string(rank); }
std::string there_key(int rank) { return "there/" + std::to_string(rank); }

std::vector<std::string> keys_of_all(int world_size, std::string (*key)(int)) {
  std::vector<std::string> keys(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    keys[rank] = key(rank);
  }
  return keys;
}

std::string this_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code ignored;
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", ignored);
  return host_name() + " " + boot + " " + network.string();
}

std::chrono::milliseconds meeting_time() { return longest_wait(kMeetingTime); }

std::string seconds(std::chrono::milliseconds time) {
  return std::to_string(time.count() / 1'000) + " s";
}

std::string master_of(const LaunchEnvironment& environment) {
  return environment.master_addr + ":" + std::to_string(environment.master_port);
}

StorePtr connect(const LaunchEnvironment& environment) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(environment.master_port);
  options.isServer = environment.rank == 0 && !environment.store_is_served;
  options.waitWorkers = false;  // meet() waits, and can name the missing ranks
  options.timeout = meeting_time();
  try {
    return c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    TORCH_CHECK(!options.isServer, "cannot keep the ranks' store at ", master_of(environment),
                " (MASTER_ADDR, MASTER_PORT): ", what);
    TORCH_CHECK(false, "did not reach rank 0 within ", seconds(meeting_time()), " at ",
                master_of(environment),
                " (MASTER_ADDR, MASTER_PORT): ", what.substr(0, what.find('\n')));
  }
}

// Where this rank can be reached, as far as it knows by itself.
std::string own_address(const RankContext& context) {
  const char* interface = std::getenv(kInterface);
  if (interface != nullptr && *interface != '\0') {
    return address_of_interface(interface);
  }
  std::string here = context.store->get_to_str(here_key(context.rank));
  if (!here.empty() && !is_loopback(here)) {
    return here;
  }
  // On rank 0's machine the way there is short: where do the others send to?
  for (int rank = 0; rank < context.world_size; ++rank) {
    if (!is_loopback(context.store->get_to_str(here_key(rank)))) {
      return context.store->get_to_str(there_key(rank));
    }
  }
  return here;
}

}  // namespace

StorePtr meet(const LaunchEnvironment& environment) {
  // Lives as long as the process: rank 0's store serves several meetings, one after the other.
  static const auto* connection = new StorePtr(connect(environment));
  static int meetings = 0;
  StorePtr store = c10::make_intrusive<c10d::PrefixStore>(
      "ddp_lab/meeting/" + std::to_string(meetings++), *connection);
  const Route route = route_to(environment.master_addr, environment.master_port);
  store->set(here_key(environment.rank), route.here);
  store->set(there_key(environment.rank), route.there);
  store->set(machine_key(environment.rank), this_machine());
  const auto keys = keys_of_all(environment.world_size, machine_key);
  try {
    store->wait(keys, meeting_time());
  } catch (const c10::Error&) {
    std::string missing;
    for (int rank = 0; rank < environment.world_size; ++rank) {
      if (!store->check({keys[rank]})) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      }
    }
    TORCH_CHECK(false, "of ", environment.world_size, " ranks these did not arrive within ",
                seconds(meeting_time()), " at ", master_of(environment), ": ", missing,
                ". Were they started, and what did they print?");
  }
  return store;
}

void part(c10d::Store& store, const LaunchEnvironment& environment) {
  store.set(ended_key(environment.rank), std::string());
  if (environment.rank > 0 || environment.store_is_served) {
    return;
  }
  const auto keys = keys_of_all(environment.world_size, ended_key);
  try {
    store.wait(keys, kPartingTime);
  } catch (const c10::Error&) {
    // A rank that still runs no longer needs the store, or has failed and reported it.
  }
}

std::string machine_of(c10d::Store& store, int rank) { return store.get_to_str(machine_key(rank)); }

std::string agree_on_address(const RankContext& context) {
  std::string mine;
  std::string problem;
  try {
    mine = own_address(context);
  } catch (const c10::Error& error) {  // said by all: nobody waits for this rank
    problem = error.what_without_backtrace();
  }
  context.store->set(address_key(context.rank), problem.empty() ? mine : "! " + problem);
  const auto keys = keys_of_all(context.world_size, address_key);
  for (int rank = 0; rank < context.world_size; ++rank) {
    const std::string address = context.store->get_to_str(keys[rank]);
    const std::string machine = machine_of(*context.store, rank);
    const bool usable = !address.empty() && !is_loopback(address) && !address.starts_with("! ");
    TORCH_CHECK(usable, "rank ", rank, " on ", machine.substr(0, machine.find(' ')),
                " cannot be reached from other machines: ",
                address.starts_with("! ") ? address.substr(2) : "it listens at \"" + address + "\"",
                ". Set ", kInterface,
                ", on each machine, to the interface that leads to the others (ip -brief address)");
  }
  return mine;
}

namespace {

std::string numeric(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  return getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0
             ? text.data()
             : "";
}

// What getsockname() or getpeername() says of a socket.
template <typename Ask>
std::string end_of(int socket, Ask ask) {
  sockaddr_storage storage{};
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = sizeof(storage);
  return ask(socket, address, &size) == 0 ? numeric(address, size) : "";
}

}  // namespace

Route route_to(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;  // to connect() such a socket only asks the routing table
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const FileDescriptor way(socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (way.get() >= 0 && connect(way.get(), each->ai_addr, each->ai_addrlen) == 0) {
      return {end_of(way.get(), getsockname), end_of(way.get(), getpeername)};
    }
  }
  return {};
}

std::string address_of_interface(const std::string& name) {
  ifaddrs* found = nullptr;
  TORCH_CHECK(getifaddrs(&found) == 0, "cannot list this machine's network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(found, &freeifaddrs);
  std::string others;
  for (const int family : {AF_INET, AF_INET6}) {
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) {
        continue;
      }
      std::string address = numeric(each->ifa_addr, size);
      if (name == each->ifa_name) {
        return address;
      }
      if (!is_loopback(address) &&
          address.find('%') == std::string::npos) {  // nor of one link alone
        others += (others.empty() ? "" : ", ") + std::string(each->ifa_name) + " (" + address + ")";
      }
    }
  }
  C10_THROW_ERROR(ValueError, "this machine has no network interface \"" + name +
                                  "\" with an address; those to others are: " +
                                  (others.empty() ? "none" : others));
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

}  // namespace ddp
