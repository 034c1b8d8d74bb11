#include "support/worlds.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <sstream>

#include "ddp/environment.h"

namespace ddp {
namespace {

constexpr const char* kFlag = "--world-size";

std::string in_words(const std::vector<int>& worlds) {
  std::ostringstream text;
  for (const int world : worlds) {
    text << (text.tellp() > 0 ? ", " : "") << world;
  }
  return text.str();
}

}  // namespace

std::vector<int> choose_worlds(const CLI::App& app, const BenchmarkOptions& options,
                               const std::vector<int>& preset) {
  try {
    if (const auto environment = read_launch_environment()) {
      return {environment->world_size};
    }
  } catch (const c10::Error&) {
    return {options.world_size};  // launch() says what is wrong
  }
  return app.count(kFlag) > 0 ? std::vector<int>{options.world_size} : preset;
}

void describe_worlds(CLI::App& app, const std::vector<int>& preset) {
  app.get_option(kFlag)
      ->description("Ranks of the only world to run; torchrun's, mpirun's or srun's goes before it")
      ->default_str(in_words(preset) + " one after the other");
}

int run_worlds(const BenchmarkOptions& options, const std::vector<int>& worlds,
               const std::string& stage, const RankBody& body) {
  if (worlds.size() > 1 && !options.trace.empty()) {
    std::fprintf(stderr, "--trace draws one world of ranks: choose it with %s\n", kFlag);
    return 1;
  }
  for (const int world : worlds) {
    BenchmarkOptions of_world = options;
    of_world.world_size = world;
    if (const int code = run_benchmark(of_world, stage, body)) {
      return code;
    }
  }
  return 0;
}

// The numbers lie behind it.
struct SharedNumbers::Memory {
  std::size_t count = 0;

  double* numbers() { return reinterpret_cast<double*>(this + 1); }
};

SharedNumbers::SharedNumbers(std::size_t capacity)
    : capacity_(capacity), bytes_(sizeof(Memory) + capacity * sizeof(double)) {
  void* mapping = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(mapping != MAP_FAILED, "no shared memory is left for ", capacity, " numbers");
  memory_ = new (mapping) Memory;
}

SharedNumbers::~SharedNumbers() { munmap(memory_, bytes_); }

void SharedNumbers::append(std::span<const double> numbers) {
  TORCH_CHECK(memory_->count + numbers.size() <= capacity_, "no room for ", numbers.size(),
              " more numbers beside ", memory_->count, " of ", capacity_);
  std::ranges::copy(numbers, memory_->numbers() + memory_->count);
  memory_->count += numbers.size();
}

std::span<const double> SharedNumbers::all() const { return {memory_->numbers(), memory_->count}; }

}  // namespace ddp
