#include "experiments/bucketed_ddp/timed_iteration.h"

namespace ddp {

TimedIteration::TimedIteration(const DeviceContext& device_context)
    : group_(device_context.group),
      train_(make_device_timer(device_context.device)),
      backward_(make_device_timer(device_context.device)),
      finish_(make_device_timer(device_context.device)) {}

std::vector<double> TimedIteration::run(Trainer& trainer, AdamW& optimizer,
                                        const LabelledBatch& batch) {
  barrier(group_);
  train_->start();
  const at::Tensor loss = trainer.forward(batch);
  backward_->start();
  trainer.backward(loss);
  backward_->stop();
  const double backward = backward_->seconds();  // returns when the device has finished backward
  finish_->start();
  trainer.finish();
  finish_->stop();
  optimizer.step();
  train_->stop();
  return {train_->seconds(), backward, finish_->seconds()};
}

}  // namespace ddp
