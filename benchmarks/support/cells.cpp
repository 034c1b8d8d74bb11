#include "support/cells.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

namespace ddp {

void add_resume_flag(CLI::App& app, BenchmarkOptions& options) {
  app.add_flag("--resume", options.resume,
               "Goes on where an earlier run with the same flags was stopped");
}

Cells::Cells(const BenchmarkOptions& options, PartialResult header, const Workplace& workplace)
    : options_(options), workplace_(workplace), partial_(std::move(header)) {
  const std::filesystem::path file = partial_path(result_path(options_, partial_.run));
  if (!is_first()) {
    return;
  }
  if (options_.resume || options_.later_world) {
    partial_.cells = read_partial_cells(partial_, file);
  }
  if (options_.later_world) {
    return;  // the first world has said it
  }
  if (options_.resume) {
    std::printf("%zu cells are taken over from %s\n", partial_.cells.size(), file.c_str());
  } else if (std::filesystem::exists(file)) {
    std::printf("beginning anew; --resume would go on with %s\n", file.c_str());
  } else {
    // If nothing can be written there, it is better to know before anything is measured.
    write_partial_result(partial_, file);
    std::filesystem::remove(file);
  }
  std::fflush(stdout);
}

bool Cells::has(const Parameters& labels) const {
  const bool found = std::ranges::any_of(
      partial_.cells, [&labels](const Cell& cell) { return cell.labels == labels; });
  const at::Tensor answer =
      at::full({1}, found ? 1 : 0, at::device(workplace_.device).dtype(at::kInt));
  broadcast(answer, workplace_.group);
  return answer.item<int>() == 1;
}

void Cells::add(const Parameters& labels, std::vector<Series> series) {
  if (!is_first()) {
    return;
  }
  for (Series& one : series) {
    one.labels.insert(one.labels.begin(), labels.begin(), labels.end());
  }
  partial_.cells.push_back({.labels = labels, .series = std::move(series)});
  write_partial_result(partial_, partial_path(result_path(options_, partial_.run)));
}

Result Cells::finish() {
  Result result = {.run = partial_.run, .parameters = partial_.parameters, .series = {}};
  if (!is_first()) {
    return result;
  }
  for (Cell& cell : partial_.cells) {
    std::ranges::move(cell.series, std::back_inserter(result.series));
  }
  save_result(options_, result);
  std::filesystem::remove(partial_path(result_path(options_, partial_.run)));
  return result;
}

}  // namespace ddp
