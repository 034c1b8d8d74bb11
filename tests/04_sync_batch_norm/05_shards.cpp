#include <ATen/ATen.h>

#include <numeric>

#include "norm_case.h"
#include "support/compare.h"
#include "support/grading.h"

// Ranks with different numbers of samples, with one, with none; and too few samples in total.

namespace ddp::testing {

namespace {

using Rows = std::vector<std::int64_t>;

// How many samples each rank has.
std::vector<Rows> divisions(int world_size) {
  switch (world_size) {
    case 2:
      return {{7, 2}, {1, 8}, {0, 6}, {6, 0}, {1, 1}};
    case 3:
      return {{5, 1, 3}, {0, 4, 2}, {4, 0, 0}, {0, 0, 4}, {1, 0, 1}};
    default:
      return {{1, 2, 3, 4}, {0, 0, 5, 1}, {1, 1, 1, 1}};
  }
}

const GradedTest kShards{
    {.name = "shards_may_be_unequal_or_empty",
     .points = 1,
     .hint =
         "Weight a rank's statistics by its number of values. A rank without any has no mean: it "
         "contributes zeros, takes part in both collectives, and its results are empty or zero."},
    [] {
      run_worlds({2, 3, 4}, [](Rank& rank) {
        for (const Rows& rows : divisions(rank.world_size())) {
          const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
          for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
            expect_forward_and_backward(rank, {.shape = {total, 3}, .dtype = dtype, .rows = rows});
            expect_forward_and_backward(rank,
                                        {.shape = {total, 2, 3, 2}, .dtype = dtype, .rows = rows});
          }
          expect_forward_and_backward(
              rank, {.shape = {total, 4, 5}, .dtype = at::kDouble, .affine = false, .rows = rows});
        }
        // One sample in total, with several values in each channel.
        Rows one(rank.world_size(), 0);
        one.back() = 1;
        expect_forward_and_backward(rank,
                                    {.shape = {1, 3, 2, 2}, .dtype = at::kDouble, .rows = one});
      });
    }};

// Every rank must throw, and leave its running statistics unchanged. It may throw before or after
// the collective, but no rank may be left waiting in it.
void expect_error_of_count(const Rank& rank, const at::Tensor& input, const std::string& what) {
  const auto options = input.options().requires_grad(false);
  const at::Tensor mean = at::full({input.size(1)}, 3.0, options);
  const at::Tensor variance = at::full({input.size(1)}, 5.0, options);
  try {
    sync_batch_norm(input, running_tensors(mean, variance), rank.group());
    ADD_FAILURE() << what << " should be an error on every rank; nothing was thrown";
  } catch (const c10::NotImplementedError&) {
    throw;
  } catch (const c10::DistBackendError&) {
    throw;  // an error of the group, not of the count
  } catch (const c10::Error& error) {
    EXPECT_TRUE(mean.eq(3).all().item<bool>() && variance.eq(5).all().item<bool>())
        << what << " is an error, and the running statistics were changed all the same";
  } catch (const std::exception& error) {
    ADD_FAILURE() << what << " should throw c10::Error; it threw something else: " << error.what();
  }
}

const GradedTest kCount{
    {.name = "a_global_count_of_one_is_an_error_on_all_ranks",
     .points = 1,
     .hint = "Before the collective no rank knows the total number of values; after it, all do: "
             "TORCH_CHECK() the global count there, before the running statistics change."},
    [] {
      run_worlds({1, 2, 3}, [](Rank& rank) {
        const at::TensorOptions options = at::TensorOptions(at::kFloat).device(settings().device);
        const bool last = rank.rank() == rank.world_size() - 1;
        const auto rows = [&](std::int64_t of_last) { return last ? of_last : 0; };
        expect_error_of_count(rank, at::ones({rows(1), 3}, options),
                              "one value a channel on all ranks together");
        expect_error_of_count(rank, at::ones({rows(1), 3, 1, 1}, options).set_requires_grad(true),
                              "one sample of one position on all ranks together");
        expect_error_of_count(rank, at::ones({rows(0), 3, 4}, options), "no sample on any rank");
        expect_error_of_count(rank, at::ones({rows(2), 3, 0}, options),
                              "samples without a position");
        // But one sample on a rank is enough if others have some.
        NormCase norm(rank, {.shape = {rank.world_size() + 1, 3}});
        norm.expect_output(
            sync_batch_norm(norm.input_shard(), norm.tensors, rank.group()).detach());
      });
    }};

}  // namespace

}  // namespace ddp::testing
