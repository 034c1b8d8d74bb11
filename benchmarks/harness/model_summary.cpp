#include "harness/model_summary.h"

#include <cstdio>

#include "ddp/meters/statistics.h"

namespace ddp {
namespace {

std::string shape_in_words(const at::Tensor& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.sizes()) {
    text += (text.empty() ? "" : "x") + std::to_string(size);
  }
  return text.empty() ? "scalar" : text;
}

double in_m(std::int64_t elements) { return static_cast<double>(elements) / (1 << 20); }

}  // namespace

ModelSummary summarize_model(const std::vector<NamedTensor>& parameters) {
  ModelSummary summary;
  for (const auto& [name, parameter] : parameters) {
    const std::int64_t elements = parameter.numel();
    ++summary.tensors;
    summary.total += elements;
    summary.trainable += parameter.requires_grad() ? elements : 0;
    if (elements > summary.largest_elements) {
      summary.largest = name;
      summary.largest_shape = shape_in_words(parameter);
      summary.largest_elements = elements;
    }
  }
  return summary;
}

Parameters describe(const ModelSummary& summary) {
  return {{"parameters", summary.total},
          {"trainable_parameters", summary.trainable},
          {"parameter_tensors", summary.tensors},
          {"largest_parameter", summary.largest},
          {"largest_parameter_shape", summary.largest_shape},
          {"largest_parameter_elements", summary.largest_elements}};
}

void print(const std::string& model, const ModelSummary& summary) {
  std::printf("%s\n", model.c_str());
  const auto line = [](const char* what, std::int64_t elements, const std::string& note) {
    std::printf("  %-22s%12ld = %6.2fM%s\n", what, elements, in_m(elements), note.c_str());
  };
  line("total parameters", summary.total, " in " + std::to_string(summary.tensors) + " tensors");
  line("trainable parameters", summary.trainable, "");
  line("largest parameter", summary.largest_elements,
       ", " + summary.largest + ", " + summary.largest_shape);
  std::fflush(stdout);  // before anything printed while measuring
}

}  // namespace ddp
