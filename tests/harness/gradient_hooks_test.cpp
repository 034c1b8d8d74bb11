// on_gradient_ready(): many functions share libtorch's single slot per parameter.
#include "ddp/gradient_hooks.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>

#include <optional>

#include "ddp/models/toy_models.h"
#include "support/ranks.h"
#include "support/settings.h"

namespace ddp {
namespace {

using testing::in_child;

at::Tensor leaf(double value) { return at::full({2}, value).set_requires_grad(true); }

void backward(const at::Tensor& loss) { torch::autograd::backward({loss.sum()}, {}); }

// A function that appends its name to `log`.
GradientReadyFunction note(std::string& log, char name) {
  return [&log, name](const at::Tensor&) { log += name; };
}

TEST(GradientHooks, SeeTheAccumulatedGradientInEveryBackward) {
  in_child([] {
    const at::Tensor parameter = leaf(3);
    std::vector<double> seen;
    const GradientHook hook = on_gradient_ready(parameter, [&](const at::Tensor& ready) {
      EXPECT_TRUE(ready.is_same(parameter));
      seen.push_back(ready.grad()[0].item<double>());
    });
    backward(parameter * 2);
    backward(parameter * 5);
    EXPECT_EQ(seen, (std::vector<double>{2, 7}));
  });
}

TEST(GradientHooks, AreCalledInTheOrderGradientsCome) {
  in_child([] {
    std::string log;
    const at::Tensor first = leaf(1);
    const at::Tensor second = leaf(1);
    const at::Tensor unused = leaf(1);
    const GradientHook a = on_gradient_ready(first, note(log, 'a'));
    const GradientHook b = on_gradient_ready(second, note(log, 'b'));
    const GradientHook c = on_gradient_ready(unused, note(log, 'c'));
    backward((first * 2).tanh() * second);
    EXPECT_EQ(log, "ba") << "the last layer's comes first, the unused one's never";
  });
}

TEST(GradientHooks, SeveralShareAParameterInOrder) {
  in_child([] {
    std::string log;
    const at::Tensor parameter = leaf(1);
    const GradientHook a = on_gradient_ready(parameter, note(log, 'a'));
    std::optional<GradientHook> b = on_gradient_ready(parameter, note(log, 'b'));
    const GradientHook c = on_gradient_ready(parameter, note(log, 'c'));
    backward(parameter * 1);
    EXPECT_EQ(log, "abc");
    b.reset();
    backward(parameter * 1);
    EXPECT_EQ(log, "abcac");
  });
}

TEST(GradientHooks, MoveKeepsTheRegistration) {
  in_child([] {
    std::string log;
    const at::Tensor parameter = leaf(1);
    GradientHook a = on_gradient_ready(parameter, note(log, 'a'));
    std::vector<GradientHook> hooks;
    hooks.push_back(std::move(a));
    backward(parameter * 1);
    EXPECT_EQ(log, "a");
    hooks[0] = on_gradient_ready(parameter, note(log, 'b'));  // destroys the one it replaces
    backward(parameter * 1);
    EXPECT_EQ(log, "ab");
    hooks.clear();
    backward(parameter * 1);
    EXPECT_EQ(log, "ab");
  });
}

TEST(GradientHooks, MayUnhookAndHookInsideTheirFunctions) {
  in_child([] {
    std::string log;
    const at::Tensor parameter = leaf(1);
    std::optional<GradientHook> once, later, other;
    once = on_gradient_ready(parameter, [&](const at::Tensor& ready) {
      once.reset();
      other.reset();  // it would come later in this backward, and must no longer be called
      log += 'o';
      later = on_gradient_ready(ready, note(log, 'l'));
    });
    other = on_gradient_ready(parameter, note(log, 'x'));
    backward(parameter * 1);
    EXPECT_EQ(log, "o");
    backward(parameter * 1);
    EXPECT_EQ(log, "ol");
  });
}

TEST(GradientHooks, MayOutliveTheParameter) {
  in_child([] {
    std::string log;
    GradientHook hook;
    {
      const at::Tensor parameter = leaf(1);
      hook = on_gradient_ready(parameter, note(log, 'a'));
      backward(parameter * 1);
    }
    hook = GradientHook();
    EXPECT_EQ(log, "a");
  });
}

TEST(GradientHooks, WhatTheyThrowBackwardThrows) {
  in_child([] {
    const at::Tensor parameter = leaf(1);
    const GradientHook hook = on_gradient_ready(
        parameter, [](const at::Tensor&) { throw std::runtime_error("not today"); });
    try {
      backward(parameter * 1);
      ADD_FAILURE() << "backward did not throw";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("not today"), std::string::npos) << error.what();
    }
  });
}

TEST(GradientHooks, TiedWeightsAreReadyOnce) {
  in_child([] {
    int calls = 0;
    const at::Tensor tied = leaf(2);
    const GradientHook hook = on_gradient_ready(tied, [&](const at::Tensor& ready) {
      ++calls;
      EXPECT_EQ(ready.grad()[0].item<double>(), 7) << "3 + 4: after both uses";
    });
    backward(tied * 3 + tied * 4);
    EXPECT_EQ(calls, 1);
  });
}

TEST(GradientHooks, AccumulationIsWhole) {
  in_child([] {
    for (const ToyKind kind : all_toy_models()) {
      const ToyOptions options{.seed = testing::settings().seed};
      const auto model = make_toy_model(kind, options);
      std::vector<GradientHook> hooks;
      std::vector<std::pair<at::Tensor, at::Tensor>> seen;
      for (const NamedTensor& parameter : model->named_parameters()) {
        if (parameter.tensor.requires_grad()) {
          hooks.push_back(on_gradient_ready(parameter.tensor, [&](const at::Tensor& ready) {
            seen.emplace_back(ready, ready.grad().clone());
          }));
        }
      }
      backward(toy_loss(*model, make_toy_batch(options, 0, 0)));
      EXPECT_FALSE(seen.empty());
      for (const auto& [parameter, gradient] : seen) {
        EXPECT_TRUE(at::equal(parameter.grad(), gradient)) << to_string(kind);
      }
    }
  });
}

class DirectHook : public torch::autograd::PostAccumulateGradHook {
 public:
  void operator()(const torch::autograd::Variable&) override {}
};

TEST(GradientHooks, DirectUseOfTheSlotIsDiagnosed) {
  in_child([] {
    const at::Tensor parameter = leaf(1);
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<DirectHook>());
    EXPECT_THROW(static_cast<void>(on_gradient_ready(parameter, [](const at::Tensor&) {})),
                 c10::Error);
  });
}

TEST(GradientHooks, NeedALeafThatRequiresAGradient) {
  in_child([] {
    const auto ignore = [](const at::Tensor&) {};
    const at::Tensor result = leaf(1) * 2;
    for (const at::Tensor& tensor : {at::Tensor(), at::ones({2}), result}) {
      EXPECT_THROW(static_cast<void>(on_gradient_ready(tensor, ignore)), c10::Error);
    }
    EXPECT_THROW(static_cast<void>(on_gradient_ready(leaf(1), nullptr)), c10::Error);
  });
}

}  // namespace
}  // namespace ddp
