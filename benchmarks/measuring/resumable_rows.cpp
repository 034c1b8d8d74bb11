#include "measuring/resumable_rows.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "ddp/backends/cuda.h"
#include "ddp/launching/environment.h"
#include "ddp/meters/whole_file.h"
#include "measuring/command_line.h"

namespace ddp {
namespace {

constexpr const char* kFlag = "--world-size";

std::string backends_on_gpus(const std::vector<int>& worlds) {
  const auto [least, most] = std::ranges::minmax(worlds);
  const int gpus = visible_gpus();
  if (least > gpus) {
    return "gloo";
  }
  return most > gpus ? "nccl, gloo" : "nccl";
}

}  // namespace

void add_resume_flag(CLI::App& line, BenchmarkOptions& options) {
  line.add_flag("--resume", options.resume,
                "Goes on where an earlier run with the same flags was stopped");
}

ResumableRows::ResumableRows(const BenchmarkOptions& options, Result header,
                             const DeviceContext& device_context)
    : options_(options),
      device_context_(device_context),
      result_(std::move(header)),
      file_(partial_path(result_path(options, result_.run))) {
  if (!is_first()) {
    return;
  }
  if (options_.resume || options_.later_world) {
    rows_ = read_rows(result_, file_);
  }
  if (options_.later_world) {
    return;  // reported in the first world
  }
  if (options_.resume) {
    std::printf("%zu rows are taken over from %s\n", rows_.size(), file_.c_str());
  } else if (std::filesystem::exists(file_)) {
    std::printf("starting over; --resume would go on with %s\n", file_.c_str());
  } else {
    require_writable(file_, "--output");
  }
  std::fflush(stdout);
}

std::size_t ResumableRows::repetitions_of(const Parameters& labels) const {
  const auto row = std::ranges::find(rows_, labels, &Row::labels);
  return row == rows_.end() ? 0 : row->series.front().values.size();
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
    one.labels = joined(labels, one.labels);
  }
  Row row = {.labels = labels, .series = std::move(series)};
  append_row(result_, row, file_, rows_.empty());
  add_row(rows_, std::move(row));
}

void ResumableRows::measure(const Parameters& labels, Progress& progress, int parts,
                            const std::function<std::vector<Series>()>& series) {
  if (has(labels)) {
    progress.skip(parts);
  } else {
    add(labels, series());
  }
}

Result ResumableRows::finish(const std::function<void(Result&)>& complete) {
  for (Row& row : rows_) {
    std::ranges::move(row.series, std::back_inserter(result_.series));
  }
  if (complete) {
    complete(result_);
  }
  if (!is_first()) {
    return result_;
  }
  save_result(options_, result_);
  std::filesystem::remove(file_);
  return result_;
}

std::vector<int> choose_worlds(const CLI::App& line, const BenchmarkOptions& options,
                               const std::vector<int>& preset) {
  try {
    if (const auto environment = read_launch_environment()) {
      return {environment->world_size};
    }
  } catch (const c10::Error&) {
    return {options.world_size};  // launch() reports the error
  }
  return line.count(kFlag) > 0 ? std::vector<int>{options.world_size} : preset;
}

void describe_worlds(CLI::App& line, const std::vector<int>& preset) {
  line.get_option(kFlag)
      ->description("Run only this number of ranks; a launcher overrides it")
      ->default_str(c10::Join(", ", preset) + " one after the other");
}

Result header_of_worlds(const std::vector<int>& worlds, Run run, Parameters parameters) {
  run.world_size = worlds.back();
  if (run.device == "cuda" && worlds.size() > 1) {
    run.backend = backends_on_gpus(worlds);
  }
  parameters.emplace_back("worlds", c10::Join(", ", worlds));
  return {.run = std::move(run), .parameters = std::move(parameters)};
}

}  // namespace ddp
