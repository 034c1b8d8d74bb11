#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "measuring/benchmark.h"
#include "measuring/command_line.h"
#include "measuring/on_cluster.h"
#include "measuring/trainer.h"
#include "measuring/workload.h"
#include "models/profiles/model_profile.h"

namespace ddp {

// What an experiment about the time of a training step consists of. Each is an entry: a file beside
// this one, which says what it repeats and where that was published.

/// The parts of a step, in their order.
enum class Part { kForward, kBackward, kFinish, kUpdate };

/// A timed stretch of a step.
struct Timed {
  std::string name;  // its label; empty: no label
  Part first, last;
  bool together = false;  // all ranks begin it together
  bool waited = false;    // the device has ended it before the next part begins
};

/// Whose times a result has: the slowest rank's, rank 0's, each rank's in a series of its own, or
/// those of all ranks one after the other.
enum class TimesOf { kSlowest, kFirst, kEach, kAll };

/// The command line of an experiment, with its defaults: each has flags for some of it.
struct StepSettings : BenchmarkOptions {
  Workload workload;
  std::vector<std::string> variants;
  std::vector<std::int64_t> sizes;  // of buckets, in the unit of the experiment
  std::set<std::int64_t> batch_sizes = {}, lengths = {};  // where there are several
  TrainerOptions trainer = {};
  std::vector<Timed> timed;
  std::string part_label = "part";  // of a Timed's name
  TimesOf times_of = TimesOf::kSlowest;
  ClusterFlags cluster = {};

  // Of single experiments.
  bool apart = false, interleaved = true;
  std::string optimizer = "sgd", loss = "mse", whose = "rank0", json = {},
              json_variant = "bucketed";
  int caps = 12;

  bool on_cluster() const { return preset == kPublishedPreset; }
  bool has(const std::string& variant) const;
};

/// One of the trainings that are compared.
struct Way {
  std::string variant;
  TrainerOptions options = {};
  Parameters labels = {};
};

/// Ways that take turns, step by step, each on a model of its own.
struct Comparison {
  Parameters labels = {};
  Workload workload = {};
  std::vector<Way> ways = {};
  int ranks = 0;  // the first so many, while the others wait; 0: all
};

/// A row's model and machine on the simulated cluster.
struct Simulated {
  ModelProfile profile;
  PublishedHardware hardware;
  std::int64_t gpus = 2;
  /// The seconds of what is timed.
  std::function<std::vector<double>(const Way& way, const cluster::StepTimes& times)> seconds;
  Parameters parameters = {};  // of the result, besides the hardware's
};

/// An entry of the table.
struct StepExperiment {
  std::string name;   // of its results, too
  std::string about;  // a line for --help, with the source
  PresetsInWords presets;
  Hardware published = {.gpus = 2};
  /// Of a preset; those of kPublishedPreset are for the cluster.
  StepSettings (*defaults)(const std::string& preset) = nullptr;
  void (*add_flags)(CLI::App& line, StepSettings& settings) = nullptr;
  /// Sets what follows from other flags; returns a mistake in words, or nothing.
  std::string (*settle)(const CLI::App& line, StepSettings& settings) = nullptr;
  /// Which models are trained at once, if they are large.
  TrainedModels (*trained)(const StepSettings& settings) = nullptr;
  /// In the order of the result. settings.variants are those that are usable; `local_ranks` has
  /// each rank's number on its machine, and nothing on the cluster.
  std::vector<Comparison> (*rows)(const StepSettings& settings,
                                  const std::vector<int>& local_ranks) = nullptr;
  Parameters (*parameters)(const StepSettings& settings,
                           const std::vector<Comparison>& rows) = nullptr;
  /// None for an experiment that has no subcommand "published".
  Simulated (*simulated)(const StepSettings& settings, const Comparison& row) = nullptr;
  /// Called by all ranks before the result is saved, or on the cluster without ranks. Rank 0's
  /// result has the series, and may get more.
  void (*complete)(const StepSettings& settings, const DeviceContext* ranks,
                   Result& result) = nullptr;
  std::chrono::milliseconds patience = std::chrono::minutes(5);  // of a rank with the others
};

/// The labels of one way's times of one stretch; those of its row come before them.
Parameters labels_of(const StepSettings& settings, const Way& way, std::size_t timed,
                     std::int64_t rank);

StepExperiment compare_ddp();
StepExperiment ddp_suite();
StepExperiment bucketed_ddp();
StepExperiment step_time();
StepExperiment bucket_overhead();

/// One rank's part of an experiment on real ranks; saves the result. Unfinished variants are left
/// out with a message (see usable_variants()). Collective.
void measure(const StepExperiment& experiment, StepSettings settings, const RankContext& context);

/// The experiment at its published scale, in virtual time: the same series, of one value each. Throws
/// c10::ValueError for flags and calibrations that do not fit, c10::NotImplementedError if no stage
/// is finished.
void simulate(const StepExperiment& experiment, StepSettings settings);

}  // namespace ddp
