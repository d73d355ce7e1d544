// Compares GPU kernels with the CPU: the same jobs must have the same bits, except for the payload
// of a NaN.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <set>

#include "base/format.h"
#include "kernels/cuda/ptx.h"
#include "kernels/operation.h"
#include "tests/arrays.h"
#include "tests/gpu/named_kernels.h"
#include "tests/gpu/ptx_interpreter.h"
#include "tests/gpu/random_program.h"
#include "tkv/optimizer.h"
#include "update/builtin.h"
#include "update/op_names.h"
#include "update/program_body.h"

namespace tkv {
namespace {

using kernels::cuda::TablePlace;
using test::Append;
using test::AppendRandom;
using test::Bytes;
using test::DeviceMemory;
using test::JobForm;
using test::LivelyParams;
using test::OneOf;
using test::PtxError;
using test::PtxKernel;
using test::Random;
using test::RandomProgram;

bool IsNaN(DType dtype, const std::byte* element) {
  double wide = 0;
  if (IsFloat(dtype)) kernels::Convert(dtype, element, DType::kF64, &wide, 1);
  return wide != wide;
}

// ------------------------------------------------------------------------------------------- keys
// An array of a key: the CPU's data, and the address of the device's copy.
Bytes TableOf(const kernels::Elementwise& code, std::span<const kernels::cuda::Entry> entries) {
  kernels::cuda::LaunchTable table(code);
  for (const auto& entry : entries) table.Add(entry);
  return table.Bytes();
}

struct Array {
  Array(DType d, size_t count, Random* random) : dtype(d) {
    for (size_t i = 0; i < count; ++i) AppendRandom(d, random, &host);
  }

  void CopyTo(DeviceMemory* memory, size_t misaligned_by) {
    device = memory->Allocate(host.size(), misaligned_by * ItemSize(dtype));
    memory->Write(device, host);
  }

  // Returns the first element that differs, or "".
  std::string DifferenceIn(const DeviceMemory& memory) const {
    const Bytes there = memory.Read(device, host.size());
    const size_t item = ItemSize(dtype);
    for (size_t at = 0; at < host.size(); at += item) {
      if (std::memcmp(&host[at], &there[at], item) == 0) continue;
      if (IsNaN(dtype, &host[at]) && IsNaN(dtype, &there[at])) continue;
      uint64_t cpu = 0, gpu = 0;
      std::memcpy(&cpu, &host[at], item);
      std::memcpy(&gpu, &there[at], item);
      return Format("{} element {}: CPU {:x}, GPU {:x}", Name(dtype), at / item, cpu, gpu);
    }
    return "";
  }

  DType dtype;
  Bytes host;
  uint64_t device = 0;
};

// A key of a launch, with all its arrays.
class Key {
 public:
  Key(const JobForm& form, const Program* program, size_t count, Random* random)
      : form_(form), count_(count), value_(form.dtype, count, random) {
    const DType compute = ComputeType(form.dtype);
    for (size_t i = 0; i < form.sources; ++i) sources_.emplace_back(form.dtype, count, random);
    for (const DType dtype : form.outputs) outputs_.emplace_back(dtype, count, random);
    if (program == nullptr) return;
    for (size_t i = 0; i < program->states().size(); ++i) {
      states_.emplace_back(compute, count, random);
    }
    if (form.has_master) master_.emplace_back(compute, count, random);
  }

  void CopyTo(DeviceMemory* memory, bool is_aligned, Random* random) {
    for (Array* array : All()) array->CopyTo(memory, is_aligned ? 0 : (*random)() % 5);
  }

  // Calls body(job); `pointer_of` gives the pointer of each array in the job.
  template <typename PointerOf, typename Body>
  auto WithJob(PointerOf pointer_of, const CompiledUpdate* update, UpdateScalars* scalars,
               Body body) {
    std::vector<const void*> sources(sources_.size());
    std::ranges::transform(sources_, sources.begin(), pointer_of);
    std::vector<void*> states(states_.size());
    std::ranges::transform(states_, states.begin(), pointer_of);
    std::vector<TileJob::Output> outputs;
    outputs.reserve(outputs_.size());
    for (Array& array : outputs_) outputs.push_back({pointer_of(array), array.dtype});
    TileJob job;
    job.dtype = form_.dtype;
    job.count = count_;
    job.sources = sources;
    job.value = pointer_of(value_);
    job.update = update;
    job.scalars = scalars;
    job.states = states;
    job.outputs = outputs;
    if (!master_.empty()) job.master = static_cast<float*>(pointer_of(master_[0]));
    return body(job);
  }

  std::vector<Array*> All() {
    std::vector<Array*> all = {&value_};
    for (auto* arrays : {&sources_, &outputs_, &states_, &master_}) {
      for (Array& array : *arrays) all.push_back(&array);
    }
    return all;
  }

 private:
  const JobForm form_;
  const size_t count_;
  Array value_;
  std::vector<Array> sources_, outputs_, states_, master_;
};

void* OnHost(Array& array) { return array.host.data(); }
void* OnDevice(Array& array) { return std::bit_cast<void*>(array.device); }

// Parameters of a launch that are not keys.
struct LaunchForm {
  std::vector<size_t> counts;  // elements of each key
  TablePlace place = TablePlace::kMemory;
  uint32_t blocks = 2;
  bool is_aligned = true;
  // Sources of key i beyond those of the form; the code has to have more than it names.
  std::vector<size_t> more_sources = {};
};

// Runs an update of these keys on both; the difference, or nothing.
std::string Difference(const JobForm& form, const Program* program,
                       const std::vector<double>& params, const LaunchForm& launch,
                       Random* random) {
  DeviceMemory memory;
  std::vector<Key> keys;
  for (size_t i = 0; i < launch.counts.size(); ++i) {
    JobForm own = form;
    if (!launch.more_sources.empty()) own.sources += launch.more_sources[i];
    keys.emplace_back(own, program, launch.counts[i], random);
    keys.back().CopyTo(&memory, launch.is_aligned, random);
  }
  std::optional<CompiledUpdate> update;
  std::vector<double> scalars;
  if (program != nullptr) {
    update = CompileUpdate(*program, form.dtype);
    scalars.resize(program->body().scalars.size());
    EvaluateScalars(program->body(), params.data(), nullptr, 3, 2, scalars.data());
  }
  const CompiledUpdate* const compiled = update ? &*update : nullptr;

  const GpuCode code = test::CodeFor(program, form);
  std::vector<kernels::cuda::Entry> entries;
  entries.reserve(keys.size());
  for (Key& key : keys) {
    entries.push_back(key.WithJob(OnDevice, compiled, nullptr, [&](const TileJob& job) {
      EXPECT_TRUE(GpuCodeOf(job).elementwise == code.elementwise) << "keys of one launch";
      return GpuEntryOf(job, GpuScalarsOf(code, scalars));
    }));
  }
  const Bytes table = TableOf(code.elementwise, entries);
  const bool is_parameter =
      launch.place == TablePlace::kParameter && table.size() <= kernels::cuda::kParameterBytesMax;
  Bytes parameter = table;
  if (!is_parameter) {
    const uint64_t address = memory.Allocate(table.size());
    memory.Write(address, table);
    parameter.clear();
    Append(address, &parameter);
  }
  const PtxKernel kernel(kernels::cuda::WritePtx(
      code.elementwise, is_parameter ? TablePlace::kParameter : TablePlace::kMemory));
  kernel.Launch(launch.blocks, parameter, &memory);

  for (size_t i = 0; i < keys.size(); ++i) {
    UpdateScalars bound;
    if (update) bound = BindScalars(*update, params, {}, 3, 2);
    keys[i].WithJob(OnHost, compiled, &bound, [](const TileJob& job) { RunJobs({&job, 1}, 1); });
    for (const Array* array : keys[i].All()) {
      const std::string found = array->DifferenceIn(memory);
      if (!found.empty()) return Format("key {}: {}", i, found);
    }
  }
  return "";
}

struct Trial {
  explicit Trial(uint64_t seed) : random(seed) {
    form.dtype = test::kArithmeticTypes[random() % std::size(test::kArithmeticTypes)];
    const uint64_t kind = random() % 16;  // 0: outputs alone, 1 and 2: assignment
    form.sources = kind == 0 ? 0 : 1 + random() % 12;
    const size_t outputs = random() % 4;
    for (size_t i = 0; i < outputs; ++i) form.outputs.push_back(OutputType());
    if (kind > 2) {
      text = RandomProgram(form.dtype, &random).text();
      form.has_master = ComputeType(form.dtype) != form.dtype && random() % 2 == 0;
    }
    const size_t keys = 1 + random() % 4;
    for (size_t i = 0; i < keys; ++i) {
      launch.counts.push_back(
          OneOf<size_t>({0, 1, 3, 255, 257, 1023, 1024, 1025, 2048, random() % 3000}, &random));
      if (form.sources > kernels::Elementwise::kSourcesMax) {
        launch.more_sources.push_back(random() % 3);
      }
    }
    launch.place = OneOf({TablePlace::kParameter, TablePlace::kMemory}, &random);
    launch.blocks = 1 + static_cast<uint32_t>(random() % 4);
    launch.is_aligned = random() % 4 != 0;
  }

  std::string Run() {
    if (text.empty()) return Difference(form, nullptr, {}, launch, &random);
    const Program program = Program::Parse(text);
    std::vector<double> params;
    for (const Program::Param& param : program.params()) params.push_back(param.value);
    return Difference(form, &program, params, launch, &random);
  }

  DType OutputType() {
    if (!IsFloat(form.dtype)) return form.dtype;
    return OneOf({DType::kF32, DType::kF64, DType::kF16, DType::kBF16}, &random);
  }

  Random random;
  JobForm form;
  LaunchForm launch;
  std::string text;
};

uint64_t Setting(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoull(text);
}

// TKV_TEST_PTX_PROGRAMS: the number of programs; TKV_TEST_PTX_SEED: the first seed.
TEST(Ptx, RandomProgramsHaveTheBitsOfTheCpu) {
  const uint64_t first = Setting("TKV_TEST_PTX_SEED", 1);
  const uint64_t count = Setting("TKV_TEST_PTX_PROGRAMS", 300);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Trial trial(seed);
    std::string found;
    try {
      found = trial.Run();
    } catch (const std::exception& error) {
      found = error.what();
    }
    ASSERT_EQ(found, "") << "seed " << seed << ", " << Name(trial.form.dtype) << ", "
                         << trial.form.sources << " sources\n"
                         << trial.text;
  }
}

// ------------------------------------------------------------------------------------- chosen ones
TEST(Ptx, EveryBuiltinOfEveryFloatHasTheBitsOfTheCpu) {
  Random random(1);
  int count = 0;
  for (const std::string& name : BuiltinOptimizers()) {
    const Program program = BuiltinProgram(name);
    if (NeedsWholeValue(program) || program.body().draw_count > 0) continue;
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
      const bool has_master = ComputeType(dtype) != dtype;
      const JobForm form{dtype, 2, has_master, {dtype, DType::kF32}};
      EXPECT_EQ(Difference(form, &program, LivelyParams(program), {.counts = {1025, 7}}, &random),
                "")
          << name << " " << Name(dtype);
      ++count;
    }
  }
  EXPECT_GE(count, 60);
}

TEST(Ptx, EveryOperationOfEveryTypeHasTheBitsOfTheCpu) {
  Random random(2);
  for (const DType dtype : test::kArithmeticTypes) {
    const Program program = test::EveryOperation(dtype);
    EXPECT_EQ(Difference({dtype, 3, false, {dtype}}, &program, {3}, {.counts = {2048}}, &random),
              "")
        << Name(dtype);
  }
}

TEST(Ptx, FourHundredKeysOfOneLaunchAreEachTheirOwn) {
  Random random(3);
  const Program program = BuiltinProgram("momentum");
  LaunchForm launch{.counts = {}, .blocks = 37};
  for (size_t i = 0; i < 400; ++i) launch.counts.push_back(i % 7 == 0 ? 0 : 1 + i * 13 % 1500);
  EXPECT_EQ(
      Difference({DType::kF32, 2, false, {}}, &program, LivelyParams(program), launch, &random),
      "");
}

TEST(Ptx, ALaunchOfEmptyKeysDoesNothing) {
  Random random(4);
  EXPECT_EQ(Difference({DType::kF32, 2, false, {}}, nullptr, {}, {.counts = {0, 0}}, &random), "");
}

TEST(Ptx, EighteenOpcodesAreUsed) {
  std::set<std::string> opcodes;
  for (const test::NamedKernel& named : test::NamedKernels()) {
    for (const TablePlace place : {TablePlace::kParameter, TablePlace::kMemory}) {
      const PtxKernel kernel(kernels::cuda::WritePtx(named.code.elementwise, place));
      for (const auto& [form, times] : kernel.forms()) {
        opcodes.insert(form.substr(0, form.find('.')));
      }
    }
  }
  EXPECT_EQ(opcodes, (std::set<std::string>{"add", "and", "bra", "cvt", "cvta", "div", "ld", "mov",
                                            "mul", "or", "ret", "selp", "setp", "shl", "shr",
                                            "sqrt", "st", "sub", "xor"}));
}

TEST(Ptx, WideAccessesAreWhereTheArraysAreAligned) {
  const Program sgd = BuiltinProgram("sgd");
  const GpuCode code = test::CodeFor(&sgd, {DType::kF32, 4, false, {DType::kF32}});
  const PtxKernel kernel(kernels::cuda::WritePtx(code.elementwise, TablePlace::kMemory));
  EXPECT_EQ(kernel.forms().at("ld.global.v4.f32"), 5) << "4 sources and the value";
  EXPECT_EQ(kernel.forms().at("st.global.v4.f32"), 2) << "the value and the output";
}

TEST(GpuJobs, AProgramThatReducesOrDrawsIsRefused) {
  for (const char* name : {"lamb", "lars", "sgld"}) {
    const Program program = BuiltinProgram(name);
    EXPECT_FAILS(Code::kUnimplemented, test::CodeFor(&program, {}));
  }
}

TEST(GpuJobs, AnIntegerHoldsEachScalarThatMeetsAnArray) {
  const Program program = BuiltinProgram("test");
  const JobForm form{DType::kI8, 1, false, {}};
  Random random(5);
  EXPECT_FAILS(Code::kInvalidArgument, Difference(form, &program, {0.5}, {.counts = {1}}, &random));
  EXPECT_EQ(Difference(form, &program, {-7}, {.counts = {1}}, &random), "");
}

TEST(LaunchTable, HasTheTilesOfTheKeysBeforeEach) {
  kernels::Elementwise code;
  code.source_count = code.pointer_count = 1;
  std::vector<kernels::cuda::Entry> entries;
  for (const size_t count : {1025, 0, 1, 1024}) entries.push_back({count, {4096}, {}, {}});
  entries[2].pointers[0] += 4;
  const Bytes table = TableOf(code, entries);
  std::array<uint32_t, 8> head;
  std::memcpy(head.data(), table.data(), sizeof(head));
  EXPECT_EQ(head, (std::array<uint32_t, 8>{4, 4, 32, 0, 0, 2, 2, 3}));
  ASSERT_EQ(table.size(), 32 + 4 * kernels::cuda::EntryBytes(code));
  for (size_t i = 0; i < entries.size(); ++i) {
    kernels::cuda::EntryHead entry;
    std::memcpy(&entry, &table[32 + i * kernels::cuda::EntryBytes(code)], sizeof(entry));
    EXPECT_EQ(entry.count, entries[i].count);
    EXPECT_EQ(entry.is_aligned, i == 2 ? 0U : 1U);
  }
}

// ------------------------------------------------------------------------------- the interpreter
// Returns the error of a kernel with these lines.  Its parameter is the address of 64 bytes, of
// which the last 4 are unwritten.
std::string FaultOf(const std::string& lines, uint32_t blocks = 1) {
  const std::string head =
      ".version 6.3\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 at)\n"
      ".maxntid 256, 1, 1\n{\n.reg .f32 %f<4>;\n.reg .b32 %r<4>;\n.reg .b64 %q<4>;\n"
      ".reg .pred %p<2>;\nld.param.u64 %q0, [at];\nmov.f32 %f0, 0f00000000;\n";
  DeviceMemory memory;
  const uint64_t address = memory.Allocate(64);
  memory.Write(address, Bytes(60));  // of which the last 4 bytes are not written
  Bytes parameter;
  Append(address, &parameter);
  try {
    PtxKernel(head + lines + "ret;\n}\n").Launch(blocks, parameter, &memory);
  } catch (const PtxError& error) {
    return error.what();
  }
  return "";
}

TEST(PtxInterpreter, RefusesWhatNoKernelNeeds) {
  EXPECT_EQ(FaultOf("add.rn.f32 %f1, %f0, %f0;\n"), "");
  for (const char* line :
       {"fma.rn.f32 %f1, %f0, %f0, %f0;", "add.f32 %f1, %f0, %f0;", "add.rz.f32 %f1, %f0, %f0;",
        "add.rn.ftz.f32 %f1, %f0, %f0;", "min.f32 %f1, %f0, %f0;", "div.approx.f32 %f1, %f0, %f0;",
        "setp.ne.f32 %p0, %f0, %f0;", "add.rn.f32 %f1, %f0, 1;", "mov.b32 %f1, %f0;",
        "mov.u32 %r0, %tid;"}) {
    EXPECT_NE(FaultOf(Format("{}\n", line)), "") << line;
  }
}

TEST(PtxInterpreter, SeesAccessesThatAGpuLeavesUndefined) {
  const std::string one_thread = "mov.u32 %r0, %tid.x;\nsetp.gt.u32 %p0, %r0, 0;\n@%p0 bra END;\n";
  const auto fault = [&](const std::string& line) {
    return FaultOf(one_thread + line + ";\nEND:\n");
  };
  EXPECT_EQ(fault("ld.global.f32 %f1, [%q0+56]"), "");
  EXPECT_NE(fault("ld.global.f32 %f1, [%q0+60]").find("nobody has written"), std::string::npos);
  EXPECT_NE(fault("ld.global.f32 %f1, [%q0+64]").find("out of the bounds"), std::string::npos);
  EXPECT_NE(fault("st.global.f32 [%q0+62], %f0").find("misaligned"), std::string::npos);
  EXPECT_NE(fault("st.global.v2.f32 [%q0+4], {%f0, %f0}").find("misaligned"), std::string::npos);
  EXPECT_NE(fault("add.rn.f32 %f1, %f2, %f0").find("a register that nobody has written"),
            std::string::npos);
}

TEST(PtxInterpreter, SeesTwoThreadsOnOneByte) {
  EXPECT_EQ(FaultOf("ld.global.f32 %f1, [%q0+0];\n"), "") << "all may read it";
  EXPECT_NE(FaultOf("st.global.f32 [%q0+0], %f0;\n").find("thread 2 writes"), std::string::npos);
  const std::string first_block_writes =
      "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nadd.u32 %r2, %r0, %r1;\n"
      "setp.gt.u32 %p0, %r2, 0;\n@%p0 bra READ;\nst.global.f32 [%q0+0], %f0;\nbra END;\n"
      "READ:\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra END;\nld.global.f32 %f1, [%q0+0];\nEND:\n";
  EXPECT_EQ(FaultOf(first_block_writes), "");
  EXPECT_NE(FaultOf(first_block_writes, 2).find("what thread 1 writes"), std::string::npos);
}

TEST(PtxInterpreter, EndsAKernelThatDoesNot) {
  EXPECT_NE(FaultOf("AGAIN:\nbra AGAIN;\n").find("does not end"), std::string::npos);
}

}  // namespace
}  // namespace tkv
