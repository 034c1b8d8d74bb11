// Profiles of models beside the real models: what they say of shapes and work.
//
// Profiles on hardware: the times of layers, GPUs and links by name, and fitted constants.
#include "models/profiles/model_profile.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "common/ranks.h"
#include "common/temporary_folder.h"
#include "ddp/gradient_hooks.h"
#include "measuring/on_cluster.h"
#include "models/profiles/hardware.h"

namespace ddp {
namespace {

using testing::in_child;

constexpr TransformerShape kTiny = {
    .d_model = 8, .d_ff = 12, .layers = 2, .heads = 2, .vocabulary = 11};

std::int64_t flops_of(const ModelProfile& profile, Work ProfiledLayer::*pass) {
  std::int64_t sum = 0;
  for (const ProfiledLayer& layer : profile.layers) {
    sum += (layer.*pass).flops;
  }
  return sum;
}

void expect_same_parameters(const ModelProfile& profile, const Model& model) {
  const auto real = model.named_parameters();
  ASSERT_EQ(profile.parameters.size(), real.size()) << profile.name;
  for (std::size_t i = 0; i < real.size(); ++i) {
    EXPECT_EQ(profile.parameters[i].name, real[i].name) << profile.name;
    EXPECT_EQ(at::IntArrayRef(profile.parameters[i].sizes), real[i].tensor.sizes())
        << profile.name << ": " << real[i].name;
  }
}

// Each parameter is in one layer.
void expect_every_parameter_once(const ModelProfile& profile) {
  std::map<std::size_t, int> layers_of;
  for (const ProfiledLayer& layer : profile.layers) {
    for (const std::size_t parameter : layer.parameters) {
      ++layers_of[parameter];
    }
  }
  EXPECT_EQ(layers_of.size(), profile.parameters.size()) << profile.name;
  for (const auto& [parameter, layers] : layers_of) {
    EXPECT_EQ(layers, 1) << profile.parameters.at(parameter).name;
  }
}

TEST(ModelProfile, ResNetsHaveTheRealParameters) {
  for (const std::string& name : resnet_names()) {
    in_child([&] {
      const ModelProfile profile = resnet_profile(name, {});
      expect_same_parameters(profile, *make_resnet(name));
      expect_every_parameter_once(profile);
    });
  }
}

TEST(ModelProfile, TransformersHaveTheRealParameters) {
  in_child([] {
    for (const std::string& name : transformer_names()) {
      const TransformerShape shape = transformer_shape(name);
      const ModelProfile profile = transformer_profile(name, shape, {});
      expect_same_parameters(profile, *make_transformer(shape, {.device = at::kMeta}));
      expect_every_parameter_once(profile);
      EXPECT_EQ(profile.elements(), parameter_count(shape));
    }
    const ModelProfile xl = transformer_profile("xl", transformer_shape("xl"), {});
    EXPECT_EQ(xl.elements(), 1'998'235'200);
    EXPECT_EQ(xl.parameters.size(), 435);
  });
}

// Counts what libtorch's operators do, by the shapes of their arguments. An operator that calls
// another one, such as matmul, counts for nothing itself.
class FlopCounter {
 public:
  FlopCounter() {
    flops = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&started).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~FlopCounter() { at::removeCallback(handle_); }
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  // Since the last call.
  std::int64_t take() { return std::exchange(flops, 0); }

 private:
  static inline thread_local std::int64_t flops = 0;

  static std::unique_ptr<at::ObserverContext> started(const at::RecordFunction& function) {
    const std::string name = function.name();
    const auto inputs = function.inputs();
    const auto tensor = [&](std::size_t i) -> const at::Tensor& { return inputs[i].toTensor(); };
    // Two for each element of one factor, for each column of the other.
    if (name == "aten::mm" || name == "aten::bmm") {
      flops += 2 * tensor(0).numel() * tensor(1).size(-1);
    } else if (name == "aten::addmm") {
      flops += 2 * tensor(1).numel() * tensor(2).size(-1);
    } else if (name == "aten::convolution") {
      flops += 2 * outputs_of(inputs) * tensor(1)[0].numel();
    } else if (name == "aten::convolution_backward") {
      const auto wanted = inputs[10].toBoolList();
      flops += (wanted[0] + wanted[1]) * 2 * tensor(0).numel() * tensor(2)[0].numel();
    }
    return nullptr;
  }

  // Elements of aten::convolution's result; the arguments are input, weight, bias, stride, padding.
  static std::int64_t outputs_of(c10::ArrayRef<const c10::IValue> inputs) {
    const at::Tensor input = inputs[0].toTensor(), weight = inputs[1].toTensor();
    const auto stride = inputs[3].toIntVector(), padding = inputs[4].toIntVector();
    std::int64_t elements = input.size(0) * weight.size(0);
    for (const int d : {0, 1}) {
      elements *= (input.size(d + 2) + 2 * padding[d] - weight.size(d + 2)) / stride[d] + 1;
    }
    return elements;
  }

  at::CallbackHandle handle_;
};

void expect_same_flops(const ModelProfile& profile, Model& model, const at::Tensor& input) {
  at::globalContext().setSDPUseFlash(false);  // attention as matrix products, which are counted
  FlopCounter counter;
  const at::Tensor loss = model.forward(input).sum();
  EXPECT_EQ(counter.take(), flops_of(profile, &ProfiledLayer::forward)) << profile.name;
  loss.backward();
  EXPECT_EQ(counter.take(), flops_of(profile, &ProfiledLayer::backward)) << profile.name;
}

TEST(ModelProfile, FlopsOfResNetsAreWhatLibtorchDoes) {
  for (const char* name : {"resnet50", "resnext50_32x4d"}) {
    in_child([name] {
      expect_same_flops(resnet_profile(name, {.batch = 3, .side = 47}), *make_resnet(name),
                        at::randn({3, 3, 47, 47}));
    });
  }
}

TEST(ModelProfile, FlopsOfTransformersAreWhatLibtorchDoes) {
  in_child([] {
    for (const SequenceBatch sequences : {SequenceBatch{1, 7}, SequenceBatch{3, 16}}) {
      expect_same_flops(transformer_profile("tiny", kTiny, sequences), *make_transformer(kTiny),
                        at::zeros({sequences.batch, sequences.length}, at::kLong));
    }
  });
}

// The layers' numbers, in the order in which backward completes a gradient of each.
std::vector<std::size_t> layers_by_readiness(const ModelProfile& profile, Model& model,
                                             const at::Tensor& input) {
  const std::vector<at::Tensor> parameters = tensors_of(model.named_parameters());
  std::vector<GradientHook> hooks;
  std::vector<std::size_t> order;
  for (std::size_t layer = 0; layer < profile.layers.size(); ++layer) {
    for (const std::size_t parameter : profile.layers[layer].parameters) {
      hooks.push_back(
          on_gradient_ready(parameters.at(parameter),
                            [&order, layer](const at::Tensor&) { order.push_back(layer); }));
    }
  }
  model.forward(input).sum().backward();
  order.erase(std::unique(order.begin(), order.end()), order.end());
  return order;
}

void expect_backward_in_reverse(const ModelProfile& profile, Model& model,
                                const at::Tensor& input) {
  std::vector<std::size_t> expected;
  for (std::size_t layer = profile.layers.size(); layer-- > 0;) {
    if (!profile.layers[layer].parameters.empty()) {
      expected.push_back(layer);
    }
  }
  EXPECT_EQ(layers_by_readiness(profile, model, input), expected) << profile.name;
}

TEST(ModelProfile, GradientsBecomeReadyInTheReverseOfTheLayers) {
  in_child([] {
    expect_backward_in_reverse(resnet_profile("resnet50", {.batch = 2, .side = 32}),
                               *make_resnet("resnet50"), at::randn({2, 3, 32, 32}));
    expect_backward_in_reverse(transformer_profile("tiny", kTiny, {}), *make_transformer(kTiny),
                               at::zeros({1, 3}, at::kLong));
  });
}

// Multiply-adds of one image of 224x224: torchvision's documentation of its models.
TEST(ModelProfile, MultiplyAddsOfResNetsAreThePublishedOnes) {
  const std::pair<const char*, double> published[] = {{"resnet50", 4.09},
                                                      {"resnet101", 7.80},
                                                      {"resnext50_32x4d", 4.23},
                                                      {"resnext101_32x8d", 16.41}};
  for (const auto& [name, billions] : published) {
    const ModelProfile profile = resnet_profile(name, {.batch = 1, .side = 224});
    EXPECT_NEAR(static_cast<double>(flops_of(profile, &ProfiledLayer::forward)) / 2e9, billions,
                0.005)
        << profile.name;
  }
}

// By hand: a matrix of 2x3 with one of 3x5 reads 6 and 15 elements and writes 10.
TEST(ModelProfile, BytesAreThoseOfTheOperands) {
  EXPECT_EQ(product(2, 3, 5).flops, 60);
  EXPECT_EQ(product(2, 3, 5).bytes, 4 * 31);
  EXPECT_EQ(product(2, 3, 5, 7).bytes, 7 * 4 * 31);
  const ModelProfile tiny = transformer_profile("tiny", kTiny, {.batch = 1, .length = 4});
  EXPECT_EQ(optimizer_work(tiny, 2).bytes, 7 * 4 * parameter_count(kTiny));
  // Of a norm as text-books write it, six operators.
  EXPECT_EQ(tiny.layers.at(1).name, "layers.0.ln1");
  EXPECT_EQ(tiny.layers.at(1).forward.bytes, 7 * 4 * 4 * kTiny.d_model);
  EXPECT_EQ(tiny.layers.at(1).forward.kernels, 6);
}

TEST(ModelProfile, WorkGrowsWithTheBatch) {
  const auto flops = [](std::int64_t batch) {
    return flops_of(resnet_profile("resnext101_32x8d", {.batch = batch, .side = 64}),
                    &ProfiledLayer::backward);
  };
  EXPECT_EQ(flops(6), 3 * flops(2));
}

TEST(ModelProfile, RefusesWhatCannotBeTrained) {
  EXPECT_THROW(resnet_profile("resnet50", {.batch = 0, .side = 224}), c10::ValueError);
  EXPECT_THROW(resnet_profile("resnet50", {.batch = 1, .side = 31}), c10::ValueError);
  EXPECT_THROW(transformer_profile("tiny", kTiny, {.batch = 1, .length = 0}), c10::ValueError);
}

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
