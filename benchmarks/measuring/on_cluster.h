#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ddp/cluster/cluster.h"
#include "ddp/cluster/timed_model.h"
#include "measuring/benchmark.h"
#include "measuring/variants.h"
#include "models/profiles/model_profile.h"
#include "models/transformer.h"

namespace ddp {

// Variants on the simulated cluster: stages and baselines as they are, in one process, in virtual time.

/// What is gathered together: each "layers.N" of a model whose layers have such names, and what lies
/// between these. They use the model.
std::vector<ModelUnit> units_of(const cluster::TimedModel& model);

/// One step of a variant from the second on, when its buckets are what they stay. The library of its
/// stage must be loaded, see variants_on_cluster(). Without units in `options` they are the model's.
/// `at_its_end` is called while the variant is still there.
cluster::StepTimes simulate_step(const std::string& variant, cluster::Cluster& cluster,
                                 cluster::TimedModel& model, VariantOptions options = {},
                                 const std::function<void()>& at_its_end = {});

/// AdamW that tells a MetaMemory what it makes.
std::unique_ptr<torch::optim::Optimizer> counted_adamw(std::vector<at::Tensor> parameters);

/// Those of `names` that can be simulated, in the same order, with their stages' libraries loaded in
/// this process. A variant is left out, with one line on stderr, if it is a stub, its library cannot
/// be loaded, or it needs what the cluster does not have, such as values. Throws
/// c10::NotImplementedError if `names` has variants of stages and none is left.
std::vector<std::string> variants_on_cluster(const std::vector<std::string>& names,
                                             const std::string& implementation);

/// figures/reference/calibration.json of the checkout that the running program was built in.
std::filesystem::path default_calibration();

/// The constants of a published experiment's hardware, fitted to a few of its cells: one experiment
/// of figures/reference/calibration.json, which `tools/report/calibrate.py` makes.
class Calibration {
 public:
  /// Throws c10::ValueError, which names the file and what to do, if it cannot be read, or has no
  /// such experiment.
  Calibration(const std::filesystem::path& file, const std::string& experiment);

  /// Throws c10::ValueError, listing the constants that there are, if there is none of that name.
  double constant(const std::string& name) const;

 private:
  std::string origin_;  // for messages
  std::map<std::string, double> constants_;
};

// For the subcommand "published": a published experiment at its own scale, with the same code as on real
// ranks, on the simulated cluster of common/ddp/cluster, in this process. The hardware's constants
// come from figures/reference/calibration.json.

constexpr const char* kPublishedPreset = "published";

/// Of what the cluster is made. Empty or zero: as the experiment was published.
struct ClusterFlags {
  std::vector<std::int64_t> gpus;  // in total
  std::int64_t gpus_per_node = 0;
  std::string gpu;        // see known_gpus()
  std::string precision;  // of matrix products, see known_precisions()
  std::string link;       // inside a node, see known_links()
  std::string between;    // between nodes
  double link_gb_per_s = 0, between_gb_per_s = 0, link_latency_us = -1;
  std::vector<std::int64_t> shape;  // d_model, d_ff, layers, heads of a transformer
  std::string calibration;
};

/// The subcommand "published", with the flags of a machine, --calibration, --impl and --output.
CLI::App& add_published(CLI::App& line, BenchmarkOptions& options, ClusterFlags& flags, int argc,
                        char** argv);

/// The constants of that experiment, from --calibration.
Calibration fitted_for(const ClusterFlags& flags, const std::string& experiment);

/// --gpus of a program that runs one world; `published` if it was not given. Throws c10::ValueError
/// for several.
std::int64_t single_world(const ClusterFlags& flags, std::int64_t published);

/// What an experiment says of its hardware, after the flags.
struct PublishedHardware {
  cluster::Device gpu;
  cluster::Topology topology;
  double slowdown_beside_communication = 1, slowdown_beside_computing = 1;
  std::int64_t kernel_ns_beside_communication = 0;
  /// Of the operators that a synchronizer launches; 0: of the GPU's memory.
  double copy_bytes_per_second = 0;
  std::int64_t launch_queue = 0;
  Pace pace;
};

/// Replaces what the flags choose: a GPU or a link brings how NCCL goes about it there.
void apply(const ClusterFlags& flags, PublishedHardware& hardware);

/// The flags --gpus, --gpus-per-node, --gpu, --precision, --link, --link-between, --link-gb-per-s,
/// --between-gb-per-s, --link-latency-us.
void add_machine_flags(CLI::App& line, ClusterFlags& flags);

/// The times of one step of a variant (see all_variants()): what a rank does, if all ranks do the
/// same. The library of its stage must be loaded, see variants_on_cluster().
cluster::StepTimes simulate_step(const std::string& variant, const ProfiledModel& model,
                                 const PublishedHardware& hardware, std::int64_t gpus,
                                 const VariantOptions& options = {});

/// The flag --shape.
void add_shape_flag(CLI::App& line, ClusterFlags& flags);

/// --shape, or the shape of the model of that name. Throws c10::ValueError for a --shape that is not
/// four positive numbers.
TransformerShape shape_of(const ClusterFlags& flags, const std::string& model);

/// By how much computing takes longer beside NCCL over NVLink: it runs a block for each channel, on a
/// multiprocessor of its own, and takes 12 to 24 of them on such machines (src/graph/connect.cc
/// doubles the rings that it finds); assumed are 16.
double slowdown_by_nvlink(const cluster::Device& gpu);

/// The exit code of `body`: 0, or after a message kUnfinished for a stub, else 1.
int run_on_cluster(const std::function<void()>& body);

/// A Run filled in from `options`, on `gpus` GPUs of the cluster.
Run to_cluster_run(const BenchmarkOptions& options, const std::string& program, std::int64_t gpus);

/// What a result stores of the cluster.
Parameters describe(const PublishedHardware& hardware);

}  // namespace ddp
