#include "ddp/referee/exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

namespace ddp {

namespace {

using c10d::OpType;
using Bytes = std::vector<char>;

bool same_tensors(const Event& a, const Event& b) {
  return a.dtype == b.dtype && a.elements == b.elements && std::string_view(a.shape) == b.shape;
}

bool same_collective(const Event& a, const Event& b) {
  return a.type == b.type && a.reduce_op == b.reduce_op && a.peer == b.peer && same_tensors(a, b);
}

std::string line_of(int rank, const Event& launch) {
  return "\n  rank " + std::to_string(rank) + ": " + describe_agreement(launch);
}

void combine(at::Tensor& sum, const at::Tensor& next, c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::AVG:
      sum = sum.dtype() == at::kBool ? sum.logical_or_(next) : sum.add_(next);
      break;
    case c10d::ReduceOp::PRODUCT:
      sum.mul_(next);
      break;
    case c10d::ReduceOp::MIN:
      sum = at::minimum(sum, next);
      break;
    case c10d::ReduceOp::MAX:
      sum = at::maximum(sum, next);
      break;
    case c10d::ReduceOp::BAND:
      sum.bitwise_and_(next);
      break;
    case c10d::ReduceOp::BOR:
      sum.bitwise_or_(next);
      break;
    case c10d::ReduceOp::BXOR:
      sum.bitwise_xor_(next);
      break;
    default:
      TORCH_CHECK(false, "this reduction is not supported");
  }
}

// The reduction of `bytes` bytes at `offset` of every part.
Bytes reduced(const std::vector<Part>& parts, std::int64_t offset, std::int64_t bytes) {
  const Event& launch = *parts[0].launch;
  const bool average = launch.reduce_op == c10d::ReduceOp::AVG;
  TORCH_CHECK(!average || at::isFloatingType(launch.dtype) || at::isComplexType(launch.dtype),
              "an average needs floating point numbers, not ", launch.dtype);
  const auto item = static_cast<std::int64_t>(c10::elementSize(launch.dtype));
  TORCH_CHECK(bytes % item == 0, "a reduction of ", bytes, " bytes, with ", item, " an element");
  const auto count = bytes / item;
  at::Tensor sum;
  for (const Part& part : parts) {
    TORCH_CHECK(offset + bytes <= part.launch->input_bytes,
                "a member sends less than the others reduce");
    const at::Tensor next = at::from_blob(part.bytes + offset, {count}, launch.dtype);
    if (sum.defined()) {
      combine(sum, next, launch.reduce_op);
    } else {
      sum = next.clone();
    }
  }
  if (average) {
    sum.div_(static_cast<double>(parts.size()));
  }
  const auto* begin = static_cast<const char*>(sum.const_data_ptr());
  return Bytes(begin, begin + bytes);
}

Bytes all_inputs(const std::vector<Part>& parts) {
  Bytes all;
  for (const Part& part : parts) {
    all.insert(all.end(), part.bytes, part.bytes + part.launch->input_bytes);
  }
  return all;
}

std::int64_t header_bytes(std::int64_t members) {
  return members * static_cast<std::int64_t>(sizeof(std::int64_t));
}

// An all-to-all's bytes begin with the number of bytes for each member.
std::span<const char> piece_for(const Part& part, std::size_t member, std::size_t members) {
  std::vector<std::int64_t> sizes(members);
  std::int64_t begin = header_bytes(std::ssize(sizes));
  std::memcpy(sizes.data(), part.bytes, begin);
  for (std::size_t i = 0; i <= member; ++i) {
    begin += i > 0 ? sizes[i - 1] : 0;
    TORCH_CHECK(sizes[i] >= 0 && sizes[i] <= part.launch->input_bytes - begin,
                "the parts of an all-to-all are larger than its input");
  }
  return {part.bytes + begin, static_cast<std::size_t>(sizes[member])};
}

Bytes pieces_for(const std::vector<Part>& parts, std::size_t member) {
  Bytes all;
  for (const Part& part : parts) {
    const auto piece = piece_for(part, member, parts.size());
    all.insert(all.end(), piece.begin(), piece.end());
  }
  return all;
}

Bytes copy_of(const Part& part, std::int64_t offset, std::int64_t bytes) {
  TORCH_CHECK(offset + bytes <= part.launch->input_bytes,
              "a root sends less than its members take");
  return {part.bytes + offset, part.bytes + offset + bytes};
}

Bytes result_for(const std::vector<Part>& parts, std::size_t member) {
  const Event& launch = *parts[member].launch;
  const auto root = static_cast<std::size_t>(launch.peer);
  const auto part = static_cast<std::int64_t>(member) * launch.output_bytes;
  switch (launch.type) {
    case OpType::ALLREDUCE:
    case OpType::ALLREDUCE_COALESCED:
      return reduced(parts, 0, launch.input_bytes);
    case OpType::REDUCE:
      return member == root ? reduced(parts, 0, launch.input_bytes)
                            : copy_of(parts[member], 0, launch.input_bytes);
    case OpType::BROADCAST:
      return copy_of(parts.at(root), 0, launch.output_bytes);
    case OpType::ALLGATHER:
    case OpType::ALLGATHER_COALESCED:
    case OpType::_ALLGATHER_BASE:
      return all_inputs(parts);
    case OpType::GATHER:
      return member == root ? all_inputs(parts) : Bytes{};
    case OpType::SCATTER:
      return copy_of(parts.at(root), part, launch.output_bytes);
    case OpType::REDUCE_SCATTER:
    case OpType::_REDUCE_SCATTER_BASE:
      return reduced(parts, part, launch.output_bytes);
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE:
      return pieces_for(parts, member);
    case OpType::BARRIER:
      return {};
    default:
      TORCH_CHECK(false, "the graded group does not support this ", describe_agreement(launch));
  }
}

}  // namespace

bool is_possible(const Event& launch, std::int64_t members) {
  const OpType type = launch.type;
  const bool message = c10d::isP2POp(type);
  const bool rooted = type == OpType::BROADCAST || type == OpType::REDUCE ||
                      type == OpType::GATHER || type == OpType::SCATTER;
  const bool in_place = type == OpType::ALLREDUCE || type == OpType::ALLREDUCE_COALESCED ||
                        type == OpType::BROADCAST || type == OpType::REDUCE;
  const bool takes = (message && type != OpType::SEND) || type == OpType::SCATTER;
  const bool all_to_all = type == OpType::ALLTOALL || type == OpType::ALLTOALL_BASE;
  const std::int64_t payload =
      takes ? launch.output_bytes : launch.input_bytes - (all_to_all ? header_bytes(members) : 0);
  const auto item = static_cast<std::int64_t>(c10::elementSize(launch.dtype));
  return launch.peer >= (message || rooted ? 0 : -1) && launch.peer < members &&
         launch.bytes == payload && (!in_place || launch.input_bytes == launch.output_bytes) &&
         (!message || launch.elements * item == payload);
}

std::string disagreement(const std::vector<Part>& parts) {
  std::string who;
  bool same = true;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    same = same && same_collective(*parts[0].launch, *parts[rank].launch);
    who += line_of(static_cast<int>(rank), *parts[rank].launch);
  }
  return same ? "" : who;
}

std::string disagreement(const Part& send, int from, const Part& recv, int to) {
  return same_tensors(*send.launch, *recv.launch)
             ? ""
             : line_of(from, *send.launch) + line_of(to, *recv.launch);
}

void exchange(const std::vector<Part>& parts) {
  const bool same_for_all = parts[0].launch->type == OpType::ALLREDUCE ||
                            parts[0].launch->type == OpType::ALLREDUCE_COALESCED ||
                            parts[0].launch->type == OpType::ALLGATHER ||
                            parts[0].launch->type == OpType::_ALLGATHER_BASE;
  std::vector<Bytes> results;
  for (std::size_t member = 0; member < parts.size() && (member == 0 || !same_for_all); ++member) {
    results.push_back(result_for(parts, member));
  }
  // Only now: a result takes the place of its member's input.
  for (std::size_t member = 0; member < parts.size(); ++member) {
    const Bytes& result = results[same_for_all ? 0 : member];
    TORCH_CHECK(static_cast<std::int64_t>(result.size()) == parts[member].launch->output_bytes,
                "a member of this ", describe_agreement(*parts[member].launch), " takes ",
                parts[member].launch->output_bytes, " bytes, and would get ", result.size());
    std::ranges::copy(result, parts[member].bytes);
  }
}

}  // namespace ddp
