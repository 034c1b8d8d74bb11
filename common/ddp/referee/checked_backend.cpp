#include "ddp/referee/checked_backend.h"

#include <algorithm>
#include <sstream>

namespace ddp {

namespace {

void copy_text(char* target, std::size_t size, const std::string& text) {
  const std::size_t length = std::min(text.size(), size - 1);
  text.copy(target, length);
  target[length] = '\0';
}

OperationRecord record_of(const Operation& operation, const std::string& name) {
  OperationRecord record;
  record.op = static_cast<std::uint8_t>(operation.type);
  record.reduce_op = operation.reduce_op;
  record.peer = operation.peer;
  record.tag = operation.tag;
  std::ostringstream shapes;
  for (const at::Tensor& tensor : operation.agreed_tensors()) {
    record.dtype = static_cast<std::uint8_t>(tensor.scalar_type());
    record.bytes += static_cast<std::int64_t>(tensor.nbytes());
    shapes << tensor.sizes() << " ";
  }
  copy_text(record.shape, sizeof(record.shape), shapes.str());
  copy_text(record.name, sizeof(record.name), name);
  return record;
}

const char* reduce_op_name(std::uint8_t op) {
  static constexpr const char* kNames[] = {"sum",        "average",     "product",
                                           "minimum",    "maximum",     "bitwise and",
                                           "bitwise or", "bitwise xor", "premultiplied sum"};
  return op < std::size(kNames) ? kNames[op] : nullptr;
}

std::string describe(const OperationRecord& record) {
  const auto type = static_cast<c10d::OpType>(record.op);
  std::string text = operation_name(type);
  if (const char* op = reduce_op_name(record.reduce_op)) {
    text += std::string(" (") + op + ")";
  }
  if (record.peer >= 0) {
    const bool message = c10d::isP2POp(type);
    text += (type == c10d::OpType::SEND ? " to rank "
             : message                  ? " from rank "
                                        : " with root ") +
            std::to_string(record.peer);
  }
  if (record.shape[0] != '\0') {
    text += std::string(" of ") + record.name + ", " +
            c10::getDtypeNames(static_cast<at::ScalarType>(record.dtype)).first + " " +
            record.shape;
  }
  return text;
}

bool same_tensors(const OperationRecord& a, const OperationRecord& b) {
  return a.dtype == b.dtype && a.bytes == b.bytes && std::string_view(a.shape) == b.shape;
}

bool same_collective(const OperationRecord& a, const OperationRecord& b) {
  return a.op == b.op && a.reduce_op == b.reduce_op && a.peer == b.peer && same_tensors(a, b);
}

}  // namespace

CheckedBackend::CheckedBackend(BackendPtr inner, std::shared_ptr<const TensorNames> names,
                               Blackboard& board)
    : BackendDecorator(std::move(inner)),
      names_(std::move(names)),
      board_(board),
      collectives_(board.open_channel(rank_)),
      messages_(board.open_channel(rank_)) {}

WorkPtr CheckedBackend::run(Operation operation) {
  std::vector<std::string> names;
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      names.push_back(names_->of(tensor));
    }
  }
  const OperationRecord record = record_of(operation, names.empty() ? "" : names[0]);
  const std::int64_t number = launches_++;
  const std::string description = operation_name(operation.type) + " #" + std::to_string(number) +
                                  (names.empty() ? "" : " of " + names[0]);
  refuse_buffers_in_flight(operation, description);

  const bool message = operation.is_message();
  TORCH_CHECK(operation.type != c10d::OpType::RECVANYSOURCE,
              "receiving from any source is not supported by the graded backend");
  QueueState& queue = queues_[queue_key(operation)];
  const std::int64_t index = board_.publish(message ? messages_ : collectives_, rank_, record);
  auto work = c10::make_intrusive<PendingWork>(
      operation, PendingWork::Report{number, description, std::move(names), races_, hold_});
  forget_delivered();
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back(work);
  }
  queue.queue.submit([this, work, operation, record, index, message, description, &queue] {
    work->execute(inner(), [&] {
      if (message) {
        agree_on_message(operation, record, queue, description);
      } else {
        agree_on_collective(index, description);
      }
    });
  });
  return work;
}

void CheckedBackend::agree_on_collective(std::int64_t index, const std::string& description) {
  const OperationRecord& mine = *board_.find(collectives_, rank_, index);
  std::string others;
  bool same = true;
  for (int rank = 0; rank < size_; ++rank) {
    try {
      const OperationRecord& theirs = board_.wait_for(collectives_, rank, index);
      same = same && same_collective(mine, theirs);
      others += "\n  rank " + std::to_string(rank) + ": " + describe(theirs);
    } catch (const PeerGone& gone) {
      throw PeerGone("waits in vain for " + description + ": " + gone.what() +
                     " without joining it");
    }
  }
  TORCH_CHECK(same, "the ranks disagree on collective #", index, " of this group:", others);
}

void CheckedBackend::agree_on_message(const Operation& operation, const OperationRecord& mine,
                                      QueueState& queue, const std::string& description) {
  const auto counterpart =
      operation.type == c10d::OpType::SEND ? c10d::OpType::RECV : c10d::OpType::SEND;
  while (true) {
    const OperationRecord* theirs = nullptr;
    try {
      theirs = &board_.wait_for(messages_, operation.peer, queue.partner_cursor++);
    } catch (const PeerGone& gone) {
      throw PeerGone("waits in vain for " + description + ": " + gone.what() + " without a " +
                     operation_name(counterpart) + " for it");
    }
    if (theirs->op == static_cast<std::uint8_t>(counterpart) && theirs->peer == rank_ &&
        theirs->tag == operation.tag) {
      TORCH_CHECK(same_tensors(mine, *theirs), "the two ends of a message disagree:\n  rank ",
                  rank_, ": ", describe(mine), "\n  rank ", operation.peer, ": ",
                  describe(*theirs));
      return;
    }
  }
}

void CheckedBackend::refuse_buffers_in_flight(const Operation& operation,
                                              const std::string& description) {
  for (const PendingWorkPtr& work : pending_works()) {
    const auto check = [&](const std::vector<at::Tensor>& tensors, bool writes) {
      for (const at::Tensor& tensor : tensors) {
        if (const auto name = work->forbids(tensor, writes)) {
          races_->add(description + " was launched on " + *name + ", which " + work->description() +
                      " still had in flight");
        }
      }
    };
    check(operation.inputs, false);
    check(operation.outputs, true);
  }
}

void CheckedBackend::note_access(const at::Tensor& tensor, bool writes, const char* operator_name) {
  for (const PendingWorkPtr& work : pending_works()) {
    const auto name = work->forbids(tensor, writes);
    // Reports the outermost operator only; the operators that it calls follow.
    if (name && work->first_access(writes)) {
      races_->add(*name + " was " + (writes ? "written" : "read") + " by " + operator_name +
                  " while it was in flight, between the launch of " + work->description() +
                  " and the wait for it");
    }
  }
}

std::vector<std::string> CheckedBackend::pending() const {
  std::vector<std::string> descriptions;
  for (const PendingWorkPtr& work : pending_works()) {
    if (work->in_flight()) {
      descriptions.push_back(work->description());
    }
  }
  return descriptions;
}

void CheckedBackend::settle() {
  for (auto& [key, state] : queues_) {
    state.queue.drain();
  }
  hold_->settle();
  forget_delivered();
}

void CheckedBackend::forget_delivered() {
  const std::lock_guard lock(mutex_);
  std::erase_if(pending_, [](const PendingWorkPtr& work) { return !work->in_flight(); });
}

std::vector<CheckedBackend::PendingWorkPtr> CheckedBackend::pending_works() const {
  const std::lock_guard lock(mutex_);
  return pending_;
}

}  // namespace ddp
