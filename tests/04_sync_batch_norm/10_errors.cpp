#include <ATen/ATen.h>

#include <functional>
#include <sstream>
#include <utility>

#include "ddp/batch_norm.h"
#include "norm_case.h"
#include "support/communication_checks.h"
#include "support/compare.h"
#include "support/grading.h"

// What is rejected, before any rank waits for another.

namespace ddp::testing {

namespace {

constexpr std::int64_t kChannels = 3;

at::TensorOptions options_of(at::ScalarType dtype) {
  return at::TensorOptions(dtype).device(settings().device);
}

at::Tensor ones(const std::vector<std::int64_t>& shape, at::ScalarType dtype = at::kFloat) {
  return at::ones(shape, options_of(dtype));
}

// `provoke` must throw c10::Error before this rank has communicated anything.
void expect_error(Rank& rank, const std::string& what, const std::function<void()>& provoke) {
  rank.recorder().clear();
  try {
    provoke();
    ADD_FAILURE() << what << " should throw c10::Error; nothing was thrown";
  } catch (const c10::NotImplementedError&) {
    throw;
  } catch (const c10::Error&) {
  } catch (const std::exception& error) {
    ADD_FAILURE() << what << " should throw c10::Error; it threw something else: " << error.what();
  }
  expect_silence(rank, what + " is to be found before any communication; here this rank");
}

// A call, by default with running statistics; these must not change.
struct Call {
  at::Tensor input = ones({4, kChannels, 2});
  BatchNormTensors tensors = {};
  SyncBatchNormOptions options = {};
};

void expect_error(Rank& rank, const std::string& what, Call call) {
  BatchNormTensors& tensors = call.tensors;
  if (!tensors.running_mean.defined() && !tensors.running_var.defined() && call.options.training) {
    tensors.running_mean = ones({kChannels}) * 3;
    tensors.running_var = ones({kChannels}) * 5;
  }
  const at::Tensor mean =
      tensors.running_mean.defined() ? tensors.running_mean.clone() : at::Tensor();
  expect_error(rank, what + (call.options.training ? "" : " in evaluation"),
               [&] { sync_batch_norm(call.input, tensors, rank.group(), call.options); });
  if (mean.defined() && mean.device() == at::Device(settings().device)) {
    EXPECT_TRUE(mean.equal(tensors.running_mean))
        << what << ": the running mean was changed all the same";
  }
}

void expect_errors_of_inputs(Rank& rank, bool training) {
  const SyncBatchNormOptions options = {.training = training};
  const auto of = [&](const at::Tensor& input) { return Call{.input = input, .options = options}; };
  expect_error(rank, "an undefined input", of(at::Tensor()));
  expect_error(rank, "an input without dimensions", of(ones({})));
  expect_error(rank, "an input of 1 dimension", of(ones({kChannels})));
  expect_error(rank, "an input of 6 dimensions", of(ones({4, kChannels, 2, 1, 1, 1})));
  expect_error(rank, "an input of int64", of(ones({4, kChannels}, at::kLong)));
  expect_error(rank, "an input of int32", of(ones({4, kChannels, 2}, at::kInt)));
  expect_error(rank, "an input of bool", of(ones({4, kChannels, 2}, at::kBool)));
}

// An unsuitable tensor in place of each of the four.
void expect_errors_of_tensors(Rank& rank, bool training) {
  const std::vector<std::pair<std::string, at::Tensor>> culprits = {
      {"one channel more", ones({kChannels + 1})},
      {"one channel only", ones({1})},
      {"two dimensions", ones({1, kChannels})},
      {"no dimension", ones({})},
      {"float64 with a float32 input", ones({kChannels}, at::kDouble)},
      {"half with a float32 input", ones({kChannels}, at::kHalf)},
      {"int64", ones({kChannels}, at::kLong)},
      {"another device", at::ones({kChannels}, at::TensorOptions(at::kFloat).device(at::kMeta))}};
  for (const auto& [what, culprit] : culprits) {
    const at::Tensor good = ones({kChannels});
    const SyncBatchNormOptions options = {.training = training};
    expect_error(rank, "a weight of " + what,
                 {.tensors = affine_tensors(culprit, good), .options = options});
    expect_error(rank, "a bias of " + what,
                 {.tensors = affine_tensors(good, culprit), .options = options});
    expect_error(rank, "a running mean of " + what,
                 {.tensors = running_tensors(culprit, good), .options = options});
    expect_error(rank, "a running variance of " + what,
                 {.tensors = running_tensors(good, culprit), .options = options});
  }
}

void expect_errors_of_the_rest(Rank& rank, bool training) {
  const at::Tensor good = ones({kChannels});
  expect_error(rank, "a running mean without a variance",
               {.tensors = running_tensors(good, {}), .options = {.training = training}});
  expect_error(rank, "a running variance without a mean",
               {.tensors = running_tensors({}, good), .options = {.training = training}});
  for (const double eps : {0.0, -1e-5}) {
    expect_error(rank, "eps = " + std::to_string(eps),
                 {.options = {.training = training, .eps = eps}});
  }
}

void expect_errors_of_modules(Rank& rank) {
  const auto make = [&](const BatchNormOptions& options, const ProcessGroupPtr& group) {
    return [=] { make_sync_batch_norm(options, group); };
  };
  expect_error(rank, "a module of no features", make({.num_features = 0}, rank.group()));
  expect_error(rank, "a module of -2 features", make({.num_features = -2}, rank.group()));
  expect_error(rank, "a module with eps = 0", make({.num_features = 2, .eps = 0}, rank.group()));
  expect_error(rank, "a module with a null group", make({.num_features = 2}, ProcessGroupPtr()));
  const auto layer = make_sync_batch_norm({.num_features = kChannels}, rank.group());
  layer->to(settings().device);
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{
           {4, kChannels + 1}, {kChannels}, {4, kChannels, 1, 1, 1, 2}}) {
    std::ostringstream text;
    text << "a module of " << kChannels << " features, given " << at::IntArrayRef(shape);
    expect_error(rank, text.str(), [&] { layer->forward(ones(shape)); });
  }
  expect_error(rank, "a module, given int64", [&] {
    layer->forward(ones({4, kChannels}, at::kLong));
  });
  EXPECT_TRUE(is_bitwise_equal({"the module's running mean after errors"}, layer->running_mean,
                               at::zeros_like(layer->running_mean)));
}

// A function that rejects everything, or does nothing, must not pass.
void expect_good_calls_to_pass(Rank& rank) {
  rank.recorder().clear();
  const at::Tensor input = random_numbers({4, kChannels, 2}, 12).to(at::kFloat);
  sync_batch_norm(input, affine_tensors(ones({kChannels}), ones({kChannels})), rank.group());
  if (rank.world_size() > 1) {
    EXPECT_FALSE(rank.recorder().operations().empty()) << "nothing was communicated";
  }
}

// The group reports to all ranks what no rank can know by itself, and none waits forever.
void expect_report_of_disagreement(const Rank& rank) {
  const std::int64_t channels = kChannels + (rank.rank() == 1 ? 1 : 0);
  try {
    sync_batch_norm(random_numbers({4, channels}, 12), {}, rank.group());
    ADD_FAILURE() << "rank 1 has another number of channels, and nothing was thrown";
  } catch (const c10::NotImplementedError&) {
    throw;
  } catch (const std::exception& error) {
    const bool reported = std::string(error.what()).find("disagree") != std::string::npos;
    EXPECT_TRUE(reported) << "rank 1 has another number of channels, and the error says only: "
                          << error.what();
  }
}

const GradedTest kErrors{
    {.name = "errors_come_before_communication",
     .points = 1,
     .hint = "TORCH_CHECK() what the header lists, first of all, in training and in evaluation: a "
             "rank that throws later leaves the others waiting."},
    [] {
      run_worlds({1, 2}, [](Rank& rank) {
        expect_good_calls_to_pass(rank);
        for (const bool training : {true, false}) {
          expect_errors_of_inputs(rank, training);
          expect_errors_of_tensors(rank, training);
          expect_errors_of_the_rest(rank, training);
        }
        expect_error(rank, "a null group", [] {
          sync_batch_norm(ones({4, kChannels}), {}, ProcessGroupPtr());
        });
        expect_errors_of_modules(rank);
      });
      if (settings().device.is_cpu()) {  // other devices do not compare ranks
        run_worlds({2, 3}, expect_report_of_disagreement);
      }
    }};

}  // namespace

}  // namespace ddp::testing
