// Result files are complete or absent; what a stopped run has saved is continued exactly, or rejected
// with the reason.
#include "measuring/result.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class ResultFile : public testing::FolderTest {
 protected:
  std::size_t files_in_folder() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  static std::string error_of(const auto& call) {
    try {
      call();
    } catch (const c10::Error& error) {
      return error.msg();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  std::string error_of_writing(const fs::path& file) const {
    return error_of([&] { write_result(result_, file); });
  }

  Result result_ = {.run = {.program = "naive_vs_flat",
                            .implementation = "solutions",
                            .preset = "quick",
                            .backend = "gloo",
                            .device = "cpu",
                            .world_size = 2,
                            .seed = 18446744073709551615u,
                            .command = "naive_vs_flat --preset \"quick\""},
                    .parameters = {{"model", "resnet50"}, {"rate_gbit", 2.5}, {"steps", 3}},
                    .series = {{{{"variant", "naive"}}, "s", {1, 2, 4}}}};
};

TEST_F(ResultFile, HoldsWhatWasMeasuredAndWhere) {
  setenv("DDP_LAB_COMMIT", "abc1234", /*overwrite=*/1);
  const fs::path file = folder_ / "new" / "folder" / "result.json";
  write_result(result_, file);
  const auto json = nlohmann::json::parse(std::ifstream(file));
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["program"], "naive_vs_flat");
  EXPECT_EQ(json["parameters"],
            nlohmann::json({{"model", "resnet50"}, {"rate_gbit", 2.5}, {"steps", 3}}));
  const auto& provenance = json["provenance"];
  for (const char* field : {"host", "cpu", "gpu", "torch", "date"}) {
    EXPECT_FALSE(provenance[field].get<std::string>().empty()) << field;
  }
  EXPECT_GT(provenance["cores"], 0);
  EXPECT_GT(provenance["memory_bytes"], 1 << 20);
  EXPECT_EQ(provenance["seed"], 18446744073709551615u);
  EXPECT_EQ(provenance["commit"], "abc1234");
  EXPECT_EQ(provenance["command"], "naive_vs_flat --preset \"quick\"");
  const auto& series = json["series"].at(0);
  EXPECT_EQ(series["labels"]["variant"], "naive");
  EXPECT_EQ(series["unit"], "s");
  EXPECT_EQ(series["values"], std::vector<double>({1, 2, 4}));
  EXPECT_EQ(series["summary"]["p50"], 2);
  unsetenv("DDP_LAB_COMMIT");
}

TEST_F(ResultFile, HasADefaultPlace) {
  EXPECT_EQ(default_result_path(result_.run), "figures/data/naive_vs_flat.solutions.quick.json");
}

TEST_F(ResultFile, ReplacesAnOlderOneAndLeavesNothingElse) {
  const fs::path file = folder_ / "result.json";
  std::ofstream(file) << "old";
  write_result(result_, file);
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(file))["program"], "naive_vs_flat");
  EXPECT_EQ(files_in_folder(), 1);
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0644));
}

TEST_F(ResultFile, RefusesValuesThatMeanNothing) {
  const fs::path file = folder_ / "result.json";
  result_.series[0].values = {1, kInfinity};
  EXPECT_NE(error_of_writing(file).find("{\"variant\":\"naive\"}"), std::string::npos);
  result_.series[0].values = {};
  EXPECT_THROW(write_result(result_, file), c10::ValueError);
  EXPECT_EQ(files_in_folder(), 0);
}

TEST_F(ResultFile, SaysWhyItCannotBeWritten) {
  std::ofstream(folder_ / "a_file") << "in the way";
  const fs::path file = folder_ / "a_file" / "result.json";
  EXPECT_EQ(error_of_writing(file), "cannot write " + file.string() +
                                        ": Not a directory; choose another place with --output");
  // A folder is in the place of the file: the rename fails, and the temporary file is removed.
  fs::create_directories(folder_ / "taken" / "inside");
  EXPECT_NE(error_of_writing(folder_ / "taken").find("Is a directory"), std::string::npos);
  EXPECT_EQ(files_in_folder(), 2);
}

class PartialResultFile : public ResultFile {
 protected:
  void SetUp() override {
    ResultFile::SetUp();
    file_ = partial_path(folder_ / "result.json");
  }

  void write() const {
    for (const Row& row : rows_) {
      append_row(result_, row, file_, &row == &rows_.front());
    }
  }

  std::vector<Row> read() const { return read_rows(result_, file_); }
  std::string error_of_reading(const Result& expected) const {
    return error_of([&] { read_rows(expected, file_); });
  }

  fs::path file_;
  std::vector<Row> rows_ = {
      {.labels = {{"bytes", 4}, {"variant", "ring"}},
       .series = {{{{"bytes", 4}, {"phase", "send"}}, "s", {0.1, 1e-300, 1.0 / 3}}}},
      {.labels = {{"bytes", 8}, {"variant", "ring"}},
       .series = {{{{"bytes", 8}}, "s", {2.0}}, {{{"bytes", 8}}, "bytes", {1e15}}}}};
};

TEST_F(PartialResultFile, IsReadAsItWasWritten) {
  EXPECT_TRUE(read().empty()) << "it may be missing";
  write();
  EXPECT_EQ(file_.filename(), "result.json.partial");
  const std::vector<Row> rows = read();
  ASSERT_EQ(rows.size(), rows_.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].labels, rows_[i].labels);
    ASSERT_EQ(rows[i].series.size(), rows_[i].series.size());
    for (std::size_t j = 0; j < rows[i].series.size(); ++j) {
      EXPECT_EQ(rows[i].series[j].labels, rows_[i].series[j].labels);
      EXPECT_EQ(rows[i].series[j].unit, rows_[i].series[j].unit);
      EXPECT_EQ(rows[i].series[j].values, rows_[i].series[j].values) << "to the last bit";
    }
  }
}

TEST_F(PartialResultFile, OfAnotherRunIsRefusedByName) {
  write();
  const auto expect_refused = [this](const char* said, const auto& change) {
    Result other = result_;
    change(other);
    const std::string error = error_of_reading(other);
    for (const std::string& part :
         {std::string(said), file_.string(), std::string("leave out --resume")}) {
      EXPECT_NE(error.find(part), std::string::npos) << error;
    }
  };
  expect_refused("program", [](Result& it) { it.run.program = "step_time"; });
  expect_refused("implementation", [](Result& it) { it.run.implementation = "assignments"; });
  expect_refused("preset", [](Result& it) { it.run.preset = "full"; });
  expect_refused("device", [](Result& it) { it.run.device = "cuda"; });
  expect_refused("backend", [](Result& it) { it.run.backend = "nccl"; });
  expect_refused("world_size 2", [](Result& it) { it.run.world_size = 4; });
  expect_refused("seed 18446744073709551615", [](Result& it) { it.run.seed = 0; });
  expect_refused("steps 3, and this run has 4",
                 [](Result& it) { it.parameters[2].second = std::int64_t{4}; });
  expect_refused("extra null", [](Result& it) { it.parameters.emplace_back("extra", 1); });
  expect_refused("number of parameters", [](Result& it) { it.parameters.pop_back(); });
  result_.run.command = "naive_vs_flat --resume";
  EXPECT_EQ(error_of_reading(result_), "") << "it may come from another command line";
}

TEST_F(PartialResultFile, WhatIsMeasuredValueByValueIsOneRow) {
  write();
  append_row(result_, {rows_[0].labels, {{{}, "s", {7, 8}}}}, file_, false);
  const std::vector<Row> rows = read();
  ASSERT_EQ(rows.size(), rows_.size());
  EXPECT_EQ(rows[0].series[0].values, (std::vector<double>{0.1, 1e-300, 1.0 / 3, 7, 8}));
  EXPECT_EQ(rows[0].series[0].labels, rows_[0].series[0].labels);
}

TEST_F(PartialResultFile, GoesOnBeforeALineThatWasNotFinishedOrBeginsAnew) {
  write();
  std::ofstream(file_, std::ios::app) << "{\"labels\": {\"byt";
  EXPECT_EQ(read().size(), 2);
  append_row(result_, {{{"bytes", 16}}, {{{}, "s", {1}}}}, file_, false);
  EXPECT_EQ(read().size(), 3);
  append_row(result_, rows_[1], file_, true);
  EXPECT_EQ(read().size(), 1);
}

TEST_F(PartialResultFile, ThatIsCorruptIsRefused) {
  write();
  std::ofstream(file_, std::ios::app) << "{\n";
  EXPECT_NE(error_of_reading(result_).find("is corrupt"), std::string::npos);
  for (const char* text : {"", "{", "[]\n", "{\"program\": \"naive_vs_flat\"}\n"}) {
    std::ofstream(file_) << text;
    const std::string error = error_of_reading(result_);
    EXPECT_NE(error.find("is corrupt"), std::string::npos) << text << ": " << error;
  }
}

TEST_F(PartialResultFile, HasOnlyNumbers) {
  rows_[0].series[0].values = {kInfinity};
  EXPECT_THROW(write(), c10::ValueError);
  EXPECT_FALSE(fs::exists(file_));
}

}  // namespace
}  // namespace ddp
