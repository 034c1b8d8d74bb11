#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ddp/backends/operation_backend.h"
#include "ddp/cluster/clocks.h"
#include "ddp/cluster/hardware.h"
#include "ddp/cluster/operators.h"
#include "ddp/collectives.h"
#include "ddp/timeline/timeline.h"

namespace ddp::cluster {

/// The futures of collectives. libtorch tells nobody when somebody waits for a future, so none is
/// complete until the thread that made this object sleeps: then it waits for one. They complete in
/// the order of their ends, until it wakes, on a thread of their own; so do their callbacks run there,
/// and the operators of these cost nothing, as on a stream beside the others.
class Futures {
 public:
  /// Is told of an end that the sleeping thread waits for.
  using Listener = std::function<void(std::int64_t end_ns)>;

  explicit Futures(Listener listener);
  Futures(const Futures&) = delete;
  Futures& operator=(const Futures&) = delete;
  ~Futures();

  /// The future of a collective that ends at `end_ns`, and has `result` then.
  c10::intrusive_ptr<c10::ivalue::Future> make(const std::vector<at::Tensor>& result,
                                               std::int64_t end_ns);

  /// Completes those that end by then: somebody has waited for them in another way.
  void complete_until(std::int64_t end_ns);

 private:
  struct State;
  static void serve(const std::shared_ptr<State>& state, int sleeper);

  const std::shared_ptr<State> state_;
  const int sleeper_;
  std::thread server_;  // started with the first future
};

struct ClusterOptions {
  std::int64_t world_size = 1;
  Device device = {};
  Topology topology = {};
  /// What launching communication takes beyond device.launch_ns, and holds up computing for: as
  /// where the processor that computes launches it, too.
  std::int64_t collective_launch_ns = 0;
  /// Whether a wait for communication holds up the host, as Gloo's does. NCCL's holds up only what
  /// is launched on the compute stream from then on.
  bool wait_blocks_host = false;
  /// By how much a collective slows computing that runs beside it, >= 1: at 1.2 that takes 20 %
  /// longer.
  double slowdown_beside_communication = 1;
  /// How much longer each kernel takes then, whatever its size.
  std::int64_t kernel_ns_beside_communication = 0;
  /// The same of a collective beside computing: its kernel waits for multiprocessors, and its data for
  /// memory.
  double slowdown_beside_computing = 1;
  /// Kernels that the host may launch before the device gets to them; 0: any number.
  std::int64_t launch_queue = 0;
  /// See Messages::Options.
  bool others_in_step = false;
};

/// Machines with one GPU each, between which all-reduces go around a ring, and whose own work costs
/// nothing but launches: communication alone.
inline ClusterOptions bare_network(std::int64_t world_size, Link between,
                                   std::int64_t launch_ns = 0) {
  return {.world_size = world_size,
          .device = {.name = "infinitely fast",
                     .flops_per_second = std::numeric_limits<double>::infinity(),
                     .bytes_per_second = std::numeric_limits<double>::infinity(),
                     .launch_ns = launch_ns},
          .topology = {.between = between, .algorithm = AllReduce::kRing}};
}

/// The rank of a cluster that runs in this process, as its process group's backend: its clocks, and
/// what happened on them. It moves no data. A MetaMemory learns from it that what is gathered are parameters,
/// and what is reduced gradients.
class ClusterBackend : public OperationBackend {
 public:
  explicit ClusterBackend(const ClusterOptions& options);

  const std::string getBackendName() const override { return "simulated cluster"; }
  WorkPtr run(Operation operation) override;

  /// All clocks begin anew.
  void begin_step();

  /// An operator runs on the compute stream.
  void compute(const DataMovement& movement);
  /// The same for computing that is only simulated, called `name` in drawings.
  void compute(std::int64_t ns, const std::string& name, const HostWork& host = {});

  // For the handles of operations.

  /// Whether this is the thread that trains. Another's wait for a collective ends when that thread
  /// waits, for whatever it may be, like those for futures: see Futures.
  bool is_home() const { return std::this_thread::get_id() == home_; }
  /// This rank waits for the end of a collective.
  void wait_until(std::int64_t end);
  /// Its host asks again and again until a collective has ended.
  void poll_until(std::int64_t end);
  /// It waits for a message.
  void wait_for(const Operation& operation, const MessageEndPtr& end);
  c10::intrusive_ptr<c10::ivalue::Future> make_future(const std::vector<at::Tensor>& result,
                                                      std::int64_t end) {
    return futures_.make(result, end);
  }

  /// As they are now: while the thread that trains sleeps, another may move them.
  Clocks clocks() const;
  /// What ran on the compute stream, and the communication; a message once it is waited for.
  const std::vector<Span>& spans() const { return spans_; }

 private:
  void check_home(const std::string& what) const;
  WorkPtr run_collective(const Operation& operation);
  WorkPtr run_message(const Operation& operation);
  void draw(const Operation& operation, std::int64_t launched, const Interval& time);

  const ClusterOptions options_;
  const std::thread::id home_;  // the thread that trains
  mutable std::mutex mutex_;    // while that sleeps, another may tell what it waits for
  Clocks clocks_;
  Messages messages_;
  std::vector<Span> spans_;
  Futures futures_;
};

/// A training cluster of any size in one process: it runs the code of rank 0, and the other ranks do
/// the same. Tensors are on the meta device, where they have shapes and no values; what takes time
/// on a GPU moves virtual clocks, in integer nanoseconds, the same in every run.
///
/// Three clocks, as of a GPU: the host, the compute stream and the communication stream. An operator
/// that moves data costs the host a launch, and the compute stream the time of its bytes; views cost
/// nothing. A collective begins when the host has launched it, the compute stream is done with what
/// was launched before it, and the collective before it has ended; it lasts what the topology says.
/// A wait holds up what is launched after it, by whichever means: a handle, a future, a poll.
class Cluster {
 public:
  /// Throws c10::ValueError, which says what is wrong with the options.
  explicit Cluster(const ClusterOptions& options);

  const ClusterOptions& options() const { return options_; }

  /// The group that the code under simulation communicates through. It may outlive the cluster.
  const ProcessGroupPtr& group() const { return group_; }

  /// Runs code whose operators take virtual time. To a c10::Error from within, of whatever cause, it
  /// adds the place in the stage's code, or in the lab's if no stage took part, as "(solutions/
  /// 01_naive_ddp/naive_ddp.cpp:42 in ddp::f)".
  void run(const std::function<void()>& code);

  /// How long code takes that begins with all clocks at zero, until it and what it launched on the
  /// compute stream are done, in nanoseconds.
  std::int64_t time(const std::function<void()>& code);

  /// Sets all clocks to zero.
  void begin_step() { backend_->begin_step(); }

  /// Keeps the compute stream busy, as an operator would that takes `ns`, and the host as its
  /// launch does.
  void compute(std::int64_t ns, const std::string& name, const HostWork& host = {}) {
    backend_->compute(ns, name, host);
  }

  Clocks clocks() const { return backend_->clocks(); }
  /// What happened since begin_step().
  const std::vector<Span>& spans() const { return backend_->spans(); }

 private:
  ClusterOptions options_;
  c10::intrusive_ptr<ClusterBackend> backend_;
  ProcessGroupPtr group_;
};

}  // namespace ddp::cluster
