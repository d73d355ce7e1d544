// Parses random program texts.  No text may crash the parser.  An accepted program must compile or
// be refused for every dtype, and run.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tkv/error.h"
#include "update/tile_driver.h"

namespace {

void Run(const tkv::Program& program, tkv::DType dtype) {
  const tkv::CompiledUpdate update = tkv::CompileUpdate(program, dtype);
  std::vector<double> params;
  for (const auto& param : program.params()) params.push_back(param.value);
  tkv::UpdateScalars scalars = tkv::BindScalars(update, params, {}, 3, 2);
  constexpr size_t kCount = 5;
  alignas(64) double value[kCount] = {}, sum[kCount] = {}, states[16][kCount] = {};
  const void* sources[] = {sum};
  void* pointers[16];
  for (int i = 0; i < 16; ++i) pointers[i] = states[i];
  tkv::TileJob job{.dtype = dtype,
                   .count = kCount,
                   .sources = sources,
                   .value = value,
                   .update = &update,
                   .scalars = &scalars,
                   .states = {pointers, program.states().size()}};
  tkv::RunJobs({&job, 1}, 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const tkv::Program program = tkv::Program::Parse({reinterpret_cast<const char*>(data), size});
    if (tkv::Program::Parse(program.ToText()).ToText() != program.ToText()) std::abort();
    for (int dtype = 0; dtype <= static_cast<int>(tkv::kLastDType); ++dtype) {
      try {
        Run(program, static_cast<tkv::DType>(dtype));
      } catch (const tkv::Error& error) {
        if (error.code() != tkv::Code::kInvalidArgument) std::abort();
      }
    }
  } catch (const tkv::Error& error) {
    if (error.code() != tkv::Code::kInvalidArgument) std::abort();
  }
  return 0;
}
