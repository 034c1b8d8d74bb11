#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace ddp {

/// The store of a group whose ranks may talk by the group alone: whoever uses it is told so.
class NoStore : public c10d::Store {
 public:
  c10::intrusive_ptr<Store> clone() override { return c10::make_intrusive<NoStore>(); }
  void set(const std::string&, const std::vector<std::uint8_t>&) override { refuse(); }
  std::vector<std::uint8_t> get(const std::string&) override { refuse(); }
  std::int64_t add(const std::string&, std::int64_t) override { refuse(); }
  bool deleteKey(const std::string&) override { refuse(); }
  bool check(const std::vector<std::string>&) override { refuse(); }
  std::int64_t getNumKeys() override { refuse(); }
  void wait(const std::vector<std::string>&) override { refuse(); }
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {
    refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    TORCH_CHECK(false,
                "the group's store was used: ranks may communicate by the operations of the group "
                "alone");
  }
};

}  // namespace ddp
