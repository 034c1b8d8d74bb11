#pragma once

#include <string>

namespace ddp {

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
