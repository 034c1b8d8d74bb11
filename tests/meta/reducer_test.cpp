// libtorch's own gradient synchronizer, c10d::Reducer, on all decorators: it must work as on Gloo,
// and its time must count.
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "ddp/toy_models.h"
#include "support/compare.h"
#include "support/oracle.h"
#include "support/ranks.h"

namespace ddp {
namespace {

using testing::Rank;

constexpr std::int64_t kForward = 1'000;
constexpr std::int64_t kBackward = 2'000;
constexpr NetworkModel kNetwork{.alpha_ns = 50'000, .beta_ns_per_byte = 1.5};
constexpr std::int64_t kBucketBytes = 512;
constexpr int kSteps = 4;

std::unique_ptr<c10d::Reducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                            const ProcessGroupPtr& group, bool bucket_view) {
  const std::vector<bool> dense(parameters.size(), false);
  auto buckets =
      std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, {kBucketBytes}, dense));
  std::reverse(buckets.begin(), buckets.end());
  return std::make_unique<c10d::Reducer>(
      parameters, buckets, group, dense, kBucketBytes, /*find_unused_parameters=*/false,
      bucket_view, std::unordered_map<std::size_t, std::string>{},
      /*first_bucket_bytes_cap=*/kBucketBytes, /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, std::vector<std::int64_t>{});
}

std::int64_t all_reduce_ns(int p, std::int64_t bytes) {
  const auto x = static_cast<long double>(bytes) * kNetwork.beta_ns_per_byte;
  return std::llroundl(2 * (p - 1) * (kNetwork.alpha_ns + x / p));
}

// The step lasts as long as the computation and what came last; in between, buckets go one after
// the other.
void expect_time_of_step(Rank& rank, std::int64_t lasted) {
  const std::int64_t compute = toy_layers(ToyKind::kMlp) * (kForward + kBackward);
  std::int64_t communication = 0;
  std::int64_t last = 0;
  std::int64_t buckets = 0;
  for (const RecordedOperation& operation : rank.recorder().operations()) {
    if (operation.is_all_reduce()) {
      last = all_reduce_ns(rank.world_size(), operation.bytes);
      communication += last;
      ++buckets;
    }
  }
  EXPECT_GE(buckets, 2);
  EXPECT_GE(lasted, compute + last) << "the last bucket is full only when backward ends";
  EXPECT_GE(lasted, communication);
  EXPECT_LT(lasted, compute + communication + (rank.world_size() == 1 ? 1 : 0))
      << "the buckets before it overlap with backward";
}

void train(Rank& rank, bool bucket_view) {
  const ToyOptions options{.rank = rank.rank(),
                           .seed = testing::settings().seed,
                           .clock = rank.clock(),
                           .forward_ns = kForward,
                           .backward_ns = kBackward};
  const auto model = make_toy_model(ToyKind::kMlp, options);
  const auto named = model->named_parameters();
  rank.name(named);
  testing::Oracle oracle(ToyKind::kMlp, options, rank.world_size());
  const auto reducer = make_reducer(tensors_of(named), rank.group(), bucket_view);
  for (int step = 0; step < kSteps; ++step) {
    for (const NamedTensor& parameter : named) {
      parameter.tensor.mutable_grad() = at::Tensor();
    }
    reducer->rebuild_buckets();
    const std::int64_t begin = rank.network().start_step();
    rank.recorder().clear();
    reducer->prepare_for_forward();
    const at::Tensor loss = toy_loss(*model, make_toy_batch(options, rank.rank(), step));
    reducer->prepare_for_backward({});
    torch::autograd::backward({loss}, {});
    expect_time_of_step(rank, rank.network().step_end() - begin);

    const auto expected = oracle.gradients(step, rank.rank());
    for (std::size_t i = 0; i < named.size(); ++i) {
      EXPECT_TRUE(testing::is_close(
          {.name = named[i].name, .world_size = rank.world_size(), .local = expected[i].local},
          named[i].tensor.grad(), expected[i].mean, 1e-12));
    }
  }
}

TEST(Reducer, StepRunsOnAllDecorators) {
  testing::run_worlds({1, 2, 4}, [](Rank& rank) { train(rank, false); }, {.network = kNetwork});
}

TEST(Reducer, StepRunsWithGradientsAsBucketViews) {
  testing::run_worlds({2, 3}, [](Rank& rank) { train(rank, true); }, {.network = kNetwork});
}

}  // namespace
}  // namespace ddp
