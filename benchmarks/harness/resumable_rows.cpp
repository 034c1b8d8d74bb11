#include "harness/resumable_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "ddp/meters/whole_file.h"
#include "harness/command_line.h"

namespace ddp {

void add_resume_flag(CLI::App& line, BenchmarkOptions& options) {
  line.add_flag("--resume", options.resume,
                "Goes on where an earlier run with the same flags was stopped");
}

ResumableRows::ResumableRows(const BenchmarkOptions& options, PartialResult header,
                             const DeviceContext& device_context)
    : options_(options), device_context_(device_context), partial_(std::move(header)) {
  const std::filesystem::path file = partial_path(result_path(options_, partial_.run));
  if (!is_first()) {
    return;
  }
  if (options_.resume || options_.later_world) {
    partial_.rows = read_partial_rows(partial_, file);
  }
  if (options_.later_world) {
    return;  // reported in the first world
  }
  if (options_.resume) {
    std::printf("%zu rows are taken over from %s\n", partial_.rows.size(), file.c_str());
  } else if (std::filesystem::exists(file)) {
    std::printf("starting over; --resume would go on with %s\n", file.c_str());
  } else {
    require_writable(file, "--output");
  }
  std::fflush(stdout);
}

std::size_t ResumableRows::repetitions_of(const Parameters& labels) const {
  const auto row = std::ranges::find(partial_.rows, labels, &Row::labels);
  return row == partial_.rows.end() ? 0 : row->series.front().values.size();
}

bool ResumableRows::has(const Parameters& labels) const {
  const int found = repetitions_of(labels) > 0 ? 1 : 0;
  const at::Tensor answer =
      at::full({1}, found, at::device(device_context_.device).dtype(at::kInt));
  broadcast(answer, device_context_.group);
  return answer.item<int>() == 1;
}

void ResumableRows::add(const Parameters& labels, std::vector<Series> series) {
  if (!is_first()) {
    return;
  }
  for (Series& one : series) {
    one.labels.insert(one.labels.begin(), labels.begin(), labels.end());
  }
  Row row = {.labels = labels, .series = std::move(series)};
  append_row(partial_, row, partial_path(result_path(options_, partial_.run)),
             partial_.rows.empty());
  add_row(partial_.rows, std::move(row));
}

Result ResumableRows::finish() {
  Result result = {.run = partial_.run, .parameters = partial_.parameters, .series = {}};
  if (!is_first()) {
    return result;
  }
  for (Row& row : partial_.rows) {
    std::ranges::move(row.series, std::back_inserter(result.series));
  }
  save_result(options_, result);
  std::filesystem::remove(partial_path(result_path(options_, partial_.run)));
  return result;
}

}  // namespace ddp
