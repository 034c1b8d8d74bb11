#include <ATen/ATen.h>

#include "support/compare.h"
#include "support/grading.h"
#include "trainee.h"

namespace ddp::testing {

namespace {

constexpr std::uint64_t kOtherSeeds = 1000;

// Each rank starts from weights and buffers of its own, and must end with those of rank 0.
void expect_state_of_rank_0(Rank& rank, ToyKind kind, at::ScalarType dtype) {
  ToyOptions mine = toy_options(rank, dtype);
  mine.seed += kOtherSeeds * rank.rank();
  const auto reference = make_toy_model(kind, toy_options(rank, dtype));
  const auto model = make_toy_model(kind, mine);
  rank.name(model->named_parameters());
  rank.name(model->named_buffers());
  const auto expect_same = [&](const std::vector<NamedTensor>& actual,
                               const std::vector<NamedTensor>& expected) {
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const std::string name = actual[i].name + " after construction (model: " + to_string(kind) +
                               ", " + c10::getDtypeNames(dtype).first +
                               "), compared with rank 0's,";
      EXPECT_TRUE(
          is_bitwise_equal({name, rank.world_size()}, actual[i].tensor, expected[i].tensor));
    }
  };
  std::vector<const void*> storage;
  for (const NamedTensor& parameter : model->named_parameters()) {
    storage.push_back(parameter.tensor.const_data_ptr());
  }

  const auto synchronizer = make_naive_ddp(tensors_of(model->named_parameters()),
                                           tensors_of(model->named_buffers()), rank.group());

  expect_same(model->named_parameters(), reference->named_parameters());
  expect_same(model->named_buffers(), reference->named_buffers());
  for (std::size_t i = 0; i < storage.size(); ++i) {
    EXPECT_EQ(storage[i], model->named_parameters()[i].tensor.const_data_ptr())
        << model->named_parameters()[i].name
        << " has moved to other memory: an optimizer that was made before would miss it";
  }
}

const GradedTest kConstruction{
    {.name = "construction_broadcasts_rank_0",
     .points = 2,
     .hint = "Broadcast everything the model consists of: parameters, frozen ones too, and "
             "buffers of every dtype. Autograd must not see it: work on parameter.detach()."},
    [] {
      run_worlds({1, 2, 3, 4}, [](Rank& rank) {
        for (const ToyKind kind : all_toy_models()) {
          expect_state_of_rank_0(rank, kind, at::kDouble);
          expect_state_of_rank_0(rank, kind, at::kFloat);
        }
        if (rank.world_size() > 1) {
          EXPECT_GT(rank.recorder().operations().size(), 0U) << "nothing was communicated";
        }
      });
    }};

}  // namespace

}  // namespace ddp::testing
