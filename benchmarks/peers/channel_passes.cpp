#include "peers/channel_passes.h"

#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <utility>

// The compiler makes vector instructions of the loops over neighbours below; on x86, those of the
// processor that they run on.
#if defined(__x86_64__) && defined(__linux__)
#define DDP_FOR_EACH_PROCESSOR __attribute__((target_clones("arch=haswell", "default")))
#else
#define DDP_FOR_EACH_PROCESSOR
#endif

namespace ddp {
// Not unnamed: clang 18 and 19 forget to emit what a function for each processor calls where nobody else
// can call that function.
inline namespace channel_passes {

// A part of memory: rows of all channels, or one row, a run of a single one. `channel`: the first.
struct Rows {
  std::int64_t offset, count, width, channel;
  bool one_channel;
};

// Neighbours side by side, in registers: an addition does not wait for the one before.
constexpr std::int64_t kLanes = 16;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
// Rows of kLanes columns that are added up before the next columns: they stay in the cache.
constexpr std::int64_t kTileRows = 2;

// What is added up, at the same places of both: of d = x - center the sums of d and of d * d where
// there is no g, else of g and of g * d.
struct Terms {
  const float *g, *x;

  Terms at(std::int64_t offset) const { return {g ? g + offset : nullptr, x + offset}; }
};

template <typename T>
[[gnu::always_inline]] inline void load(const float* from, T& values) {
  std::memcpy(&values, from, sizeof(T));
}

// T: float, or Lanes of them.
template <bool has_g, typename T>
[[gnu::always_inline]] inline void add(const Terms& terms, const T& center, T& first, T& second) {
  T distance, one;
  load(terms.x, distance);
  distance -= center;
  if constexpr (has_g) {
    load(terms.g, one);
  } else {
    one = distance;
  }
  first += one;
  second += one * distance;
}

template <bool has_g>
[[gnu::always_inline]] inline void add_run(const Terms& terms, std::int64_t size, float center,
                                           double& first, double& second) {
  Lanes one = {}, other = {};
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    add<has_g>(terms.at(i), Lanes{} + center, one, other);
  }
  for (std::int64_t lane = 0; i + lane < size; ++lane) {
    float rest = 0, product = 0;
    add<has_g>(terms.at(i + lane), center, rest, product);
    one[lane] += rest;
    other[lane] += product;
  }
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    first += one[lane];
    second += other[lane];
  }
}

// The same columns of `count` rows, each `width` behind the one before.
template <bool has_g, typename T>
[[gnu::always_inline]] inline void add_columns(Terms terms, std::int64_t count, std::int64_t width,
                                               const float* center, float* first, float* second) {
  T origin, one, other;
  load(center, origin);
  load(first, one);
  load(second, other);
  for (std::int64_t row = 0; row < count; ++row, terms = terms.at(width)) {
    add<has_g>(terms, origin, one, other);
  }
  std::memcpy(first, &one, sizeof(T));
  std::memcpy(second, &other, sizeof(T));
}

template <bool has_g>
[[gnu::always_inline]] inline void add_rows(const Rows& rows, const Terms& terms,
                                            const float* center, double* first, double* second) {
  const std::int64_t width = rows.width;
  std::vector<float> sums(2 * width);
  float *one = sums.data(), *other = one + width;
  for (std::int64_t row = 0; row < rows.count; row += kTileRows) {
    const std::int64_t count = std::min(kTileRows, rows.count - row);
    const Terms of_row = terms.at(row * width);
    std::int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      add_columns<has_g, Lanes>(of_row.at(i), count, width, center + i, one + i, other + i);
    }
    for (; i < width; ++i) {
      add_columns<has_g, float>(of_row.at(i), count, width, center + i, one + i, other + i);
    }
  }
  std::transform(one, one + width, first, first, std::plus<>());
  std::transform(other, other + width, second, second, std::plus<>());
}

template <bool has_g>
[[gnu::always_inline]] inline void add_all(const Rows& rows, const Terms& terms,
                                           const float* center, double* first, double* second) {
  if (rows.one_channel) {
    add_run<has_g>(terms.at(rows.offset), rows.width, *center, *first, *second);
  } else {
    add_rows<has_g>(rows, terms.at(rows.offset), center, first, second);
  }
}

DDP_FOR_EACH_PROCESSOR
void add_squares(const Rows& rows, const Terms& terms, const float* center, double* first,
                 double* second) {
  add_all<false>(rows, terms, center, first, second);
}

DDP_FOR_EACH_PROCESSOR
void add_products(const Rows& rows, const Terms& terms, const float* center, double* first,
                  double* second) {
  add_all<true>(rows, terms, center, first, second);
}

// The coefficients of a channel's elements, by channel; scale_rows() needs no slope.
struct Coefficients {
  const float *center, *scale, *slope, *shift;
};

DDP_FOR_EACH_PROCESSOR
void scale_rows(const Rows& rows, const float* x, float* __restrict y, const Coefficients& by) {
  x += rows.offset;
  y += rows.offset;
  if (rows.one_channel) {
    const float center = by.center[rows.channel], scale = by.scale[rows.channel];
    const float shift = by.shift[rows.channel];
    for (std::int64_t i = 0; i < rows.width; ++i) {
      y[i] = (x[i] - center) * scale + shift;
    }
    return;
  }
  for (std::int64_t row = 0; row < rows.count; ++row, x += rows.width, y += rows.width) {
    for (std::int64_t i = 0; i < rows.width; ++i) {
      y[i] = (x[i] - by.center[i]) * by.scale[i] + by.shift[i];
    }
  }
}

DDP_FOR_EACH_PROCESSOR
void combine_rows(const Rows& rows, const float* g, const float* x, float* __restrict y,
                  const Coefficients& by) {
  g += rows.offset;
  x += rows.offset;
  y += rows.offset;
  if (rows.one_channel) {
    const float center = by.center[rows.channel], scale = by.scale[rows.channel];
    const float slope = by.slope[rows.channel], shift = by.shift[rows.channel];
    for (std::int64_t i = 0; i < rows.width; ++i) {
      y[i] = g[i] * scale + (x[i] - center) * slope + shift;
    }
    return;
  }
  for (std::int64_t row = 0; row < rows.count;
       ++row, g += rows.width, x += rows.width, y += rows.width) {
    for (std::int64_t i = 0; i < rows.width; ++i) {
      y[i] = g[i] * by.scale[i] + (x[i] - by.center[i]) * by.slope[i] + by.shift[i];
    }
  }
}

// How the outer dimension is divided among threads: the same whatever their number.
struct Blocks {
  static constexpr std::int64_t kElements = 1 << 16;
  static constexpr std::int64_t kRows = 1024;  // more would lose digits in float32
  std::int64_t size, count;

  explicit Blocks(const ChannelLayout& layout)
      : size(std::clamp<std::int64_t>(kElements / (layout.channels * layout.inner), 1, kRows)),
        count((layout.outer + size - 1) / size) {}
};

// Calls body(i) for 0 <= i < count on libtorch's threads. at::parallel_for() is a template, which
// would be compiled here, where nothing knows OpenMP; an iterator over the numbers calls libtorch's.
template <typename Body>
void parallel_for(std::int64_t count, const Body& body) {
  if (count == 1) {
    body(0);
    return;
  }
  at::Tensor numbers = at::arange(count);
  at::TensorIterator::nullary_op(numbers).for_each(
      [&](char** data, const std::int64_t* strides, std::int64_t size) {
        for (std::int64_t i = 0; i < size; ++i) {
          body(*reinterpret_cast<const std::int64_t*>(data[0] + i * strides[0]));
        }
      },
      /*grain_size=*/1);
}

// Calls body(block, rows) for all rows, a block's by one thread.
template <typename Body>
void for_rows(const ChannelLayout& layout, const Body& body) {
  const Blocks blocks(layout);
  parallel_for(blocks.count, [&](std::int64_t block) {
    const std::int64_t begin = block * blocks.size * layout.channels;
    const std::int64_t end = std::min(layout.outer, (block + 1) * blocks.size) * layout.channels;
    if (layout.inner == 1) {
      body(block, Rows{begin, (end - begin) / layout.channels, layout.channels, 0, false});
      return;
    }
    for (std::int64_t run = begin; run < end; ++run) {
      body(block, Rows{run * layout.inner, 1, layout.inner, run % layout.channels, true});
    }
  });
}

// Each block has sums of its own, which are added in order, so that threads do not change the
// result.
PairsOfSums sum_pairs(const ChannelLayout& layout, const Terms& terms, const ByChannel& center) {
  const PairsOfSums zeros = {std::vector<double>(layout.channels),
                             std::vector<double>(layout.channels)};
  std::vector<PairsOfSums> of_blocks(Blocks(layout).count, zeros);
  auto* const add = terms.g ? add_products : add_squares;
  for_rows(layout, [&](std::int64_t block, const Rows& rows) {
    auto& [first, second] = of_blocks[block];
    add(rows, terms, &center[rows.channel], &first[rows.channel], &second[rows.channel]);
  });
  PairsOfSums total = zeros;
  for (const PairsOfSums& sums : of_blocks) {
    std::ranges::transform(sums.first, total.first, total.first.begin(), std::plus<>());
    std::ranges::transform(sums.second, total.second, total.second.begin(), std::plus<>());
  }
  return total;
}

}  // namespace channel_passes

ChannelLayout channel_layout(const at::Tensor& x) {
  TORCH_CHECK(x.is_cpu() && x.scalar_type() == at::kFloat && x.dim() >= 2 && x.numel() > 0,
              "the passes over channels need a float32 tensor [N, C, ...] with elements on the "
              "CPU, not ",
              x.toString(), " ", x.sizes());
  const at::MemoryFormat format = x.suggest_memory_format();
  TORCH_CHECK(x.is_contiguous(format), "the passes over channels need memory without gaps");
  const std::int64_t channels = x.size(1), count = x.numel() / channels;
  return x.dim() == 2 || format != at::MemoryFormat::Contiguous
             ? ChannelLayout{.outer = count, .channels = channels, .inner = 1}
             : ChannelLayout{.outer = x.size(0), .channels = channels, .inner = count / x.size(0)};
}

PairsOfSums sums_of_squares(const at::Tensor& x, const ByChannel& center) {
  return sum_pairs(channel_layout(x), {nullptr, x.const_data_ptr<float>()}, center);
}

PairsOfSums sums_of_products(const at::Tensor& g, const at::Tensor& x, const ByChannel& center) {
  return sum_pairs(channel_layout(x), {g.const_data_ptr<float>(), x.const_data_ptr<float>()},
                   center);
}

at::Tensor scale_and_shift(const at::Tensor& x, const ByChannel& center, const ByChannel& scale,
                           const ByChannel& shift) {
  at::Tensor y = at::empty_like(x);
  const Coefficients by = {center.data(), scale.data(), nullptr, shift.data()};
  for_rows(channel_layout(x),
           [&, from = x.const_data_ptr<float>(), to = y.mutable_data_ptr<float>()](
               std::int64_t, const Rows& rows) { scale_rows(rows, from, to, by); });
  return y;
}

at::Tensor combine(const at::Tensor& g, const at::Tensor& x, const ByChannel& center,
                   const ByChannel& scale, const ByChannel& slope, const ByChannel& shift) {
  at::Tensor y = at::empty_like(x);
  const Coefficients by = {center.data(), scale.data(), slope.data(), shift.data()};
  for_rows(channel_layout(x),
           [&, gradients = g.const_data_ptr<float>(), from = x.const_data_ptr<float>(),
            to = y.mutable_data_ptr<float>()](std::int64_t, const Rows& rows) {
             combine_rows(rows, gradients, from, to, by);
           });
  return y;
}

}  // namespace ddp
