// The extension's variants: "sharded" and "sharded sync", which overlaps nothing, stage 06, and "fully
// sharded" and "no prefetch", stage 07. They update parameters in finish(), and leave the given parameters no gradients.
#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include "06_sharded_optimizer/sharded_optimizer.h"
#include "07_fully_sharded/fully_sharded.h"
#include "ddp/storage.h"
#include "measuring/variants.h"

namespace ddp {
namespace {

constexpr double kPlainRate = 0.01;

std::unique_ptr<torch::optim::Optimizer> plain_sgd(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), kPlainRate);
}

MakeOptimizer optimizer_of(const VariantOptions& options) {
  return options.optimizer ? options.optimizer : plain_sgd;
}

class Sharded : public Variant {
 public:
  Sharded(const Ingredients& i, bool overlap)
      : optimizer_(make_sharded_optimizer(i.parameters, i.buffers, i.group, optimizer_of(i.options),
                                          {.cap_bytes = i.options.cap_bytes, .overlap = overlap})) {
  }
  void finish() override { optimizer_->step(); }

 private:
  std::unique_ptr<ShardedOptimizer> optimizer_;
};

// On meta, where memory is counted, the parameters that it was made from lose theirs: nobody has them
// whole any more.
class Units : public Variant {
 public:
  Units(const Ingredients& i, int prefetch) : count_(i.options.units.size()) {
    TORCH_CHECK_VALUE(count_ > 0, "\"fully sharded\" needs the model's units");
    std::vector<Unit> units;
    for (const ModelUnit& unit : i.options.units) {
      units.push_back({unit.parameters, unit.function});
    }
    model_ = make_fully_sharded(std::move(units), i.group, {.prefetch = prefetch});
    optimizer_ = optimizer_of(i.options)(model_->shards());
    for (const at::Tensor& parameter : i.parameters) {
      if (parameter.is_meta()) {
        empty_storage(parameter);
      }
    }
  }
  void before_forward() override { optimizer_->zero_grad(); }
  at::Tensor forward(const Forward&, const at::Tensor& x) override {
    at::Tensor y = x;
    for (std::size_t i = 0; i < count_; ++i) {
      y = model_->forward(i, y);
    }
    return y;
  }
  void finish() override {
    model_->finish();
    optimizer_->step();
  }

 private:
  const std::size_t count_;
  std::unique_ptr<FullySharded> model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

const MoreVariants kShardedVariants({
    {"sharded", "06_sharded_optimizer",
     [](const Ingredients& i) -> std::unique_ptr<Variant> {
       return std::make_unique<Sharded>(i, /*overlap=*/true);
     },
     /*special=*/true, /*updates=*/true},
    {"sharded sync", "06_sharded_optimizer",
     [](const Ingredients& i) -> std::unique_ptr<Variant> {
       return std::make_unique<Sharded>(i, /*overlap=*/false);
     },
     /*special=*/true, /*updates=*/true},
    {"fully sharded", "07_fully_sharded",
     [](const Ingredients& i) -> std::unique_ptr<Variant> {
       return std::make_unique<Units>(i, i.options.prefetch);
     },
     /*special=*/true, /*updates=*/true},
    {"no prefetch", "07_fully_sharded",
     [](const Ingredients& i) -> std::unique_ptr<Variant> { return std::make_unique<Units>(i, 0); },
     /*special=*/true, /*updates=*/true},
});

}  // namespace
}  // namespace ddp
