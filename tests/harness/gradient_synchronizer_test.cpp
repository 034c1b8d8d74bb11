#include "ddp/gradient_synchronizer.h"

#include <gtest/gtest.h>

namespace ddp {
namespace {

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
