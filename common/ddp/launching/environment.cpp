#include "ddp/launching/environment.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace ddp {

namespace {

class Variables {
 public:
  explicit Variables(const GetVariable& get_variable) : get_variable_(get_variable) {}

  std::optional<std::string> text(const char* name) const {
    const char* value = get_variable_(name);
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
  }

  bool has(const char* name) const { return text(name).has_value(); }

  std::optional<int> number(const char* name) const {
    const auto value = text(name);
    if (!value) {
      return std::nullopt;
    }
    int result = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, result);
    TORCH_CHECK_VALUE(error == std::errc() && stop == end && result >= 0, name, "=\"", *value,
                      "\" in the environment is not a number from 0 on");
    return result;
  }

 private:
  const GetVariable& get_variable_;
};

template <typename Value>
Value required(const std::optional<Value>& value, const char* name) {
  TORCH_CHECK_VALUE(value.has_value(), "the environment has RANK or WORLD_SIZE, but no ", name,
                    ": start the program by torchrun, or set it for every rank, or unset both");
  return *value;
}

}  // namespace

std::optional<LaunchEnvironment> read_launch_environment(const GetVariable& get_variable) {
  const Variables variables(get_variable);
  if (!variables.has("RANK") && !variables.has("WORLD_SIZE")) {
    return std::nullopt;
  }
  const auto number = [&](const char* name) { return required(variables.number(name), name); };
  LaunchEnvironment result;
  result.rank = number("RANK");
  result.world_size = number("WORLD_SIZE");
  TORCH_CHECK_VALUE(result.rank < result.world_size, "RANK=", result.rank,
                    " in the environment must be less than WORLD_SIZE=", result.world_size);
  result.local_rank = variables.number("LOCAL_RANK").value_or(result.rank);
  result.master_addr = required(variables.text("MASTER_ADDR"), "MASTER_ADDR");
  result.master_port = number("MASTER_PORT");
  TORCH_CHECK_VALUE(result.master_port >= 1 && result.master_port <= 65535,
                    "MASTER_PORT=", result.master_port,
                    " in the environment is not a port: 1 to 65535");
  result.store_is_served = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return result;
}

std::chrono::milliseconds longest_wait(std::chrono::milliseconds usual,
                                       const GetVariable& get_variable) {
  const auto given = Variables(get_variable).number("DDP_LAB_TIMEOUT_S");
  TORCH_CHECK_VALUE(given != 0, "DDP_LAB_TIMEOUT_S=0 in the environment: nothing is done at once");
  return given ? std::min<std::chrono::milliseconds>(usual, std::chrono::seconds(*given)) : usual;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace ddp
