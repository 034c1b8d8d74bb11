// Gradients as they come, on_gradient_ready(), and as they are not to be sent, NoSync.
#include "ddp/gradient_hooks.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>

#include <optional>

#include "common/checks.h"
#include "ddp/gradient_synchronizer.h"
#include "ddp/models/toy_models.h"
#include "grader/settings.h"

namespace ddp {
namespace {

at::Tensor leaf(double value) { return at::full({2}, value).set_requires_grad(true); }

void backward(const at::Tensor& loss) { torch::autograd::backward({loss.sum()}, {}); }

// A function that appends its name to `log`.
GradientReadyFunction note(std::string& log, char name) {
  return [&log, name](const at::Tensor&) { log += name; };
}

CHILD_TEST(GradientHooks, SeeTheAccumulatedGradientInEveryBackward) {
  const at::Tensor parameter = leaf(3);
  std::vector<double> seen;
  const GradientHook hook = on_gradient_ready(parameter, [&](const at::Tensor& ready) {
    EXPECT_TRUE(ready.is_same(parameter));
    seen.push_back(ready.grad()[0].item<double>());
  });
  backward(parameter * 2);
  backward(parameter * 5);
  EXPECT_EQ(seen, (std::vector<double>{2, 7}));
}

CHILD_TEST(GradientHooks, AreCalledInTheOrderGradientsCome) {
  std::string log;
  const at::Tensor first = leaf(1);
  const at::Tensor second = leaf(1);
  const at::Tensor unused = leaf(1);
  const GradientHook a = on_gradient_ready(first, note(log, 'a'));
  const GradientHook b = on_gradient_ready(second, note(log, 'b'));
  const GradientHook c = on_gradient_ready(unused, note(log, 'c'));
  backward((first * 2).tanh() * second);
  EXPECT_EQ(log, "ba") << "the last layer's comes first, the unused one's never";
}

CHILD_TEST(GradientHooks, SeveralShareAParameterInOrder) {
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
}

CHILD_TEST(GradientHooks, MoveKeepsTheRegistration) {
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
}

CHILD_TEST(GradientHooks, MayUnhookAndHookInsideTheirFunctions) {
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
}

CHILD_TEST(GradientHooks, MayOutliveTheParameter) {
  std::string log;
  GradientHook hook;
  {
    const at::Tensor parameter = leaf(1);
    hook = on_gradient_ready(parameter, note(log, 'a'));
    backward(parameter * 1);
  }
  hook = GradientHook();
  EXPECT_EQ(log, "a");
}

CHILD_TEST(GradientHooks, WhatTheyThrowBackwardThrows) {
  const at::Tensor parameter = leaf(1);
  const GradientHook hook = on_gradient_ready(
      parameter, [](const at::Tensor&) { throw std::runtime_error("not today"); });
  try {
    backward(parameter * 1);
    ADD_FAILURE() << "backward did not throw";
  } catch (const std::exception& error) {
    testing::expect_contains(error.what(), "not today");
  }
}

CHILD_TEST(GradientHooks, TiedWeightsAreReadyOnce) {
  int calls = 0;
  const at::Tensor tied = leaf(2);
  const GradientHook hook = on_gradient_ready(tied, [&](const at::Tensor& ready) {
    ++calls;
    EXPECT_EQ(ready.grad()[0].item<double>(), 7) << "3 + 4: after both uses";
  });
  backward(tied * 3 + tied * 4);
  EXPECT_EQ(calls, 1);
}

class DirectHook : public torch::autograd::PostAccumulateGradHook {
 public:
  void operator()(const torch::autograd::Variable&) override {}
};

CHILD_TEST(GradientHooks, DirectUseOfTheSlotIsDiagnosed) {
  const at::Tensor parameter = leaf(1);
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<DirectHook>());
  EXPECT_THROW(static_cast<void>(on_gradient_ready(parameter, [](const at::Tensor&) {})),
               c10::Error);
}

CHILD_TEST(GradientHooks, NeedALeafThatRequiresAGradient) {
  const auto ignore = [](const at::Tensor&) {};
  const at::Tensor result = leaf(1) * 2;
  for (const at::Tensor& tensor : {at::Tensor(), at::ones({2}), result}) {
    EXPECT_THROW(static_cast<void>(on_gradient_ready(tensor, ignore)), c10::Error);
  }
  EXPECT_THROW(static_cast<void>(on_gradient_ready(leaf(1), nullptr)), c10::Error);
}

class CountingSynchronizer : public GradientSynchronizer {
 public:
  void finish() override { finished += synchronizes() ? 1 : 0; }
  int finished = 0;
};

TEST(NoSync, ScopesNest) {
  CountingSynchronizer synchronizer;
  EXPECT_TRUE(synchronizer.synchronizes());
  {
    const NoSync outer(synchronizer);
    EXPECT_FALSE(synchronizer.synchronizes());
    {
      const NoSync inner(synchronizer);
      synchronizer.finish();
    }
    EXPECT_FALSE(synchronizer.synchronizes());
    synchronizer.finish();
  }
  EXPECT_TRUE(synchronizer.synchronizes());
  synchronizer.finish();
  EXPECT_EQ(synchronizer.finished, 1);
}

TEST(NoSync, EndsWithAnException) {
  CountingSynchronizer synchronizer;
  try {
    const NoSync guard(synchronizer);
    throw 1;
  } catch (int) {
  }
  EXPECT_TRUE(synchronizer.synchronizes());
}

TEST(NoSync, BelongsToOneSynchronizer) {
  CountingSynchronizer one, other;
  const NoSync guard(one);
  EXPECT_FALSE(one.synchronizes());
  EXPECT_TRUE(other.synchronizes());
}

}  // namespace
}  // namespace ddp
