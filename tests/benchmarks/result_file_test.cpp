// Result files are either complete or absent.
#include "harness/result_file.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

class ResultFile : public testing::FolderTest {
 protected:
  std::string error_of_writing(const Result& result, const fs::path& file) {
    try {
      write_result(result, file);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  std::size_t files_in_folder() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {}));
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
  result_.series[0].values = {1, std::numeric_limits<double>::infinity()};
  EXPECT_NE(error_of_writing(result_, file).find("{\"variant\":\"naive\"}"), std::string::npos);
  result_.series[0].values = {};
  EXPECT_THROW(write_result(result_, file), c10::ValueError);
  EXPECT_EQ(files_in_folder(), 0);
}

TEST_F(ResultFile, SaysWhyItCannotBeWritten) {
  std::ofstream(folder_ / "a_file") << "in the way";
  const fs::path file = folder_ / "a_file" / "result.json";
  EXPECT_EQ(error_of_writing(result_, file), "cannot write " + file.string() +
                                                 ": Not a directory; choose another place with "
                                                 "--output");
  // A folder is in the place of the file: the rename fails, and the temporary file is removed.
  fs::create_directories(folder_ / "taken" / "inside");
  EXPECT_NE(error_of_writing(result_, folder_ / "taken").find("Is a directory"), std::string::npos);
  EXPECT_EQ(files_in_folder(), 2);
}

}  // namespace
}  // namespace ddp
