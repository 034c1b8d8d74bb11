#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

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

}  // namespace ddp::cluster
