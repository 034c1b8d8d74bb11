#include "forms.h"
#include "support/grading.h"

// How long a step takes, in virtual nanoseconds: exact, and the same on every machine.

namespace ddp::testing {

namespace {

constexpr std::int64_t kForward = 100'000;
constexpr std::int64_t kBackward = 200'000;
constexpr std::int64_t kSlower = 7'000;  // per layer, compared with the rank before

std::int64_t all_reduce_cost(Rank& rank, std::int64_t bytes) {
  return cost_ns(rank.network().network(), c10d::OpType::ALLREDUCE, bytes, rank.world_size());
}

void expect_step_time(Rank& rank, Form form) {
  ToyOptions options = toy_options(rank, at::kFloat);
  options.clock = rank.clock();
  options.forward_ns = kForward;
  options.backward_ns = kBackward + kSlower * rank.rank();
  Trainee trainee(rank, ToyKind::kMlp, options, make_form(form));

  std::int64_t each = 0;
  std::int64_t bytes = 0;
  for (const NamedTensor& parameter : trainee.parameters) {
    each += all_reduce_cost(rank, static_cast<std::int64_t>(parameter.tensor.nbytes()));
    bytes += static_cast<std::int64_t>(parameter.tensor.nbytes());
  }
  const std::int64_t communication = form == Form::kFlat ? all_reduce_cost(rank, bytes) : each;
  // Communication begins when the slowest rank has finished backward.
  const std::int64_t compute =
      toy_layers(ToyKind::kMlp) * (kForward + kBackward + kSlower * (rank.world_size() - 1));

  for (int step = 0; step < 2; ++step) {
    const std::int64_t start = rank.network().start_step();
    trainee.backward(step);
    trainee.synchronizer->finish();
    const std::int64_t took = rank.network().step_end() - start;
    EXPECT_EQ(took, compute + communication)
        << "virtual ns of step " << step << ", " << to_string(form) << " form: expected " << compute
        << " of computing + " << communication << " of communication, got " << took - compute
        << " beyond computing (a smaller number: started before backward had ended, or fewer "
           "bytes; a larger one: more operations or more bytes)";
  }
}

const GradedTest kStepTime{
    {.name = "step_time_is_compute_plus_communication",
     .points = 1,
     .hint = "Nothing overlaps in this stage: all-reduces start after backward, one after another, "
             "and nothing else is communicated. Count yours, and look for a barrier."},
    [] {
      const NetworkModel fast{.alpha_ns = 10'000, .beta_ns_per_byte = 0.1};
      const NetworkModel slow{.alpha_ns = 250'000, .beta_ns_per_byte = 8.0};
      for (const NetworkModel& network : {fast, slow}) {
        RankOptions options;
        options.network = network;
        run_worlds(
            {1, 2, 3, 4},
            [](Rank& rank) {
              expect_step_time(rank, Form::kPerParameter);
              expect_step_time(rank, Form::kFlat);
            },
            options);
        if (::testing::Test::HasFailure()) {
          return;
        }
      }
    }};

}  // namespace

}  // namespace ddp::testing
