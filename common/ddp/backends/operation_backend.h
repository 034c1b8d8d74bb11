#pragma once

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "ddp/launching/process_group.h"

namespace ddp {

/// A call to a c10d backend, in one form that every decorator can read and pass on.
struct Operation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  /// Tensors that are read only.
  std::vector<at::Tensor> inputs;
  /// Tensors that are written; an in-place operation reads them too.
  std::vector<at::Tensor> outputs;
  bool in_place = false;
  c10d::ReduceOp::RedOpType reduce_op = c10d::ReduceOp::UNUSED;
  /// The root, or the other end of a message; -1 if there is none.
  int peer = -1;
  int tag = 0;
  /// Rows for each rank in an all-to-all of one tensor; empty for equal parts.
  std::vector<std::int64_t> input_splits;
  std::vector<std::int64_t> output_splits;
  /// Starts the operation on a backend, with the tensors that it holds at that time.
  std::function<WorkPtr(c10d::Backend&, Operation&)> start;

  bool is_message() const;

  /// S of the cost model: the bytes that this rank contributes, or receives if it contributes none
  /// (recv, scatter).
  std::int64_t payload_bytes() const;

  /// The tensors whose shape and dtype must be the same on every rank; none if ranks may differ
  /// (all-to-all).
  const std::vector<at::Tensor>& agreed_tensors() const;
};

/// "all-reduce", "send", ...
std::string operation_name(c10d::OpType type);

/// A backend with one function instead of c10d's twenty.
class OperationBackend : public c10d::Backend {
 public:
  using Backend::Backend;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  /// Runs an operation of any type.
  virtual WorkPtr run(Operation operation) = 0;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
};

/// A backend that passes every operation to an inner one and may do something before and after.
/// Decorators compose, and see all clients of c10d: student code, the lab's own code, and
/// c10d::Reducer. run() must call operation.start(inner(), operation), now or later.
class BackendDecorator : public OperationBackend {
 public:
  explicit BackendDecorator(BackendPtr inner);

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }

 protected:
  c10d::Backend& inner() { return *inner_; }

 private:
  BackendPtr inner_;
};

/// A handle that passes every call to an inner one; decorators override what they need.
class WorkDecorator : public c10d::Work {
 public:
  explicit WorkDecorator(WorkPtr inner) : inner_(std::move(inner)) {}

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return inner_->result(); }
  void synchronize() override { inner_->synchronize(); }
  bool wait(std::chrono::milliseconds timeout) override { return inner_->wait(timeout); }
  void abort() override { inner_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return inner_->getFuture(); }

 protected:
  const WorkPtr& inner() const { return inner_; }

 private:
  WorkPtr inner_;
};

}  // namespace ddp
