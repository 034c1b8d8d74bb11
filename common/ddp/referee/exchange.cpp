#include "ddp/referee/exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
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
  const auto count = bytes / static_cast<std::int64_t>(c10::elementSize(launch.dtype));
  at::Tensor sum;
  for (const Part& part : parts) {
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

// An all-to-all's bytes begin with the number of bytes for each member.
const char* piece_for(const Part& part, std::size_t member, std::size_t members,
                      std::size_t& size) {
  std::vector<std::int64_t> sizes(members);
  std::memcpy(sizes.data(), part.bytes, members * sizeof(std::int64_t));
  const char* piece = part.bytes + members * sizeof(std::int64_t);
  for (std::size_t before = 0; before < member; ++before) {
    piece += sizes[before];
  }
  size = sizes[member];
  TORCH_CHECK(sizes[member] >= 0 && piece + size <= part.bytes + part.launch->input_bytes,
              "the parts of an all-to-all are larger than its input");
  return piece;
}

Bytes pieces_for(const std::vector<Part>& parts, std::size_t member) {
  Bytes all;
  for (const Part& part : parts) {
    std::size_t size = 0;
    const char* piece = piece_for(part, member, parts.size(), size);
    all.insert(all.end(), piece, piece + size);
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
    TORCH_CHECK(static_cast<std::int64_t>(result.size()) == parts[member].launch->output_bytes ||
                    parts[member].launch->type == OpType::REDUCE,
                "a member of this ", describe_agreement(*parts[member].launch), " takes ",
                parts[member].launch->output_bytes, " bytes, and would get ", result.size());
    std::ranges::copy(result, parts[member].bytes);
  }
}

}  // namespace ddp
