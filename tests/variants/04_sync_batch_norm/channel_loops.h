#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

// The four passes over memory that batch normalization on the CPU needs. Each reads its tensors
// once, writes one at most, and knows nothing of ranks.
//
// A channel can lie in memory in two ways: in runs of neighbours (NCHW), which a pass goes along,
// or as every C-th element (NC, NHWC), where a pass goes across the channels of a row. Each pass
// has a loop for either, plain and over neighbours, so that the compiler makes vector instructions
// of it. Work is divided among threads by channel: whatever their number, additions have the same
// order.

namespace ddp::channels {

/// Memory is [outer, channels, inner], without gaps.
struct Layout {
  std::int64_t outer = 0, channels = 0, inner = 0;
};

/// What is added up in: float for half and bfloat16.
template <typename T>
using Accumulate = std::conditional_t<std::is_same_v<T, double>, double, float>;

constexpr std::int64_t kBlock = 1024;     // elements or rows whose sums stay in Accumulate<T>
constexpr std::int64_t kLanes = 32;       // sums side by side along a run
constexpr std::int64_t kGrain = 1 << 15;  // elements that are worth a thread

/// A part of a run: `count` neighbours of one channel, the first at `offset` in memory.
struct Run {
  std::int64_t offset, count, channel;
};

/// A part of a matrix [rows, C]: `count` rows of the columns channel ... channel + columns - 1, the
/// first at `offset` in memory, the next one at offset + stride.
struct Rows {
  std::int64_t offset, count, stride, channel, columns;
};

/// Calls along(run) or across(rows) for all elements, a channel's in order and by one thread.
template <typename Along, typename Across>
void for_blocks(const Layout& layout, const Along& along, const Across& across) {
  const std::int64_t grain = kGrain / std::max<std::int64_t>(1, layout.outer * layout.inner) + 1;
  at::parallel_for(0, layout.channels, grain, [&](std::int64_t begin, std::int64_t end) {
    if (layout.inner == 1) {
      for (std::int64_t row = 0; row < layout.outer; row += kBlock) {
        across(Rows{row * layout.channels + begin, std::min(kBlock, layout.outer - row),
                    layout.channels, begin, end - begin});
      }
      return;
    }
    for (std::int64_t i = 0; i < layout.outer; ++i) {  // in the order of memory
      for (std::int64_t channel = begin; channel < end; ++channel) {
        const std::int64_t offset = (i * layout.channels + channel) * layout.inner;
        for (std::int64_t done = 0; done < layout.inner; done += kBlock) {
          along(Run{offset + done, std::min(kBlock, layout.inner - done), channel});
        }
      }
    }
  });
}

/// Of a set of numbers: the mean, and the sum of squared deviations from it.
struct Moments {
  double count = 0, mean = 0, m2 = 0;

  /// From the distances d = x - origin, where `origin` is one of the numbers: then their squares
  /// lose nothing to a large mean, and little if it lies far out, since m2 >= sum(d^2) / (count+1).
  static Moments of_distances(std::int64_t count, double origin, double sum, double squares) {
    const double mean = sum / static_cast<double>(count);
    return {static_cast<double>(count), origin + mean, std::max(0.0, squares - mean * sum)};
  }

  /// Adds another set (Chan, Golub, LeVeque 1983).
  void merge(const Moments& other) {
    const double sum = count + other.count;
    const double difference = other.mean - mean;
    mean += difference * (other.count / sum);
    m2 += other.m2 + difference * difference * (count * other.count / sum);
    count = sum;
  }
};

/// Two sums over a block of a channel, and the number that its terms were taken from.
struct PairOfSums {
  std::int64_t channel, count;
  double origin, first, second;
};

/// Adds up the pair term(i, origin) over all places i in memory. origins(offset, channel) points to
/// the origins of a block that begins there, one for each channel. done(sums) is called for each
/// block of a channel, in order.
template <typename A, typename Origins, typename Term, typename Done>
void sum_pairs(const Layout& layout, const Origins& origins, const Term& term, const Done& done) {
  const auto along = [&](const Run& run) {
    const A origin = *origins(run.offset, run.channel);
    // Side by side: one sum alone would have to wait for each addition.
    std::array<A, kLanes> first{}, second{};
    const auto add = [&](std::int64_t i, std::int64_t lane) {
      const auto [one, other] = term(run.offset + i, origin);
      first[lane] += one;
      second[lane] += other;
    };
    std::int64_t i = 0;
    for (; i + kLanes <= run.count; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        add(i + lane, lane);
      }
    }
    for (std::int64_t lane = 0; i + lane < run.count; ++lane) {
      add(i + lane, lane);
    }
    done(PairOfSums{run.channel, run.count, origin,
                    std::accumulate(first.begin(), first.end(), 0.0),
                    std::accumulate(second.begin(), second.end(), 0.0)});
  };
  const auto across = [&](const Rows& rows) {
    const auto* from = origins(rows.offset, rows.channel);
    std::vector<A> first(rows.columns), second(rows.columns);
    for (std::int64_t row = 0; row < rows.count; ++row) {
      const std::int64_t offset = rows.offset + row * rows.stride;
      for (std::int64_t i = 0; i < rows.columns; ++i) {
        const auto [one, other] = term(offset + i, from[i]);
        first[i] += one;
        second[i] += other;
      }
    }
    for (std::int64_t i = 0; i < rows.columns; ++i) {
      done(PairOfSums{rows.channel + i, rows.count, static_cast<A>(from[i]), first[i], second[i]});
    }
  };
  for_blocks(layout, along, across);
}

/// Stands for an array of equal numbers: the coefficient of a run, which is one channel's.
template <typename A>
struct Same {
  A value;
  A operator[](std::int64_t) const { return value; }
};

/// Coefficients by channel.
template <typename A, std::size_t K>
using Coefficients = std::array<std::vector<A>, K>;

/// Calls body(offset, n, c) for all elements: n neighbours from `offset` on, and c[k][i] is
/// coefficient k for the channel of neighbour i.
template <typename A, std::size_t K, typename Body>
void for_neighbours(const Layout& layout, const Coefficients<A, K>& coefficients,
                    const Body& body) {
  const auto along = [&](const Run& run) {
    std::array<Same<A>, K> c{};
    std::ranges::transform(coefficients, c.begin(),
                           [&](const auto& one) { return Same<A>{one[run.channel]}; });
    body(run.offset, run.count, c);
  };
  const auto across = [&](const Rows& rows) {
    std::array<const A*, K> c{};
    std::ranges::transform(coefficients, c.begin(),
                           [&](const auto& one) { return one.data() + rows.channel; });
    for (std::int64_t row = 0; row < rows.count; ++row) {
      body(rows.offset + row * rows.stride, rows.columns, c);
    }
  };
  for_blocks(layout, along, across);
}

template <typename T, typename A = Accumulate<T>>
std::vector<Moments> moments(const T* x, const Layout& layout) {
  std::vector<Moments> result(layout.channels);
  sum_pairs<A>(
      layout, [&](std::int64_t offset, std::int64_t) { return x + offset; },
      [x](std::int64_t i, A origin) {
        const A distance = static_cast<A>(x[i]) - origin;
        return std::pair(distance, distance * distance);
      },
      [&](const PairOfSums& sums) {
        result[sums.channel].merge(
            Moments::of_distances(sums.count, sums.origin, sums.first, sums.second));
      });
  return result;
}

template <typename T, typename C>
void normalize_neighbours(const T* __restrict x, T* __restrict y, std::int64_t n, const C& center,
                          const C& scale, const C& shift) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<T>((static_cast<Accumulate<T>>(x[i]) - center[i]) * scale[i] + shift[i]);
  }
}

/// y = (x - center) * scale + shift
template <typename T, typename A = Accumulate<T>>
void normalize(const T* x, T* y, const Layout& layout,
               const Coefficients<A, 3>& center_scale_shift) {
  for_neighbours(layout, center_scale_shift,
                 [x, y](std::int64_t offset, std::int64_t n, const auto& c) {
                   normalize_neighbours(x + offset, y + offset, n, c[0], c[1], c[2]);
                 });
}

/// Of each channel: the sum of g, and the sum of g * (x - center).
template <typename T, typename A = Accumulate<T>>
std::vector<std::pair<double, double>> gradient_sums(const T* g, const T* x, const Layout& layout,
                                                     const std::vector<A>& center) {
  std::vector<std::pair<double, double>> result(layout.channels);
  sum_pairs<A>(
      layout, [&](std::int64_t, std::int64_t channel) { return center.data() + channel; },
      [g, x](std::int64_t i, A origin) {
        const A gradient = static_cast<A>(g[i]);
        return std::pair(gradient, gradient * (static_cast<A>(x[i]) - origin));
      },
      [&](const PairOfSums& sums) {
        result[sums.channel].first += sums.first;
        result[sums.channel].second += sums.second;
      });
  return result;
}

template <typename T, typename C>
void combine_neighbours(const T* __restrict g, const T* __restrict x, T* __restrict dx,
                        std::int64_t n, const std::array<C, 4>& c) {
  using A = Accumulate<T>;
  const auto& [center, scale, slope, shift] = c;
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] = static_cast<T>(static_cast<A>(g[i]) * scale[i] +
                           (static_cast<A>(x[i]) - center[i]) * slope[i] + shift[i]);
  }
}

/// dx = g * scale + (x - center) * slope + shift
template <typename T, typename A = Accumulate<T>>
void combine(const T* g, const T* x, T* dx, const Layout& layout,
             const Coefficients<A, 4>& center_scale_slope_shift) {
  for_neighbours(layout, center_scale_slope_shift,
                 [g, x, dx](std::int64_t offset, std::int64_t n, const auto& c) {
                   combine_neighbours(g + offset, x + offset, dx + offset, n, c);
                 });
}

}  // namespace ddp::channels
