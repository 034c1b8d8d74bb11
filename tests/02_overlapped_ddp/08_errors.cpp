#include <ATen/ATen.h>

#include <regex>

#include "overlapped.h"
#include "support/communication_checks.h"
#include "support/grading.h"

// What is an error, and how it affects the other ranks.

namespace ddp::testing {

namespace {

constexpr std::size_t kBad = 7;  // the index of the bad element, in a list of ten

at::TensorOptions on_device() { return at::TensorOptions(at::kFloat).device(settings().device); }

std::vector<at::Tensor> ten_parameters() {
  std::vector<at::Tensor> parameters;
  for (std::int64_t i = 0; i < 10; ++i) {
    parameters.push_back(at::ones({2, 3}, on_device()).set_requires_grad(true));
  }
  return parameters;
}

// `call` must throw c10::Error with a message that contains `pattern`.
void expect_error(const std::string& what, const std::function<void()>& call,
                  const std::string& pattern = "") {
  try {
    call();
    ADD_FAILURE() << what << " is an error (c10::Error), and was accepted";
  } catch (const c10::NotImplementedError&) {
    throw;  // a stub
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    EXPECT_TRUE(std::regex_search(message, std::regex(pattern)))
        << what << ": the message should name its index, which is " << kBad << "; it was: \""
        << message << "\"";
  } catch (const std::exception& error) {
    ADD_FAILURE() << what << " should throw c10::Error (TORCH_CHECK does); it threw another "
                  << "exception: \"" << error.what() << "\"";
  }
}

const std::string kNamesIndex = "\\b" + std::to_string(kBad) + "\\b";

void expect_bad_arguments_found(Rank& rank) {
  rank.recorder().clear();
  const auto make = [&](const std::vector<at::Tensor>& parameters,
                        const std::vector<at::Tensor>& buffers, const ProcessGroupPtr& group) {
    return [=] { static_cast<void>(overlapped()(parameters, buffers, group)); };
  };
  const std::vector<at::Tensor> good = ten_parameters();
  std::vector<at::Tensor> hole = good;
  hole[kBad] = at::Tensor();
  std::vector<at::Tensor> inner = good;
  inner[kBad] = good[kBad] * 2;
  std::vector<at::Tensor> buffers(10, at::ones({2}, on_device()));
  buffers[kBad] = at::Tensor();
  expect_error("an empty list of parameters", make({}, {}, rank.group()));
  expect_error("a process group that is null", make(good, {}, nullptr));
  expect_error("an undefined parameter", make(hole, {}, rank.group()), kNamesIndex);
  expect_error("an undefined buffer", make(good, buffers, rank.group()), kNamesIndex);
  expect_error("a trainable parameter that is not a leaf", make(inner, {}, rank.group()),
               kNamesIndex);
  expect_silence(rank,
                 "construction with a bad argument, which is to be found before anything is "
                 "sent,");
}

// Only the parameter at kBad is trainable: a table, of which backward reads two rows.
struct Table {
  Table() : parameters(ten_parameters()) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].set_requires_grad(i == kBad);
    }
  }

  void backward(bool sparse) const {
    const at::Tensor rows = at::arange(2, on_device().dtype(at::kLong));
    at::embedding(parameters[kBad], rows, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, sparse)
        .sum()
        .backward();
  }

  std::vector<at::Tensor> parameters;
};

void expect_sparse_gradient_found(Rank& rank) {
  const Table table;
  const auto synchronizer = overlapped()(table.parameters, {}, rank.group());
  rank.recorder().clear();
  expect_error(
      "a sparse gradient",
      [&] {
        table.backward(/*sparse=*/true);
        synchronizer->finish();
      },
      kNamesIndex);
  expect_silence(rank, "a step with a sparse gradient");
}

void expect_second_backward_found(Rank& rank) {
  const ChainModel model(rank, layers_of({3, 5}));
  const auto synchronizer = overlapped()(tensors_of(model.parameters()), {}, rank.group());
  const auto backward = [&] {
    // With create_graph autograd does not accumulate in place, so nothing in flight is overwritten:
    // the error has to come from the synchronizer itself.
    at::Tensor loss = at::zeros({}, on_device());
    for (const NamedTensor& parameter : model.parameters()) {
      loss = loss + (parameter.tensor * (rank.rank() + 1)).sum();
    }
    loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  };
  backward();
  rank.recorder().clear();
  expect_error("a second backward outside NoSync, without finish() after the first,", backward);
  expect_silence(rank, "a second backward without finish() after the first");
  synchronizer->finish();
}

// `call` needs rank 1, which has failed: it must fail as well, and not wait forever.
void expect_failure(const std::string& what, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << what << " succeeded, although rank 1 had failed and took no part in it";
  } catch (const c10::NotImplementedError&) {
    throw;  // a stub
  } catch (const std::exception&) {
    SUCCEED() << "as it should";
  }
}

void expect_construction_fails_everywhere(Rank& rank) {
  const bool errs = rank.rank() == 1;
  const at::Tensor weight = at::ones({3}, on_device()).set_requires_grad(true);
  const auto make = [&] {
    static_cast<void>(overlapped()({errs ? at::Tensor() : weight}, {}, rank.group()));
  };
  if (errs) {
    expect_error("an undefined parameter on this rank only", make);
  } else {
    expect_failure("construction", make);
  }
}

void expect_finish_fails_everywhere(Rank& rank) {
  const bool errs = rank.rank() == 1;
  const Table table;
  const auto synchronizer = overlapped()(table.parameters, {}, rank.group());
  const auto step = [&] {
    table.backward(/*sparse=*/errs);
    synchronizer->finish();
  };
  if (errs) {
    expect_error("a sparse gradient on this rank only", step, kNamesIndex);
  } else {
    expect_failure("finish()", step);
  }
}

const GradedTest kErrors{
    {.name = "mistakes_are_errors_and_hang_nobody",
     .points = 1,
     .hint = "Check all arguments before the first broadcast, a gradient before its launch, and in "
             "the hook whether this parameter is still in flight: TORCH_CHECK, with its index."},
    [] {
      run_worlds({1, 2}, expect_bad_arguments_found);
      run_worlds({2, 3}, expect_sparse_gradient_found);
      run_worlds({2, 3}, expect_second_backward_found);
      // Only the graded backend knows that a rank will never come, and it takes only CPU tensors.
      if (settings().device.is_cpu() && !::testing::Test::HasFailure()) {
        run_worlds({2, 3}, expect_construction_fails_everywhere);
        run_worlds({2, 3}, expect_finish_fails_everywhere);
      }
    }};

}  // namespace

}  // namespace ddp::testing
