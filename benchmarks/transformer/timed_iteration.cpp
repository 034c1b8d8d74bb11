#include "transformer/timed_iteration.h"

namespace ddp {

TimedIteration::TimedIteration(const Workplace& workplace)
    : group_(workplace.group),
      train_(make_device_timer(workplace.device)),
      backward_(make_device_timer(workplace.device)),
      finish_(make_device_timer(workplace.device)) {}

std::vector<double> TimedIteration::run(Trainer& trainer, AdamW& optimizer,
                                        const LabelledBatch& batch) {
  barrier(group_);
  train_->start();
  const at::Tensor loss = trainer.forward(batch);
  backward_->start();
  trainer.backward(loss);
  backward_->stop();
  const double backward = backward_->seconds();  // returns when the device has come so far
  finish_->start();
  trainer.finish();
  finish_->stop();
  optimizer.step();
  train_->stop();
  return {train_->seconds(), backward, finish_->seconds()};
}

}  // namespace ddp
