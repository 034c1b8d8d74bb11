#include "ddp/referee/recording_backend.h"

namespace ddp {

// Records the wait, and shows on the blackboard when the rank waits and when it continues.
class RecordedWork : public WorkDecorator {
 public:
  RecordedWork(WorkPtr inner, c10::intrusive_ptr<RecordingBackend> recorder, std::size_t index,
               std::string description)
      : WorkDecorator(std::move(inner)),
        recorder_(std::move(recorder)),
        generation_(recorder_->cleared_),
        index_(index),
        description_(std::move(description)) {
    ++recorder_->live_handles_;
  }
  RecordedWork(const RecordedWork&) = delete;
  RecordedWork& operator=(const RecordedWork&) = delete;
  ~RecordedWork() override { --recorder_->live_handles_; }

  bool wait(std::chrono::milliseconds timeout) override {
    note_wait();
    recorder_->note_activity("waits for " + description_);
    const bool done = inner().wait(timeout);
    recorder_->note_activity("runs its own code after " + description_);
    return done;
  }

 private:
  void note_wait() {
    const std::lock_guard lock(recorder_->mutex_);
    if (recorder_->cleared_ == generation_ && recorder_->operations_[index_].waited < 0) {
      recorder_->operations_[index_].waited = recorder_->next_position_++;
    }
  }

  c10::intrusive_ptr<RecordingBackend> recorder_;
  std::int64_t generation_;
  std::size_t index_;
  std::string description_;
};

bool RecordedOperation::is_all_reduce() const {
  return type == c10d::OpType::ALLREDUCE || type == c10d::OpType::ALLREDUCE_COALESCED;
}

RecordingBackend::RecordingBackend(BackendPtr inner, std::shared_ptr<const TensorNames> names,
                                   Blackboard* board)
    : BackendDecorator(std::move(inner)), names_(std::move(names)), board_(board) {}

WorkPtr RecordingBackend::run(Operation operation) {
  RecordedOperation record;
  record.type = operation.type;
  record.reduce_op = operation.reduce_op;
  record.bytes = operation.payload_bytes();
  record.peer = operation.peer;
  record.tag = operation.tag;
  const auto& tensors = operation.inputs.empty() ? operation.outputs : operation.inputs;
  if (!tensors.empty()) {
    record.dtype = tensors[0].scalar_type();
    record.name = names_->of(tensors[0]);
  }
  std::size_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    record.launched = next_position_++;
    index = operations_.size();
    operations_.push_back(record);
  }
  const std::string description = operation_name(record.type) + " #" + std::to_string(launches_++) +
                                  (record.name.empty() ? "" : " of " + record.name) + " (" +
                                  std::to_string(record.bytes) + " bytes)";
  note_activity("launches " + description);
  WorkPtr work = operation.start(inner(), operation);
  note_activity("runs its own code after the launch of " + description);
  return c10::make_intrusive<RecordedWork>(
      std::move(work), c10::intrusive_ptr<RecordingBackend>::unsafe_reclaim_from_nonowning(this),
      index, description);
}

std::vector<RecordedOperation> RecordingBackend::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

void RecordingBackend::clear() {
  const std::lock_guard lock(mutex_);
  operations_.clear();
  ++cleared_;
}

std::int64_t RecordingBackend::mark() {
  const std::lock_guard lock(mutex_);
  return next_position_++;
}

void RecordingBackend::note_activity(const std::string& activity) {
  if (board_ != nullptr) {
    board_->set_activity(rank_, activity);
  }
}

}  // namespace ddp
