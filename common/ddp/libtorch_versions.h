#pragma once

// What differs among the releases of libtorch that the lab is built on: CMakeLists.txt names the
// oldest, requirements.txt the newest. All of it can go when 2.13 is the oldest.

#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/headeronly/version.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace ddp {

/// "float32". c10's are strings before 2.13, and views of constant strings since.
inline std::string dtype_name(at::ScalarType dtype) {
  return std::string(c10::getDtypeNames(dtype).first);
}

/// Owns a node of autograd's graph: a std::shared_ptr before 2.13, a c10::intrusive_ptr since.
using OwnedNode = decltype(torch::autograd::impl::grad_accumulator(
    std::declval<const torch::autograd::Variable&>()));

/// A node of a class of one's own, from the arguments of its constructor.
template <typename NodeType, typename... Args>
OwnedNode make_node(Args&&... args) {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
  return OwnedNode(new NodeType(std::forward<Args>(args)...), torch::autograd::deleteNode);
#else
  return c10::make_intrusive<NodeType>(std::forward<Args>(args)...);
#endif
}

/// Collectives of one tensor for all ranks, which have these names since 2.13:
/// ((*group).*kAllGatherSingle)(output, input, {}).
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
constexpr auto kAllGatherSingle = &c10d::ProcessGroup::_allgather_base;
constexpr auto kReduceScatterSingle = &c10d::ProcessGroup::_reduce_scatter_base;
constexpr auto kAllToAllSingle = &c10d::ProcessGroup::alltoall_base;
#else
constexpr auto kAllGatherSingle = &c10d::ProcessGroup::all_gather_single;
constexpr auto kReduceScatterSingle = &c10d::ProcessGroup::reduce_scatter_single;
constexpr auto kAllToAllSingle = &c10d::ProcessGroup::all_to_all_single;
#endif

}  // namespace ddp
