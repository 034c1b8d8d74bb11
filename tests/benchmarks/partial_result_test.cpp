// The result of a stopped run is continued exactly, or rejected with the reason.
#include "harness/partial_result.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

class PartialResultFile : public testing::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    file_ = partial_path(folder_ / "result.json");
  }

  void write() const {
    for (const Row& row : partial_.rows) {
      append_row(partial_, row, file_, &row == &partial_.rows.front());
    }
  }

  std::string error_of_reading(const PartialResult& expected) const {
    try {
      read_partial_rows(expected, file_);
    } catch (const c10::ValueError& error) {
      return error.msg();
    }
    return "";
  }

  fs::path file_;
  PartialResult partial_ = {
      .run = {.program = "collectives",
              .implementation = "solutions",
              .preset = "quick",
              .backend = "gloo",
              .device = "cpu",
              .world_size = 2,
              .seed = 18446744073709551615u,
              .command = "collectives"},
      .parameters = {{"model", "resnet50"}, {"rate_gbit", 2.0}, {"repetitions", 3}},
      .rows = {{.labels = {{"bytes", 4}, {"variant", "ring"}},
                .series = {{{{"bytes", 4}, {"phase", "send"}}, "s", {0.1, 1e-300, 1.0 / 3}}}},
               {.labels = {{"bytes", 8}, {"variant", "ring"}},
                .series = {{{{"bytes", 8}}, "s", {2.0}}, {{{"bytes", 8}}, "bytes", {1e15}}}}}};
};

TEST_F(PartialResultFile, IsReadAsItWasWritten) {
  write();
  EXPECT_EQ(file_.filename(), "result.json.partial");
  const std::vector<Row> rows = read_partial_rows(partial_, file_);
  ASSERT_EQ(rows.size(), partial_.rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].labels, partial_.rows[i].labels);
    ASSERT_EQ(rows[i].series.size(), partial_.rows[i].series.size());
    for (std::size_t j = 0; j < rows[i].series.size(); ++j) {
      EXPECT_EQ(rows[i].series[j].labels, partial_.rows[i].series[j].labels);
      EXPECT_EQ(rows[i].series[j].unit, partial_.rows[i].series[j].unit);
      EXPECT_EQ(rows[i].series[j].values, partial_.rows[i].series[j].values) << "to the last bit";
    }
  }
}

TEST_F(PartialResultFile, MayBeMissing) { EXPECT_TRUE(read_partial_rows(partial_, file_).empty()); }

TEST_F(PartialResultFile, OfAnotherRunIsRefusedByName) {
  write();
  const auto expect_refused = [this](const char* said, const auto& change) {
    PartialResult other = partial_;
    change(other);
    const std::string error = error_of_reading(other);
    EXPECT_NE(error.find(said), std::string::npos) << error;
    EXPECT_NE(error.find(file_.string()), std::string::npos) << error;
    EXPECT_NE(error.find("leave out --resume"), std::string::npos) << error;
  };
  expect_refused("program", [](PartialResult& it) { it.run.program = "step_time"; });
  expect_refused("implementation",
                 [](PartialResult& it) { it.run.implementation = "assignments"; });
  expect_refused("preset", [](PartialResult& it) { it.run.preset = "full"; });
  expect_refused("device", [](PartialResult& it) { it.run.device = "cuda"; });
  expect_refused("backend", [](PartialResult& it) { it.run.backend = "nccl"; });
  expect_refused("world_size 2", [](PartialResult& it) { it.run.world_size = 4; });
  expect_refused("seed 18446744073709551615", [](PartialResult& it) { it.run.seed = 0; });
  expect_refused("repetitions 3, and this run has 4",
                 [](PartialResult& it) { it.parameters[2].second = std::int64_t{4}; });
  expect_refused("extra null", [](PartialResult& it) { it.parameters.emplace_back("extra", 1); });
  expect_refused("number of parameters", [](PartialResult& it) { it.parameters.pop_back(); });
}

TEST_F(PartialResultFile, MayComeFromAnotherCommandLine) {
  write();
  partial_.run.command = "collectives --resume";
  EXPECT_EQ(error_of_reading(partial_), "");
}

TEST_F(PartialResultFile, WhatIsMeasuredValueByValueIsOneRow) {
  write();
  append_row(partial_, {partial_.rows[0].labels, {{{}, "s", {7, 8}}}}, file_, false);
  const std::vector<Row> rows = read_partial_rows(partial_, file_);
  ASSERT_EQ(rows.size(), partial_.rows.size());
  EXPECT_EQ(rows[0].series[0].values, (std::vector<double>{0.1, 1e-300, 1.0 / 3, 7, 8}));
  EXPECT_EQ(rows[0].series[0].labels, partial_.rows[0].series[0].labels);
}

TEST_F(PartialResultFile, GoesOnBeforeALineThatWasNotFinished) {
  write();
  std::ofstream(file_, std::ios::app) << "{\"labels\": {\"byt";
  EXPECT_EQ(read_partial_rows(partial_, file_).size(), 2);
  append_row(partial_, {{{"bytes", 16}}, {{{}, "s", {1}}}}, file_, false);
  EXPECT_EQ(read_partial_rows(partial_, file_).size(), 3);
}

TEST_F(PartialResultFile, BeginsAnew) {
  write();
  append_row(partial_, partial_.rows[1], file_, true);
  EXPECT_EQ(read_partial_rows(partial_, file_).size(), 1);
}

TEST_F(PartialResultFile, ThatIsCorruptIsRefused) {
  write();
  std::ofstream(file_, std::ios::app) << "{\n";
  EXPECT_NE(error_of_reading(partial_).find("is corrupt"), std::string::npos);
  for (const char* text : {"", "{", "[]\n", "{\"program\": \"collectives\"}\n"}) {
    std::ofstream(file_) << text;
    const std::string error = error_of_reading(partial_);
    EXPECT_NE(error.find("is corrupt"), std::string::npos) << text << ": " << error;
  }
}

TEST_F(PartialResultFile, HasOnlyNumbers) {
  partial_.rows[0].series[0].values = {std::numeric_limits<double>::infinity()};
  EXPECT_THROW(write(), c10::ValueError);
  EXPECT_FALSE(fs::exists(file_));
}

}  // namespace
}  // namespace ddp
