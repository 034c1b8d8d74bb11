// Correct, and unusual: a callback of each all-reduce's future divides, on whatever thread;
// finish() waits until all callbacks have run. Plain structs and functions, few classes.
#include <ATen/ATen.h>

#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

#include "../construction.h"
#include "02_overlapped_ddp/overlapped_ddp.h"
#include "ddp/gradient_hooks.h"

namespace ddp {
namespace {

// State shared by callbacks and finish(); a callback may run late, so it shares ownership.
struct Landing {
  std::mutex mutex;
  std::condition_variable all_landed;
  int flying = 0;
  std::exception_ptr error;
};

struct Entry {
  std::size_t index;
  at::Tensor parameter;
  bool unsent = false;
  bool sent = false;
};

void send(Entry& entry, const ProcessGroupPtr& group, const std::shared_ptr<Landing>& landing) {
  const at::Tensor gradient = entry.parameter.grad();
  TORCH_CHECK(!gradient.is_sparse(), "parameter ", entry.index, ": its gradient is sparse");
  entry.unsent = false;
  entry.sent = true;
  const at::Tensor sum = gradient.detach().contiguous();
  {
    const std::lock_guard lock(landing->mutex);
    ++landing->flying;
  }
  const auto future = all_reduce_async(sum, group)->getFuture();
  future->addCallback([landing, gradient, sum, ranks = group->getSize()](auto& done) {
    if (!done.hasError()) {
      const at::NoGradGuard no_grad;
      gradient.copy_(sum / ranks);
    }
    const std::lock_guard lock(landing->mutex);
    landing->error = done.hasError() ? done.exception_ptr() : landing->error;
    --landing->flying;
    landing->all_landed.notify_all();
  });
}

class Synchronizer : public GradientSynchronizer {
 public:
  Synchronizer(const std::vector<at::Tensor>& parameters, ProcessGroupPtr group)
      : group_(std::move(group)) {
    std::set<const void*> seen;
    entries_.reserve(parameters.size());  // so that references into it stay valid
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].requires_grad() &&
          seen.insert(parameters[i].unsafeGetTensorImpl()).second) {
        Entry& entry = entries_.emplace_back(Entry{.index = i, .parameter = parameters[i]});
        hooks_.push_back(on_gradient_ready(parameters[i],
                                           [this, &entry](const at::Tensor&) { on_ready(entry); }));
      }
    }
  }

  void finish() override {
    if (!synchronizes()) {
      return;
    }
    for (Entry& entry : entries_) {
      if (entry.unsent && entry.parameter.grad().defined()) {
        send(entry, group_, landing_);
      }
      entry.unsent = entry.sent = false;
    }
    std::unique_lock lock(landing_->mutex);
    landing_->all_landed.wait(lock, [this] { return landing_->flying == 0; });
    if (const auto error = std::exchange(landing_->error, nullptr)) {
      std::rethrow_exception(error);
    }
  }

 private:
  void on_ready(Entry& entry) {
    TORCH_CHECK(!entry.sent, "parameter ", entry.index, ": finish() has not been called since");
    entry.unsent = true;
    if (synchronizes()) {
      send(entry, group_, landing_);
    }
  }

  ProcessGroupPtr group_;
  std::vector<Entry> entries_;
  std::shared_ptr<Landing> landing_ = std::make_shared<Landing>();
  std::vector<GradientHook> hooks_;
};

}  // namespace

std::unique_ptr<GradientSynchronizer> make_overlapped_ddp(std::vector<at::Tensor> parameters,
                                                          std::vector<at::Tensor> buffers,
                                                          ProcessGroupPtr group) {
  check_arguments(parameters, buffers, group);
  take_from_rank_0(parameters, group);
  take_from_rank_0(buffers, group);
  return std::make_unique<Synchronizer>(parameters, std::move(group));
}

}  // namespace ddp
