#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "ddp/backends/cuda.h"
#include "ddp/backends/host_staged_backend.h"
#include "ddp/backends/limited_link.h"
#include "ddp/meters/device_timer.h"
#include "experiments/ddp_suite/suite.h"
#include "measuring/interleaved.h"
#include "measuring/resumable_rows.h"
#include "measuring/trainer.h"

namespace ddp {
namespace {

constexpr int kMostRanks = 8;  // per machine, as published

std::string name_of(int ranks, const std::vector<int>& local_ranks) {
  const auto machines = std::count(local_ranks.begin(), local_ranks.begin() + ranks, 0);
  const auto largest = *std::max_element(local_ranks.begin(), local_ranks.begin() + ranks);
  return std::to_string(machines) + "M/" + std::to_string(largest + 1) + "G";
}

}  // namespace

std::vector<SuiteRound> plan_suite_rounds(const std::vector<int>& local_ranks) {
  const int world = static_cast<int>(local_ranks.size());
  const auto second_machine = std::find(local_ranks.begin() + 1, local_ranks.end(), 0);
  const int machine = static_cast<int>(second_machine - local_ranks.begin());
  std::set<int> sizes = {world};
  for (int ranks = 1; ranks < machine; ranks *= 2) {
    sizes.insert(ranks);
  }
  for (int ranks = machine; ranks <= world; ranks += machine) {
    sizes.insert(ranks);
  }
  std::vector<SuiteRound> rounds = {{.name = "no ddp", .ranks = 1, .uses_ddp = false}};
  for (const int ranks : sizes) {
    rounds.push_back({.name = name_of(ranks, local_ranks), .ranks = ranks});
  }
  return rounds;
}

std::vector<int> gather_local_ranks(const RankContext& context,
                                    const DeviceContext& device_context) {
  const at::Tensor mine = at::full({1}, placement_of(context).local_rank,
                                   at::device(device_context.device).dtype(at::kInt));
  const at::Tensor all = all_gather(mine, device_context.group).view(-1).cpu();
  return {all.const_data_ptr<int>(), all.const_data_ptr<int>() + all.numel()};
}

int default_suite_ranks(const std::string& device, double bytes_of_rank) {
  if (device == "cuda") {
    return std::max(visible_gpus(), 1);
  }
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  const auto fits = [&](int ranks) {
    return ranks <= static_cast<int>(std::thread::hardware_concurrency()) &&
           ranks * bytes_of_rank <= memory;
  };
  int ranks = 2;
  while (ranks < kMostRanks && fits(2 * ranks)) {
    ranks *= 2;
  }
  return ranks;
}

ProcessGroupPtr group_of_first_ranks(int ranks, const std::string& name, const LinkLimit& link,
                                     const RankContext& context, const DeviceContext& all) {
  if (context.rank >= ranks) {
    return nullptr;
  }
  const auto store = c10::make_intrusive<c10d::PrefixStore>("first_ranks/" + name, context.store);
  BackendPtr backend;
  if (all.group->getDefaultBackend()->getBackendName() == kNcclBackend) {
    backend = make_nccl_backend(store, context.rank, ranks, kPatience);
  } else {
    backend = make_gloo_backend_of_first(ranks, store, context, kPatience);
    if (all.device.is_cuda()) {
      backend = c10::make_intrusive<HostStagedBackend>(std::move(backend));
    }
  }
  return make_process_group(limited(std::move(backend), link),
                            c10::make_intrusive<c10d::PrefixStore>("group", store));
}

namespace {

constexpr double kLearningRate = 0.001, kMomentum = 0.9, kWeightDecay = 1e-4;

// Stochastic gradient descent with momentum as in PyTorch's torch.optim.SGD(fused=True), by the same
// function of libtorch: one pass over parameters, gradients and momentum.
class MomentumSgd {
 public:
  explicit MomentumSgd(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {}

  // Updates the parameters with their gradients, which must all exist, and sets those to none.
  void step() {
    const at::NoGradGuard no_grad;
    const bool is_first = momentum_.empty();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters_) {
      gradients.push_back(parameter.grad());
      if (is_first) {
        momentum_.push_back(at::empty_like(parameter));
      }
    }
    at::_fused_sgd_(parameters_, gradients, momentum_, kWeightDecay, kMomentum, kLearningRate,
                    /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false, is_first);
    for (const at::Tensor& parameter : parameters_) {
      parameter.mutable_grad().reset();
    }
  }

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> momentum_;  // empty before the first step
};

// The candidates that are interleaved in a round, each on its own replica of one model: computing
// alone, or stage 03 and c10d::Reducer with each bucket size.
class SuiteComparison {
 public:
  SuiteComparison(const SuiteSettings& settings, const SuiteModel& model, const SuiteRound& round,
                  const DeviceContext& device_context)
      : model_(model),
        seed_(settings.seed),
        device_context_(device_context),
        timer_(make_device_timer(device_context.device)) {
    Workload workload = settings.workload;
    workload.model = model.name;
    batch_ = make_batch(workload, seed_, device_context);
    trainers_.reserve(replicas(settings, round));
    if (!round.uses_ddp) {
      add(kComputeOnly, std::nullopt);
      return;
    }
    for (const std::int64_t bucket_size : settings.bucket_sizes) {
      for (const std::string& variant : kSuiteVariants) {
        add(variant, bucket_size);
      }
    }
  }

  // How many replicas take part in a round with or without DDP.
  static int replicas(const SuiteSettings& settings, const SuiteRound& round) {
    return round.uses_ddp ? static_cast<int>(kSuiteVariants.size() * settings.bucket_sizes.size())
                          : 1;
  }

  // One iteration of a round with DDP, which throws if stage 03's gradients differ from its baseline's:
  // then it is not worth measuring. Collective.
  void check() {
    const auto baseline = std::ranges::find(variants_, "Reducer") - variants_.begin();
    check_gradients(variants_, trainers_, baseline, batch_);
  }

  // Seconds of one iteration of one replica, begun by all ranks of the round together: forward,
  // backward, finish() and the optimizer, which sets gradients to none.
  double run(std::size_t replica) {
    Trainer& trainer = trainers_[replica];
    return seconds_together(*timer_, device_context_.group, [&] {
      trainer.backward(trainer.forward(batch_));
      trainer.finish();
      optimizers_[replica].step();
    });
  }

  // A series for each replica, of `seconds`: [ranks, iterations, replicas, 1].
  std::vector<Series> to_series(const at::Tensor& seconds) const {
    std::vector<Series> series;
    for (std::size_t replica = 0; replica < labels_.size(); ++replica) {
      series.push_back(series_of(seconds.flatten(0, 1), replica, /*part=*/0, labels_[replica]));
    }
    return series;
  }

 private:
  void add(const std::string& variant, std::optional<std::int64_t> bucket_size) {
    TrainerOptions options;
    Parameters labels = {{"variant", variant}};
    if (bucket_size) {
      options.cap_bytes = *bucket_size << 20;
      labels.emplace_back("bucket_size", *bucket_size);
    }
    trainers_.emplace_back(variant, make_model(model_.name, seed_, device_context_.device),
                           device_context_.group, options);
    const std::int64_t found = summarize_model(trainers_.back().parameters()).total;
    TORCH_CHECK(found == model_.parameters, model_.name, " has ", found, " parameters here, and ",
                model_.parameters, " where it was published: numbers would be of another model");
    optimizers_.emplace_back(tensors_of(trainers_.back().parameters()));
    variants_.push_back(variant);
    labels_.push_back(std::move(labels));
  }

  const SuiteModel model_;
  const std::uint64_t seed_;
  const DeviceContext& device_context_;
  std::unique_ptr<DeviceTimer> timer_;
  LabelledBatch batch_;
  std::vector<std::string> variants_;
  std::vector<Trainer> trainers_;
  std::vector<MomentumSgd> optimizers_;
  std::vector<Parameters> labels_;
};

// All rounds of a run.
class Suite {
 public:
  Suite(const SuiteSettings& settings, const RankContext& context, const DeviceContext& all)
      : settings_(settings),
        context_(context),
        all_(all),
        rounds_(plan_suite_rounds(gather_local_ranks(context, all))),
        rows_(settings, header(), all),
        progress_(std::string(kSuiteProgram) + ", parts", all_parts(), context.rank) {}

  // On rank 0 the result, which has been written.
  Result run() {
    for (const SuiteModel& model : settings_.models()) {
      for (const SuiteRound& round : rounds_) {
        run_row(model, round);
      }
    }
    progress_.clear_line();
    return rows_.finish();
  }

 private:
  Result header() const {
    const Size& size = settings_.workload.size;
    Result header = {.run = to_run(settings_, kSuiteProgram, all_.group),
                     .parameters = {{"batch_size", size.batch},
                                    {"image_size", size.image},
                                    {"warmup", size.warmup},
                                    {"rate_gbit", settings_.rate_gbit},
                                    {"latency_us", settings_.latency_us},
                                    {"cuda_version", cuda_version(all_.device)},
                                    {"learning_rate", kLearningRate},
                                    {"momentum", kMomentum},
                                    {"weight_decay", kWeightDecay}}};
    for (const SuiteModel& model : settings_.models()) {
      header.parameters.emplace_back(std::string("parameters of ") + model.name, model.parameters);
      header.parameters.emplace_back(std::string("steps of ") + model.name,
                                     settings_.steps_of(model));
    }
    header.parameters = joined(header.parameters, settings_.sizes_as_parameters());
    return header;
  }

  int all_parts() const {
    int parts = 0;
    for (const SuiteModel& model : settings_.models()) {
      for (const SuiteRound& round : rounds_) {
        parts += parts_of(model, round);
      }
    }
    return parts;
  }

  // A rough estimate of a row's duration.
  int parts_of(const SuiteModel& model, const SuiteRound& round) const {
    const int iterations = settings_.workload.size.warmup + settings_.steps_of(model);
    return model.weight * SuiteComparison::replicas(settings_, round) * iterations;
  }

  void run_row(const SuiteModel& model, const SuiteRound& round) {
    const Parameters labels = {
        {"model", model.name}, {"round", round.name}, {"ranks", std::int64_t{round.ranks}}};
    if (rows_.has(labels)) {
      progress_.skip(parts_of(model, round));
      return;
    }
    const ProcessGroupPtr group = group_of_first_ranks(
        round.ranks, std::string(model.name) + "/" + round.name, settings_, context_, all_);
    if (group) {
      rows_.add(labels, measure(model, round, {.device = all_.device, .group = group}));
    }
  }

  std::vector<Series> measure(const SuiteModel& model, const SuiteRound& round,
                              const DeviceContext& device_context) {
    SuiteComparison comparison(settings_, model, round, device_context);
    if (round.uses_ddp && !checked_) {
      comparison.check();  // once with all ranks is enough: stage 03 does not depend on the model
      checked_ = round.ranks == context_.world_size;
    }
    const auto run = [&](std::size_t replica) -> std::vector<double> {
      const double seconds = comparison.run(replica);
      for (int part = 0; part < model.weight; ++part) {
        progress_.advance();
      }
      return {seconds};
    };
    const Repetitions repetitions = {.measured = settings_.steps_of(model),
                                     .warmup = settings_.workload.size.warmup};
    const at::Tensor mine =
        measure_interleaved(repetitions, SuiteComparison::replicas(settings_, round), run);
    return comparison.to_series(
        all_gather(mine.to(device_context.device), device_context.group).cpu());
  }

  const SuiteSettings& settings_;
  const RankContext& context_;
  const DeviceContext& all_;
  const std::vector<SuiteRound> rounds_;
  ResumableRows rows_;
  Progress progress_;     // finer than that of repetitions
  bool checked_ = false;  // stage 03's gradients
};

}  // namespace

Result measure_suite(const SuiteSettings& settings, const SuiteHeader& header,
                     const RankContext& context, const DeviceContext& all) {
  Suite suite(settings, context, all);  // reports what it takes over from an earlier run
  print_header(header, context);
  return suite.run();
}

}  // namespace ddp
