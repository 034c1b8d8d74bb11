#pragma once

#include <chrono>
#include <string>

#include "ddp/launching/environment.h"
#include "ddp/launching/process_group.h"
#include "ddp/ranks/fork_ranks.h"

// How ranks that a launcher has started, each on some machine, find each other.

namespace ddp {

/// Waits for all ranks. Returns their store, of which every call gets a part of its own. Throws
/// c10::Error if rank 0 cannot be reached, or names the ranks that did not come.
StorePtr meet(const LaunchEnvironment& environment);

/// Ends what meet() began. Rank 0, which serves the store, leaves last; but it does not wait long
/// for ranks that may have died.
void part(c10d::Store& store, const LaunchEnvironment& environment);

/// Equal for two ranks that met if and only if they reach each other by the loopback address: they
/// run on the same booted system, in the same network namespace (a container may have its own).
std::string machine_of(c10d::Store& store, int rank);

/// Where this rank listens for those of other machines: at the interface in GLOO_SOCKET_IFNAME, or
/// else where its way to rank 0 begins. Collective. Throws c10::Error, on all ranks, if others cannot
/// reach one of the addresses.
std::string agree_on_address(const RankContext& context);

/// The numeric addresses at the two ends of the way from this machine to another.
struct Route {
  std::string here;
  std::string there;
};

/// How this machine would send to a host; nothing is sent. Both are empty where it has no way.
Route route_to(const std::string& host, int port);

/// The address of a network interface, IPv4 if it has one. Throws c10::ValueError, which lists those
/// that there are, if it has none.
std::string address_of_interface(const std::string& name);

/// Whether an address is each machine's own: 127.0.0.1 and its like. So is "localhost".
bool is_loopback(const std::string& address);

}  // namespace ddp
