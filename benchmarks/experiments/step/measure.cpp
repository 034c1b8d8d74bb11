// An experiment on real ranks: its rows one after the other, and the ways of a row in turns.
#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "ddp/backends/cuda.h"
#include "ddp/backends/host_staged_backend.h"
#include "ddp/meters/device_timer.h"
#include "experiments/step/step.h"
#include "measuring/interleaved.h"
#include "measuring/resumable_rows.h"

namespace ddp {
namespace {

// Each rank's number on its machine. Collective.
std::vector<int> gather_local_ranks(const RankContext& context, const DeviceContext& all) {
  const at::Tensor mine =
      at::full({1}, placement_of(context).local_rank, at::device(all.device).dtype(at::kInt));
  const at::Tensor gathered = all_gather(mine, all.group).view(-1).cpu();
  return {gathered.const_data_ptr<int>(), gathered.const_data_ptr<int>() + gathered.numel()};
}

// The first ranks as a group of their own, with the same kind of backend as `all`. `number` is
// another for each group of a run. Collective among them; null on the others.
ProcessGroupPtr group_of_first(int ranks, int number, const StepSettings& settings,
                               std::chrono::milliseconds patience, const RankContext& context,
                               const DeviceContext& all) {
  if (context.rank >= ranks) {
    return nullptr;
  }
  const auto store = c10::make_intrusive<c10d::PrefixStore>("first_ranks/" + std::to_string(number),
                                                            context.store);
  BackendPtr backend;
  if (all.group->getDefaultBackend()->getBackendName() == kNcclBackend) {
    backend = make_nccl_backend(store, context.rank, ranks, patience);
  } else {
    backend = make_gloo_backend_of_first(ranks, store, context, patience);
    if (all.device.is_cuda()) {
      backend = c10::make_intrusive<HostStagedBackend>(std::move(backend));
    }
  }
  return make_process_group(limited(std::move(backend), settings),
                            c10::make_intrusive<c10d::PrefixStore>("group", store));
}

// One step. Seconds of what is timed.
std::vector<double> time_step(Trainer& trainer, const LabelledBatch& batch,
                              const std::vector<Timed>& timed, const DeviceContext& ranks) {
  at::Tensor loss;
  const std::pair<Part, std::function<void()>> parts[] = {
      {Part::kForward, [&] { loss = trainer.forward(batch); }},
      {Part::kBackward, [&] { trainer.backward(loss); }},
      {Part::kFinish, [&] { trainer.finish(); }},
      {Part::kUpdate, [&] { trainer.update(); }}};
  std::vector<std::unique_ptr<DeviceTimer>> timers;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    timers.push_back(make_device_timer(ranks.device));
  }
  for (const auto& [part, run] : parts) {
    for (std::size_t i = 0; i < timed.size(); ++i) {
      if (timed[i].first == part) {
        if (timed[i].together) {
          barrier(ranks.group);
        }
        timers[i]->start();
      }
    }
    run();
    for (std::size_t i = 0; i < timed.size(); ++i) {
      if (timed[i].last == part) {
        timers[i]->stop();
        if (timed[i].waited) {
          timers[i]->seconds();  // returns when the device is there
        }
      }
    }
  }
  std::vector<double> seconds;
  for (const auto& timer : timers) {
    seconds.push_back(timer->seconds());
  }
  return seconds;
}

// The series of a row from this rank's times [repetitions, ways, timed]. Collective.
std::vector<Series> to_series(at::Tensor times, const StepSettings& settings, const Comparison& row,
                              const DeviceContext& ranks) {
  const bool each = settings.times_of == TimesOf::kEach;
  if (settings.times_of == TimesOf::kSlowest) {
    times = largest_of_ranks(times, ranks);
  } else if (settings.times_of != TimesOf::kFirst) {
    times = all_gather(times.to(ranks.device), ranks.group).cpu();
    times = each ? times : times.flatten(0, 1);
  }
  times = each ? times : times.unsqueeze(0);
  std::vector<Series> series;
  for (std::size_t way = 0; way < row.ways.size(); ++way) {
    for (std::size_t part = 0; part < settings.timed.size(); ++part) {
      for (std::int64_t rank = 0; rank < times.size(0); ++rank) {
        series.push_back(
            series_of(times[rank], way, part, labels_of(settings, row.ways[way], part, rank)));
      }
    }
  }
  return series;
}

class Measurement {
 public:
  Measurement(const StepExperiment& experiment, const StepSettings& settings,
              const std::vector<Comparison>& rows, const RankContext& context,
              const DeviceContext& all)
      : experiment_(experiment),
        settings_(settings),
        table_(rows),
        context_(context),
        all_(all),
        rows_(settings,
              {.run = to_run(settings, experiment.name, all.group),
               .parameters = experiment.parameters(settings, rows)},
              all),
        progress_(experiment.name + ", repetitions", all_repetitions(), context.rank) {}

  void run() {
    for (const Comparison& row : table_) {
      measure_row(row);
    }
    progress_.clear_line();
    rows_.finish([&](Result& result) {
      if (experiment_.complete) {
        experiment_.complete(settings_, &all_, result);
      }
    });
  }

 private:
  static Repetitions repetitions_of(const Comparison& row) {
    return {.measured = row.workload.size.steps, .warmup = row.workload.size.warmup};
  }

  int all_repetitions() const {
    int all = 0;
    for (const Comparison& row : table_) {
      all += repetitions_of(row).all();
    }
    return all;
  }

  void measure_row(const Comparison& row) {
    ++number_;
    if (rows_.has(row.labels)) {
      progress_.skip(repetitions_of(row).all());
      return;
    }
    const ProcessGroupPtr group =
        row.ranks == 0
            ? all_.group
            : group_of_first(row.ranks, number_, settings_, experiment_.patience, context_, all_);
    if (group) {
      rows_.add(row.labels,
                measure(row, {.device = all_.device, .group = group, .timeline = all_.timeline}));
    }
  }

  std::vector<Series> measure(const Comparison& row, const DeviceContext& ranks) {
    const LabelledBatch batch = make_batch(row.workload, settings_.seed, ranks);
    std::vector<Trainer> trainers = make_trainers(row, ranks);
    const bool updates = row.ways.front().options.optimizer != nullptr;
    if (!updates && !checked_ && trainers.size() > 1) {
      check_gradients(trainers, batch);
      checked_ = row.ranks == 0 || row.ranks == context_.world_size;
    }
    const at::Tensor times = measure_interleaved(
        repetitions_of(row), trainers.size(),
        [&](std::size_t way) { return time_step(trainers[way], batch, settings_.timed, ranks); },
        &progress_);
    if (updates) {
      check_losses(trainers, batch);
    }
    return to_series(times, settings_, row, ranks);
  }

  std::vector<Trainer> make_trainers(const Comparison& row, const DeviceContext& ranks) {
    std::vector<Trainer> trainers;
    trainers.reserve(row.ways.size());
    for (std::size_t way = 0; way < row.ways.size(); ++way) {
      const std::shared_ptr<Model> model = model_of(row, way);
      TrainerOptions options = row.ways[way].options;
      options.timeline = ranks.timeline;
      if (const auto* layered = dynamic_cast<LayeredModel*>(model.get())) {
        options.units = layered->units();
      }
      trainers.emplace_back(row.ways[way].variant, model, ranks.group, options);
    }
    return trainers;
  }

  // A row goes on with the models of the one before, except where some ranks may have waited: all
  // begin with the same weights.
  std::shared_ptr<Model> model_of(const Comparison& row, std::size_t way) {
    if (way == 0 && row.ranks > 0) {
      models_.clear();
    }
    if (way == models_.size()) {
      models_.push_back(make_model(row.workload.model, settings_.seed, all_.device));
    }
    return models_[way];
  }

  const StepExperiment& experiment_;
  const StepSettings& settings_;
  const std::vector<Comparison>& table_;
  const RankContext& context_;
  const DeviceContext& all_;
  ResumableRows rows_;
  Progress progress_;
  std::vector<std::shared_ptr<Model>> models_;  // one for each way
  int number_ = 0;                              // of the row
  bool checked_ = false;                        // that gradients are equal
};

}  // namespace

void measure(const StepExperiment& experiment, StepSettings settings, const RankContext& context) {
  const DeviceContext all = make_device_context(settings, context, experiment.patience);
  if (experiment.trained && !all.device.is_cpu()) {
    const std::string problem = why_no_memory(experiment.trained(settings), 1, all.device);
    TORCH_CHECK(problem.empty(), problem);
  }
  keep_freed_memory();
  settings.variants = usable_variants(settings.variants, settings.implementation, all);
  const std::vector<Comparison> rows = experiment.rows(settings, gather_local_ranks(context, all));
  Measurement(experiment, settings, rows, context, all).run();
  save_trace(settings, context, all);
  barrier(all.group);  // no rank exits while another is still connected to it
}

}  // namespace ddp
