// Profiles on hardware: the times of layers, GPUs and links by name, and fitted constants.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "harness/published_cluster.h"
#include "models/profiles/hardware.h"
#include "models/profiles/model_profile.h"
#include "support/ranks.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

using testing::in_child;

// One operation takes 1 ns, one byte 0.5 ns.
const cluster::Device kDevice = {
    .name = "any", .flops_per_second = 1e9, .bytes_per_second = 2e9, .source = "none"};

// Forward and backward of the first layer take 100 and 300 ns there, of the second 4 and 8.
ModelProfile two_layers() {
  return {.name = "two layers",
          .parameters = {{"used last", {2, 3}}, {"used first", {4}}},
          .layers = {{"first",
                      {1},
                      {.flops = 100, .bytes = 40, .kernels = 1},
                      {.flops = 20, .bytes = 600, .kernels = 3}},
                     {"last", {0}, {.flops = 0, .bytes = 8}, {.flops = 8, .bytes = 0}}}};
}

std::vector<std::int64_t> times_of(const Pace& pace) {
  std::vector<std::int64_t> times;
  for (const auto& layer : ProfiledModel(two_layers()).timed_layers(kDevice, pace)) {
    times.insert(times.end(), {layer.forward_ns, layer.backward_ns});
  }
  return times;
}

TEST(ProfiledModel, LayersTakeWhatTheRooflineSays) {
  in_child([] {
    EXPECT_EQ(times_of({}), (std::vector<std::int64_t>{100, 300, 4, 8}));
    EXPECT_EQ(times_of({.forward_efficiency = 0.5, .backward_efficiency = 0.25}),
              (std::vector<std::int64_t>{200, 1200, 8, 32}));
    EXPECT_EQ(times_of({.memory_efficiency = 0.5}), (std::vector<std::int64_t>{100, 600, 8, 8}));
    EXPECT_EQ(times_of({.kernel_ns = 10}), (std::vector<std::int64_t>{110, 330, 4, 8}));
    EXPECT_THROW(times_of({.backward_efficiency = 0}), c10::ValueError);
  });
}

// 130 rows are two tiles of 128, or three of 64: 4 multiprocessors take a wave for either.
TEST(ProfiledModel, ProductsTakeWholeTilesInWholeWaves) {
  in_child([] {
    ModelProfile profile = two_layers();
    profile.layers[0].forward = product(130, 1000, 64);
    const auto forward_ns = [&](std::int64_t multiprocessors, bool tensor_cores = true) {
      cluster::Device device = kDevice;
      device.tensor_cores = tensor_cores;
      device.bytes_per_second = 1e15;
      device.multiprocessors = multiprocessors;
      return ProfiledModel(profile).timed_layers(device, {}).front().forward_ns;
    };
    EXPECT_EQ(forward_ns(0), 2LL * 130 * 1000 * 64);
    EXPECT_EQ(forward_ns(4), std::llround(2LL * 4 * 64 * 64 * 1000 / 0.74));
    EXPECT_EQ(forward_ns(2), std::llround(2LL * 2 * 128 * 64 * 1000 / 0.87));
    EXPECT_EQ(forward_ns(4, false), 2LL * 4 * 64 * 64 * 1000);  // no tile waits for operands
  });
}

TEST(ProfiledModel, ParametersHaveTheModelsOrderAndLayersShareThem) {
  in_child([] {
    ProfiledModel model(two_layers());
    const auto parameters = model.named_parameters();
    const auto layers = model.timed_layers(kDevice, {});
    ASSERT_EQ(parameters.size(), 2);
    EXPECT_EQ(parameters[0].name, "used last");
    EXPECT_EQ(parameters[0].tensor.sizes(), at::IntArrayRef({2, 3}));
    EXPECT_TRUE(parameters[0].tensor.is_meta() && parameters[0].tensor.requires_grad());
    EXPECT_TRUE(layers[0].parameters.at(0).is_same(parameters[1].tensor));
    EXPECT_TRUE(layers[1].parameters.at(0).is_same(parameters[0].tensor));
    EXPECT_THROW(model.forward(at::zeros({1})), c10::Error);
  });
}

TEST(Hardware, EachGpuAndLinkSaysWhatItIs) {
  EXPECT_GE(known_gpus().size(), 10);
  for (const std::string& name : known_gpus()) {
    const cluster::Device gpu = known_gpu(name);
    cluster::check(gpu);
    EXPECT_EQ(gpu.name, name);
    EXPECT_NE(gpu.source.find("data sheet"), std::string::npos) << name;
  }
  for (const std::string& name : known_links()) {
    EXPECT_GT(known_link(name).beta_ns_per_byte, 0) << name;
    EXPECT_FALSE(source_of_link(name).empty()) << name;
  }
  EXPECT_EQ(known_link("nvlink3").beta_ns_per_byte * 300, 1);  // 300 GB/s
}

TEST(Hardware, ThePrecisionDecidesTheRate) {
  EXPECT_EQ(known_gpu("A100").flops_per_second, 156e12);
  EXPECT_EQ(known_gpu("A100", "fp32").flops_per_second, 19.5e12);
  EXPECT_EQ(known_gpu("A100", "bf16").flops_per_second, 312e12);
  EXPECT_EQ(known_gpu("V100").flops_per_second, known_gpu("V100", "fp32").flops_per_second);
  EXPECT_THROW(known_gpu("V100", "bf16"), c10::ValueError);
}

TEST(Hardware, UnknownNamesAreAnsweredWithTheKnownOnes) {
  try {
    known_gpu("B200");
    FAIL() << "accepted";
  } catch (const c10::ValueError& error) {
    EXPECT_EQ(error.msg().substr(0, 41), "unknown GPU \"B200\"; there are: V100, A100");
  }
  EXPECT_THROW(known_link("string"), c10::ValueError);
}

class CalibrationFile : public testing::FolderTest {
 protected:
  std::string error_of(const std::string& text, const std::string& experiment) const {
    std::ofstream(folder_ / "calibration.json") << text;
    try {
      Calibration(folder_ / "calibration.json", experiment).constant("width");
    } catch (const c10::ValueError& error) {
      return error.msg();
    }
    return "";
  }
};

TEST_F(CalibrationFile, IsReadOrRefusedWithTheReason) {
  const std::string good = R"({"experiments": {"one": {"constants": {"width": 2.5}}}})";
  EXPECT_EQ(error_of(good, "one"), "");
  EXPECT_EQ(Calibration(folder_ / "calibration.json", "one").constant("width"), 2.5);
  const auto expect_says = [&](const std::string& text, const std::string& experiment,
                               const std::string& part) {
    const std::string message = error_of(text, experiment);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("restore it: git checkout"), std::string::npos) << message;
  };
  expect_says(good, "other", "calibration.json: has nothing about other, only about: one");
  expect_says(R"({"experiments": {"one": {"constants": {"height": 1}}}})", "one",
              "calibration.json, one: lacks the constant \"width\"; there are: height");
  expect_says(R"({"experiments": {"one": {"constants": {"width": "2"}}}})", "one",
              "its constants cannot be read");
  expect_says("[1, 2", "one", "is no calibration");
}

TEST_F(CalibrationFile, ThatIsMissingIsNamed) {
  EXPECT_THROW(Calibration(folder_ / "none.json", "one"), c10::ValueError);
}

}  // namespace
}  // namespace ddp
