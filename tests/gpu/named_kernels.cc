#include "tests/gpu/named_kernels.h"

#include "base/format.h"
#include "kernels/operation.h"
#include "update/builtin.h"
#include "update/op_names.h"

namespace tkv::test {

GpuCode CodeFor(const Program* program, const JobForm& form) {
  float master = 0;
  const std::vector<const void*> sources(form.sources);
  std::vector<TileJob::Output> outputs;
  outputs.reserve(form.outputs.size());
  for (const DType dtype : form.outputs) outputs.push_back({nullptr, dtype});
  TileJob job;
  job.dtype = form.dtype;
  job.sources = sources;
  job.outputs = outputs;
  if (program == nullptr) return GpuCodeOf(job);
  const std::vector<void*> states(program->states().size());
  const CompiledUpdate update = CompileUpdate(*program, form.dtype);
  job.update = &update;
  job.states = states;
  if (form.has_master) job.master = &master;
  return GpuCodeOf(job);
}

Program EveryOperation(DType dtype) {
  std::string text = "program every\nparam p 3\nstate s\nx0 = add sum value\n";
  int last = 0;
  for (const NamedOp& named : kNamedOps) {
    const bool is_of_floats = named.op >= kernels::Op::kDiv;
    if (kernels::IsOfScalarsOnly(named.op) || (is_of_floats && !IsFloat(dtype))) continue;
    const char* const operands[] = {"", " s", " p s"};  // after the last result
    text += Format("x{} = {} x{}{}\n", last + 1, named.name, last,
                   operands[kernels::Arity(named.op) - 1]);
    text += Format("x{} = add x{} x{}\n", last + 2, last + 1, last);
    last += 2;
  }
  text += Format("value <- x{}\ns <- x{}\n", last, last - 1);
  return Program::Parse(text);
}

std::vector<NamedKernel> NamedKernels() {
  std::vector<NamedKernel> kernels;
  for (const char* optimizer : {"sgd", "momentum", "adam"}) {
    const Program program = BuiltinProgram(optimizer);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const size_t sources : {1, 4, 8}) {
        kernels.push_back({Format("{}-{}-{}", optimizer, Name(dtype), sources),
                           CodeFor(&program, {dtype, sources, false, {dtype}}), true});
      }
    }
  }
  const Program adam = BuiltinProgram("adam");
  kernels.push_back({"adam-bfloat16-8-master-8-outputs",
                     CodeFor(&adam, {DType::kBF16, 8, true, std::vector(8, DType::kBF16)}), true});
  for (const DType dtype : kArithmeticTypes) {
    const Program every = EveryOperation(dtype);
    std::vector<DType> outputs = {dtype};
    if (IsFloat(dtype)) outputs = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
    const bool has_master = ComputeType(dtype) != dtype;
    kernels.push_back(
        {Format("every-{}", Name(dtype)), CodeFor(&every, {dtype, 12, has_master, outputs})});
  }
  return kernels;
}

}  // namespace tkv::test
