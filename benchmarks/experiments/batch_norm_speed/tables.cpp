#include "experiments/batch_norm_speed/tables.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "ddp/meters/statistics.h"

namespace ddp {
namespace {

// The values of a series, which are there.
const std::vector<double>& values_of(const Result& result, const Layout& layout,
                                     const Parameters& labels) {
  Parameters all = {{"layout", layout.name}};
  all.insert(all.end(), labels.begin(), labels.end());
  return std::ranges::find(result.series, all, &Series::labels)->values;
}

void print_row(const char* layout, const std::string& what, const std::vector<double>& values) {
  std::printf("%-15s%-24s", layout, what.c_str());
  for (const double value : values) {
    std::printf("%10.2f", value);
  }
  std::printf("\n");
}

void print_medians(const Result& result, const std::vector<std::string>& variants,
                   const char* quantity, const auto& parts, double unit) {
  for (const Layout& layout : kLayouts) {
    for (const char* part : parts) {
      std::vector<double> medians;
      medians.reserve(variants.size());
      for (const std::string& variant : variants) {
        medians.push_back(
            percentile(values_of(result, layout, labels_of(variant, part, quantity)), 50) / unit);
      }
      print_row(layout.name, part, medians);
    }
  }
}

// How fast each is, as a part of what memory allows: the medians of the repetitions' ratios.
void print_shares(const Result& result, const std::vector<std::string>& batch_norms) {
  for (const Layout& layout : kLayouts) {
    for (const char* part : kTimedParts) {
      const auto& limit = values_of(result, layout, labels_of(kMemoryLimit, part, "time"));
      std::vector<double> medians;
      medians.reserve(batch_norms.size());
      for (const std::string& variant : batch_norms) {
        std::vector<double> shares = limit;
        std::ranges::transform(shares, values_of(result, layout, labels_of(variant, part, "time")),
                               shares.begin(), std::divides<>());
        medians.push_back(percentile(shares, 50));
      }
      print_row(layout.name, part, medians);
    }
  }
}

void print_header(const char* title, const std::vector<std::string>& columns) {
  std::printf("%-39s", title);
  for (const std::string& column : columns) {
    std::printf("%10s", column.c_str());
  }
  std::printf("\n");
}

}  // namespace

Parameters labels_of(const std::string& variant, const char* part, const char* quantity) {
  return {{"variant", variant}, {"part", part}, {"quantity", quantity}};
}

void print_tables(const Result& result, const std::vector<std::string>& batch_norms) {
  std::vector<std::string> timed = batch_norms;
  timed.emplace_back(kMemoryLimit);
  print_header("time [ms], medians", timed);
  print_medians(result, timed, "time", kTimedParts, 1e-3);
  print_header("\npart of the memory limit's speed", batch_norms);
  print_shares(result, batch_norms);
  print_header("\npeak memory [MiB]", batch_norms);
  print_medians(result, batch_norms, "peak memory", kPeakParts, 0x1p20);
}

}  // namespace ddp
