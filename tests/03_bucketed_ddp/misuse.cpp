#include <ATen/ATen.h>

#include <algorithm>

#include "bodies.h"
#include "ddp/meters/memory_meter.h"
#include "ddp/referee/client.h"
#include "support/calls.h"
#include "support/settings.h"
#include "support/training_bodies.h"

// Bodies for errors, lifetime and memory.

namespace ddp::testing {

namespace {

// Of which the last may be wrong.
std::vector<at::Tensor> eight_weights() {
  std::vector<at::Tensor> weights(8);
  for (at::Tensor& weight : weights) {
    weight = at::ones({5, 3}, settings().device).set_requires_grad(true);
  }
  return weights;
}

void plan_wrongly(Client& client) {
  const ProcessGroupPtr group = make_group(client.shared_from_this());
  std::vector<at::Tensor> undefined = eight_weights();
  undefined[7] = at::Tensor();
  std::vector<at::Tensor> inner = eight_weights();
  inner[7] = inner[7] * 2;
  for (const std::int64_t cap : {0, -5}) {
    const std::string given = "a cap of " + std::to_string(cap) + " bytes";
    attempt(client, "assign_buckets() with " + given,
            [&] { assign_buckets(eight_weights(), cap); });
    attempt(client, "make_bucketed_ddp() of frozen weights with " + given, [&] {
      static_cast<void>(make_bucketed_ddp({at::ones({2})}, {}, group, {.cap_bytes = cap}));
    });
    attempt(client, "make_bucketed_ddp() with " + given, [&] {
      static_cast<void>(make_bucketed_ddp(eight_weights(), {}, group, {.cap_bytes = cap}));
    });
  }
  attempt(client, "assign_buckets() of no parameters", [] { assign_buckets({}, kSome); });
  attempt(client, "assign_buckets() of an undefined parameter (index 7)",
          [&] { assign_buckets(undefined, kSome); });
  attempt(client, "assign_buckets() of a parameter that is no leaf (index 7)",
          [&] { assign_buckets(inner, kSome); });
}

// All weights are in one bucket, so that nothing is in flight when the error is found, in the second
// step. A frozen weight may be what it likes.
void move_to_float64(Client& client, bool overlap, bool used, bool has_gradient = false) {
  const std::vector<at::Tensor> weights = eight_weights();
  weights[5].set_requires_grad(false);
  const auto synchronizer = make_bucketed_ddp(weights, {}, make_group(client.shared_from_this()),
                                              {.cap_bytes = kOne, .overlap = overlap});
  weights[5].set_data(weights[5].to(at::kDouble));
  const auto step = [&](int used) {
    at::Tensor loss = at::zeros({}, settings().device);
    for (int i = 0; i < used; ++i) {
      loss = loss + weights[i].sum().to(at::kFloat);
    }
    loss.backward();
    synchronizer->finish();
  };
  step(8);
  if (!has_gradient) {
    for (const at::Tensor& weight : weights) {
      weight.mutable_grad().reset();
    }
  }
  weights[7].set_data(weights[7].detach().to(at::kDouble));
  attempt(client, "a parameter that has been moved to float64 (index 7)",
          [&] { step(used ? 8 : 7); });
}

// Elements of the new dtype are as large as the old ones.
void move_to_bfloat16(Client& client) {
  std::vector<at::Tensor> weights = eight_weights();
  for (at::Tensor& weight : weights) {
    weight = weight.detach().to(at::kHalf).set_requires_grad(weight.requires_grad());
  }
  const auto synchronizer =
      make_bucketed_ddp(weights, {}, make_group(client.shared_from_this()), {.cap_bytes = kOne});
  weights[7].set_data(weights[7].detach().to(at::kBFloat16));
  attempt(client, "a parameter that has been moved from half to bfloat16 (index 7)", [&] {
    weights[7].sum().backward();
    synchronizer->finish();
  });
}

// Of two buckets: the first, which is in flight then, or the second, which waits for it.
void second_backward_of_a_bucket(Client& client, std::size_t layer) {
  Training training(client, {.layers = {{{3}}, {{5}}}}, bucketed({.cap_bytes = kEach}));
  training.construct();
  training.backward(training.loss_in_order({layer}), /*create_graph=*/true);
  attempt(client, "a second backward outside NoSync before finish()",
          [&] { training.backward(training.loss_in_order({layer}), /*create_graph=*/true); });
  if (layer == 1) {
    return;  // destroyed as it is
  }
  try {
    training.synchronizer().finish();  // need not work after such an error
  } catch (const c10::Error&) {
  }
}

// What the layers of a count_memory() are like.
enum class LayerKind { kPlain, kTransposed, kTwoDtypes };

// Eight layers of equal bytes. Backward keeps nothing but the gradients, and briefly needs space for
// one more; for two, where it brings a gradient into its weight's layout. finish() needs none.
void count_memory(Client& client, const BucketedDdpOptions& options, LayerKind kind) {
  constexpr std::int64_t kLayer = 64 * 64 * 4;
  constexpr std::int64_t kAll = 8 * kLayer;
  std::vector<at::Tensor> parameters(8);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool half = kind == LayerKind::kTwoDtypes && i % 2 == 0;
    const at::Tensor values = at::ones({half ? 128 : 64, 64}, half ? at::kHalf : at::kFloat);
    parameters[i] = (kind == LayerKind::kTransposed ? values.t() : values).set_requires_grad(true);
  }
  client.fact("bytes: limit", kAll + std::min(options.cap_bytes, kAll));
  MemoryMeter meter;
  const auto synchronizer =
      make_bucketed_ddp(parameters, {}, make_group(client.shared_from_this()), options);
  client.fact("bytes: after construction", meter.live_bytes());
  for (int step = 0; step < 61; ++step) {
    for (const at::Tensor& parameter : parameters) {
      if (step % 3 == 0) {
        parameter.mutable_grad().reset();
      } else {
        parameter.mutable_grad().zero_();
      }
    }
    meter.reset_peak();
    // A gradient that is missing may be a view of its bucket, but not beside copies of the others.
    at::Tensor loss = at::zeros({});
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (step == 0 || step % 3 != 0 || i % 2 == 0) {
        loss = loss + (parameters[i] * 2).sum();
      }
    }
    loss.backward();
    client.fact("bytes: within backward, beside the gradients",
                meter.peak_bytes() - kAll - (kind == LayerKind::kTransposed ? 2 : 1) * kLayer);
    loss.reset();
    meter.reset_peak();
    synchronizer->finish();
    client.fact("bytes: within finish(), beside the gradients", meter.peak_bytes() - kAll);
    if (step == 20 || step == 40 || step == 60) {
      client.settle();
      client.fact("held: handles of operations", client.live_handles());
      client.fact("held: bytes of tensors", meter.live_bytes());
    }
  }
}

}  // namespace

std::vector<Body> misuse() {
  const SynchronizerUnderTest some = subject({.cap_bytes = kSome});
  std::vector<Body> all =
      joined({misuse_bodies(some), second_backward_bodies(some),
              misuse_bodies(subject({.cap_bytes = kSome, .overlap = false}, "without overlap: "))});
  const auto add = [&](const std::string& name, const std::function<void(Client&)>& run,
                       const Rare& rare = {}) {
    all.push_back({name, {}, run, kErrorsTest, rare});
  };
  add("wrong caps and plans", plan_wrongly);
  for (const bool overlap : {true, false}) {
    const std::string form = overlap ? "" : "without overlap: ";
    add(form + "a parameter is moved to float64",
        [overlap](Client& client) { move_to_float64(client, overlap, true); });
    add(form + "an unused parameter is moved to float64",
        [overlap](Client& client) { move_to_float64(client, overlap, false); });
    add(form + "a parameter is moved to float64, and its gradient is not",
        [overlap](Client& client) { move_to_float64(client, overlap, false, true); });
  }
  add("a second backward before finish(), of the second bucket",
      [](Client& client) { second_backward_of_a_bucket(client, 0); });
  add("a second backward before finish(), of the first bucket",
      [](Client& client) { second_backward_of_a_bucket(client, 1); });
  add("a parameter is moved to bfloat16", move_to_bfloat16, {kDtype});
  return all;
}

std::vector<Body> destruction() { return destruction_bodies(subject({.cap_bytes = kSome})); }

std::vector<Body> memory() {
  std::vector<Body> all;
  constexpr std::int64_t kLayer = 4096 * 4;
  const auto add = [&](std::int64_t cap, bool overlap, LayerKind kind = LayerKind::kPlain,
                       const std::string& layers = "") {
    const BucketedDdpOptions options = {.cap_bytes = cap, .overlap = overlap};
    const Rare rare = kind == LayerKind::kTransposed  ? Rare{kStridedState, kStridedGradients}
                      : kind == LayerKind::kTwoDtypes ? Rare{kDtype}
                                                      : Rare{};
    all.push_back({std::string(overlap ? "" : "without overlap: ") + "memory with a cap of " +
                       std::to_string(cap) + " bytes" + layers,
                   {},
                   [=](Client& client) { count_memory(client, options, kind); },
                   "buckets_take_the_gradients_bytes_and_one_bucket",
                   rare});
  };
  add(kLayer, true);
  add(2 * kLayer, true);
  add(8 * kLayer, true);
  add(kOne, true);
  add(2 * kLayer, false);
  add(2 * kLayer, true, LayerKind::kTransposed, ", transposed");
  add(2 * kLayer, true, LayerKind::kTwoDtypes, ", of two dtypes");
  return all;
}

}  // namespace ddp::testing
