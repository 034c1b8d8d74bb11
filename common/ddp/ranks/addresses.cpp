#include "ddp/ranks/addresses.h"

#include <c10/util/Exception.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <memory>

#include "ddp/ranks/file_descriptor.h"

namespace ddp {

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
