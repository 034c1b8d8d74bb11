// Evidence in memory that later ranks are not given.
#include "ddp/referee/kept_values.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "ddp/ranks/fork_ranks.h"

namespace ddp {
namespace {

// Whether the page of an address is there in this process.
bool is_mapped(const void* address) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  void* const begin =
      reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) / page * page);
  return mincore(begin, 1, &resident) == 0;
}

TEST(KeptValues, OutliveWhatKeptThem) {
  std::vector<at::Tensor> copies;
  {
    KeptValues values;
    for (const std::int64_t elements : {0, 1, 100'000, 3, 200'000, 1'000'000, 0, 5}) {
      const at::Tensor value = at::arange(elements).to(at::kInt);
      copies.push_back(values.copy(value));
    }
  }
  for (const at::Tensor& copy : copies) {
    EXPECT_TRUE(at::equal(copy, at::arange(copy.numel()).to(at::kInt))) << copy.numel();
  }
}

TEST(KeptValues, AreLeftOutOfForks) {
  KeptValues values;
  const at::Tensor kept = values.copy(at::ones({3}));
  ASSERT_TRUE(is_mapped(kept.const_data_ptr()));
  const RankReports reports = fork_ranks({.world_size = 2}, [&](RankContext&) {
    TORCH_CHECK(!is_mapped(kept.const_data_ptr()), "a rank has the evidence");
  });
  EXPECT_TRUE(reports.ok()) << reports.describe();
}

}  // namespace
}  // namespace ddp
