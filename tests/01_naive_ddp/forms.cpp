#include "forms.h"

#include "01_naive_ddp/naive_ddp.h"

namespace ddp::testing {

const char* to_string(Form form) { return form == Form::kFlat ? "flat" : "per-parameter"; }

MakeSynchronizer make_form(Form form) {
  return [form](const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
                const ProcessGroupPtr& group) {
    return form == Form::kFlat ? make_flat_ddp(parameters, buffers, group)
                               : make_naive_ddp(parameters, buffers, group);
  };
}

}  // namespace ddp::testing
