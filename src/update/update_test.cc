// Tests the evaluator and the tile driver: programs on tiles, jobs on several cores.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <random>
#include <thread>

#include "base/format.h"
#include "tests/arrays.h"
#include "update/builtin.h"
#include "update/parallel.h"
#include "update/program_body.h"
#include "update/tile_driver.h"

namespace tkv {
namespace {

using test::SameBytes;
using test::Values;

NDArray Random(int64_t count, DType dtype, uint64_t seed) {
  std::mt19937_64 random(seed);
  const NDArray array = NDArray::Empty({count}, DType::kF64);
  for (int64_t i = 0; i < count; ++i) {
    static_cast<double*>(array.data())[i] = static_cast<double>(random() % 2001) / 512 - 2;
  }
  return dtype == DType::kF64 ? array : ConvertFloat(array, dtype);
}

// Runs `rounds` updates of one key with the fused kernel, if any, or the interpreter.
struct UpdatedKey {
  UpdatedKey(const Program& program, const std::vector<double>& params, DType dtype, bool fused,
             int rounds, int threads = 1, int64_t count = 5001)
      : value(Random(count, dtype, 1)) {
    CompiledUpdate update = CompileUpdate(program, dtype);
    if (!fused) update.fused = kernels::Fused::kNone;
    std::vector<void*> pointers;
    for (size_t i = 0; i < program.states().size(); ++i) {
      states.push_back(NDArray::Zeros({count}, ComputeType(dtype)));
      pointers.push_back(states.back().data());
    }
    for (const Program::ScalarState& scalar : program.scalar_states()) {
      states.push_back(test::Full({1}, scalar.initial, DType::kF64));
      pointers.push_back(states.back().data());
    }
    const NDArray grads[] = {Random(count, dtype, 2), Random(count, dtype, 3)};
    const void* sources[] = {grads[0].data(), grads[1].data()};
    for (int t = 1; t <= rounds; ++t) {
      UpdateScalars scalars = BindScalars(update, params, pointers, t, 1);
      TileJob job;
      job.dtype = dtype;
      job.count = static_cast<size_t>(count);
      job.sources = sources;
      job.value = value.data();
      job.update = &update;
      job.scalars = &scalars;
      job.states = pointers;
      RunJobs({&job, 1}, threads);
      KeepScalars(scalars, pointers);
    }
  }
  NDArray value;
  std::vector<NDArray> states;
};

TEST(Evaluator, EveryFusedKernelEqualsItsProgramBitForBit) {
  const std::map<std::string, std::vector<double>> params = {
      {"sgd", {0.1, 0.01, 0.5, 1.5}},
      {"momentum", {0.1, 0.01, 0.5, 1.5, 0.9}},
      {"adam", {0.1, 0.01, 0.5, 1.5, 0.9, 0.999, 1e-8}},
      {"adamw", {0.1, 0.01, 0.5, 1.5, 0.9, 0.999, 1e-8}},
      {"adagrad", {0.1, 0.01, 0.5, 1.5, 1e-7}}};
  for (const auto& [name, values] : params) {
    for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
      const Program program = BuiltinProgram(name);
      ASSERT_NE(program.body().fused, kernels::Fused::kNone) << name;
      const UpdatedKey fused(program, values, dtype, true, 3);
      const UpdatedKey interpreted(program, values, dtype, false, 3);
      EXPECT_TRUE(SameBytes(fused.value, interpreted.value)) << name << Name(dtype);
      for (size_t i = 0; i < fused.states.size(); ++i) {
        EXPECT_TRUE(SameBytes(fused.states[i], interpreted.states[i])) << name << Name(dtype);
      }
      EXPECT_FALSE(SameBytes(fused.value, Random(5001, dtype, 1))) << "nothing happened";
    }
  }
}

// Returns a tile of ordinary and special numbers: NaN, infinities, zeros, denormals and extremes.
template <typename T>
std::vector<T> OddNumbers(uint64_t seed) {
  using Limits = std::numeric_limits<T>;
  const T odd[] = {Limits::quiet_NaN(),
                   Limits::infinity(),
                   -Limits::infinity(),
                   T{0},
                   -T{0},
                   Limits::denorm_min(),
                   -Limits::denorm_min(),
                   Limits::max(),
                   Limits::lowest()};
  std::mt19937_64 random(seed);
  std::vector<T> numbers(kTileElements);
  for (T& number : numbers) {
    number = random() % 4 == 0 ? odd[random() % std::size(odd)]
                               : static_cast<T>(static_cast<double>(random() % 2001) / 512 - 2);
  }
  return numbers;
}

template <typename T>
std::vector<std::vector<T>> OutputsOf(const TileCode& code, const Program& program,
                                      std::span<const double> scalars) {
  const size_t count = program.states().size() + 1;
  std::vector<std::vector<T>> arrays;  // the sum, the value, the states
  for (size_t i = 0; i <= count; ++i) arrays.push_back(OddNumbers<T>(i));
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (auto& array : arrays) inputs.push_back(array.data());
  for (size_t i = 1; i <= count; ++i) outputs.push_back(arrays[i].data());
  std::vector<std::byte> scratch(code.scratch_bytes(kTileElements));
  RunTile(code, RoundScalars(scalars, code.compute).data(), inputs.data(), outputs.data(),
          scratch.data(), kTileElements);
  return arrays;
}

template <typename T>
size_t CheckShorter(const std::string& name, DType dtype) {
  const Program program = BuiltinProgram(name);
  std::vector<double> params;
  for (const Program::Param& param : program.params()) params.push_back(param.value);
  std::vector<double> scalars(program.body().scalars.size());
  EvaluateScalars(program.body(), params.data(), nullptr, 3, 2, scalars.data());
  const CompiledUpdate update = CompileUpdate(program, dtype);
  const TileCode* const shorter = update.shorter->For(scalars);
  if (shorter == nullptr) return 0;
  EXPECT_LT(shorter->steps.size(), update.code.steps.size()) << name;
  const auto whole = OutputsOf<T>(update.code, program, scalars);
  const auto rest = OutputsOf<T>(*shorter, program, scalars);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(std::memcmp(whole[i].data(), rest[i].data(), kTileElements * sizeof(T)), 0)
        << name << " array " << i;
  }
  return update.code.steps.size() - shorter->steps.size();
}

TEST(Evaluator, LeavingOutWhatChangesNothingKeepsEveryBit) {
  size_t left_out = 0;
  for (const std::string& name : BuiltinOptimizers()) {
    left_out += CheckShorter<float>(name, DType::kF32) + CheckShorter<double>(name, DType::kF64);
  }
  EXPECT_GE(left_out, 60U) << "three steps of ten optimizers, in two types";
  // If the scalar is the second operand, a minimum turns NaN into infinity; and -0 + 0 is 0.
  const Program same = Program::Parse(
      "program same\nparam none inf\nparam zero 0\na = min value none\nb = add a zero\n"
      "value <- b\n");
  EXPECT_TRUE(FindIdentities(same.body()).empty());
}

// A learning-rate schedule is scalar code before the code of an optimizer.
TEST(Evaluator, AComputedHyperparameterKeepsTheFusedKernel) {
  const Program momentum = BuiltinProgram("momentum");
  std::string text = momentum.ToText();
  const std::string param = "param learning_rate 0.01\n";
  text.erase(text.find(param), param.size());
  const std::string_view state = "state mom\n";
  std::string scheduled = text;
  scheduled.insert(text.find(state) + state.size(), "learning_rate = div 0.5 t\n");
  const Program program = Program::Parse(scheduled);
  EXPECT_EQ(program.body().fused, kernels::Fused::kMomentum);
  const std::vector<double> params = {0.01, 0.5, 1.5, 0.9};
  const UpdatedKey fused(program, params, DType::kF32, true, 3);
  const UpdatedKey interpreted(program, params, DType::kF32, false, 3);
  EXPECT_TRUE(SameBytes(fused.value, interpreted.value));
  const UpdatedKey constant(momentum, {0.5, 0.01, 0.5, 1.5, 0.9}, DType::kF32, true, 1);
  const UpdatedKey first(program, params, DType::kF32, true, 1);
  EXPECT_TRUE(SameBytes(first.value, constant.value)) << "1 / t is 1 in the first round";
  EXPECT_FALSE(SameBytes(fused.value, first.value));
}

// Names, comments and the order of scalars do not matter.
TEST(Evaluator, TheSameCodeUnderOtherNamesHasTheFusedKernel) {
  const Program program = Program::Parse(
      "program mine\n"
      "param rate 0.5\nparam bound 2\nparam decay 0.25\nparam keep 0.9\nstate velocity\n"
      "lowest = neg bound\n"
      "a = mul sum 0.5\nb = min bound a\nc = max lowest b\nd = mul value decay\ne = add c d\n"
      "f = mul e rate\ng = mul velocity keep\nh = sub g f\ni = add value h\n"
      "velocity <- h\nvalue <- i\n");
  EXPECT_EQ(program.body().fused, kernels::Fused::kMomentum);
  const std::vector<double> params = {0.5, 2, 0.25, 0.9};
  const UpdatedKey fused(program, params, DType::kF32, true, 3);
  const UpdatedKey interpreted(program, params, DType::kF32, false, 3);
  EXPECT_TRUE(SameBytes(fused.value, interpreted.value));
  EXPECT_TRUE(SameBytes(fused.states[0], interpreted.states[0]));
}

// Code with an optimizer's names but another meaning is not fused.
TEST(Evaluator, OnlyTheSameCodeOnScalarsAndTheSameStatesIsFused) {
  const std::string text = BuiltinProgram("sgd").ToText();
  const std::string param = "param wd 0\n";
  std::string of_array = text;
  of_array.erase(of_array.find(param), param.size());
  of_array.insert(of_array.find("minus = "), "wd = mul value 2\n");
  EXPECT_EQ(Program::Parse(of_array).body().fused, kernels::Fused::kNone);
  std::string other_state = text;
  other_state.insert(other_state.find("minus = "), "state more\n");
  EXPECT_EQ(Program::Parse(other_state).body().fused, kernels::Fused::kNone);
  std::string other_bound = text;
  other_bound.replace(other_bound.find("minus = neg clip_gradient"), 25, "minus = neg wd");
  EXPECT_EQ(Program::Parse(other_bound).body().fused, kernels::Fused::kNone);
  std::string two_rates = text;  // the pattern has one scalar where this program has two
  two_rates.replace(two_rates.find("decay = mul value wd"), 20, "decay = mul value rescale_grad");
  EXPECT_EQ(Program::Parse(two_rates).body().fused, kernels::Fused::kSgd) << "wd is rescale_grad";
  std::string other_store = BuiltinProgram("momentum").ToText();
  other_store.replace(other_store.find("mom <- m\n"), 9, "mom <- step\n");
  EXPECT_EQ(Program::Parse(other_store).body().fused, kernels::Fused::kNone);
  EXPECT_EQ(Program::Parse(text + "extra = add value 1\n").body().fused, kernels::Fused::kNone);
  EXPECT_EQ(Program::Parse(text).body().fused, kernels::Fused::kSgd);
}

// A scalar state starts at its initial value, and an update reads the value from before the update.
TEST(Evaluator, ScalarStatesGoFromUpdateToUpdate) {
  const Program program = Program::Parse(
      "program p\nscalar product 1\nstate s\nscalar kept 5\n"
      "next = mul product 2\nstep = mul sum next\nw = add value step\nproduct <- next\n"
      "value <- w\n");
  const std::vector<double> params;
  const UpdatedKey key(program, params, DType::kF32, true, 3, 1, 4);
  const UpdatedKey once(program, params, DType::kF32, true, 1, 1, 4);
  EXPECT_EQ(Values<double>(key.states[1]), std::vector<double>{8});
  EXPECT_EQ(Values<double>(key.states[2]), std::vector<double>{5});
  const auto start = Values(Random(4, DType::kF32, 1));
  const auto first = Values(once.value);
  const auto third = Values(key.value);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(third[i] - start[i], (first[i] - start[i]) * (2 + 4 + 8) / 2);
  }
}

// The norms of the value, of the sum, and of a result that depends on a norm: three passes before
// the stores.
constexpr std::string_view kNorms =
    "program norms\nstate s\nscalar last 7\nvv = mul value value\na = reduce_sum vv\nra = sqrt a\n"
    "scaled = mul sum ra\nb = reduce_sum scaled\nmoved = sub scaled b\nc = reduce_sum moved\n"
    "unused = div moved 0\nd = reduce_sum s\nw = sub value c\nkept = add s d\nmore = add kept 1\n"
    "s <- more\nlast <- c\nvalue <- w\n";

TEST(Evaluator, ReductionsAreFoundBeforeAnythingIsStored) {
  const Program program = Program::Parse(kNorms);
  EXPECT_EQ(program.body().pass_count(), 3);
  EXPECT_TRUE(NeedsWholeValue(program));
  const CompiledUpdate update = CompileUpdate(program, DType::kF64);
  std::vector<double> value = {3, 4, 0}, sum = {1, 2, 3}, s = {1, 1, 1};
  double last = 7;
  const void* sources[] = {sum.data()};
  void* states[] = {s.data(), &last};
  UpdateScalars scalars = BindScalars(update, {}, states, 1, 1);
  TileJob job{.dtype = DType::kF64,
              .count = 3,
              .sources = sources,
              .value = value.data(),
              .update = &update,
              .scalars = &scalars,
              .states = states};
  RunJobs({&job, 1}, 1);
  EXPECT_EQ(last, 7) << "kept by who runs the job";
  KeepScalars(scalars, states);
  // ra = 5, scaled = {5, 10, 15}, b = 30, moved = {-25, -20, -15}, c = -60.
  EXPECT_EQ(value, (std::vector<double>{63, 64, 60}));
  EXPECT_EQ(s, (std::vector<double>{5, 5, 5}));
  EXPECT_EQ(last, -60);
}

TEST(Evaluator, ReductionsHaveTheSameBitsOnAnyNumberOfThreads) {
  const std::vector<double> params = {0.1, 0.01, 0.5, 1.5, 0.9, 0.999, 1e-6, 0, INFINITY, 1};
  for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    const Program program = BuiltinProgram("lamb");
    const UpdatedKey one(program, params, dtype, true, 2, 1, 700001);
    const UpdatedKey three(program, params, dtype, true, 2, 3, 700001);
    EXPECT_TRUE(SameBytes(one.value, three.value)) << Name(dtype);
    EXPECT_FALSE(SameBytes(one.value, Random(700001, dtype, 1))) << "nothing happened";
  }
}

TEST(Evaluator, IntegersHaveNoReductions) {
  const Program program =
      Program::Parse("program p\na = reduce_sum sum\nx = neg a\nvalue <- sum\n");
  EXPECT_FAILS(Code::kInvalidArgument, CompileUpdate(program, DType::kI32));
  CompileUpdate(program, DType::kF16);
}

TEST(Evaluator, AnIntegerKeyIsRefusedWithItsDTypeAndAWayOut) {
  const std::string remedy =
      "; optimizers update floating-point keys: leave this key out, or give it a store without an "
      "optimizer";
  const Program scales = Program::Parse(
      "program scales\nparam lr 0.1\nmoved = mul sum lr\nnew = sub value moved\nvalue <- new\n");
  const CompiledUpdate update = CompileUpdate(scales, DType::kI64);
  const Program roots = Program::Parse("program roots\nroot = sqrt sum\nvalue <- root\n");
  EXPECT_EQ(test::FailureOf([&] { BindScalars(update, std::vector{0.1}, {}, 1, 1); }).message,
            "program scales does not update int64 keys (scalar 0.1: an integer array of 8 bytes "
            "cannot hold it)" +
                remedy);
  EXPECT_EQ(test::FailureOf([&] { CompileUpdate(roots, DType::kI32); }).message,
            "program roots does not update int32 keys (sqrt: int32 arrays do not have this "
            "operation)" +
                remedy);
  EXPECT_EQ(test::FailureOf([&] { CompileUpdate(roots, DType::kBool); }).message,
            "program roots does not update bool keys (bool arrays have no arithmetic)" + remedy);
  EXPECT_EQ(BindScalars(update, std::vector{3.0}, {}, 1, 1).code, &update.code);
}

TEST(Evaluator, ThreadsDoNotChangeBits) {
  const Program program = BuiltinProgram("adam");
  const std::vector<double> params = {0.1, 0.01, 0.5, 1.5, 0.9, 0.999, 1e-8};
  const UpdatedKey one(program, params, DType::kF32, true, 2, 1, 300000);
  const UpdatedKey two(program, params, DType::kF32, true, 2, 2, 300000);
  EXPECT_TRUE(SameBytes(one.value, two.value));
}

TEST(Evaluator, TheFirstStepsOfAdamAreThoseOfItsPaper) {
  // With a constant gradient each step is lr * g / (|g| + eps'): the value falls by lr a round.
  const Program program = BuiltinProgram("adam");
  const CompiledUpdate update = CompileUpdate(program, DType::kF64);
  double value = 1;
  double grad = 3;
  double mean = 0;
  double var = 0;
  const void* sources[] = {&grad};
  void* states[] = {&mean, &var};
  for (int t = 1; t <= 5; ++t) {
    UpdateScalars scalars =
        BindScalars(update, std::vector<double>{0.1, 0, 1, INFINITY, 0.9, 0.999, 0}, {}, t, 1);
    TileJob job{.dtype = DType::kF64,
                .count = 1,
                .sources = sources,
                .value = &value,
                .update = &update,
                .scalars = &scalars,
                .states = states};
    RunJobs({&job, 1}, 1);
    EXPECT_NEAR(value, 1 - 0.1 * t, 1e-12);
  }
}

// Swaps, shifts and reuses the value and the states: the registers must not be confused.
TEST(Evaluator, StoresSeeTheOldContents) {
  const Program program = Program::Parse(
      "program rotate\nstate a\nstate b\nx = add value sum\ny = mul a 2\nz = add y b\n"
      "value <- a\na <- b\nb <- x\n");
  const CompiledUpdate update = CompileUpdate(program, DType::kF32);
  float value = 1, a = 10, b = 100, sum = 5;
  const void* sources[] = {&sum};
  void* states[] = {&a, &b};
  UpdateScalars scalars = BindScalars(update, {}, {}, 1, 1);
  TileJob job{.dtype = DType::kF32,
              .count = 1,
              .sources = sources,
              .value = &value,
              .update = &update,
              .scalars = &scalars,
              .states = states};
  RunJobs({&job, 1}, 1);
  EXPECT_EQ(value, 10);
  EXPECT_EQ(a, 100);
  EXPECT_EQ(b, 6);
}

// Compares random programs with a direct interpretation in double, because register allocation is
// error-prone.
TEST(Evaluator, RandomProgramsEqualADirectInterpretation) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text = "program r\nstate s0\nstate s1\n";
    std::vector<std::string> names = {"sum", "value", "s0", "s1"};
    std::map<std::string, double> values = {{"sum", 3}, {"value", -2}, {"s0", 7}, {"s1", 0.5}};
    const size_t length = 1 + random() % 12;
    for (size_t i = 0; i < length; ++i) {
      const std::string name = Format("x{}", i);
      const std::string left = names[random() % names.size()];
      const std::string right = names[random() % names.size()];
      const char* ops[] = {"add", "sub", "max", "min", "neg", "lt"};
      const std::string op = ops[random() % 6];
      text += op == "neg" ? Format("{} = neg {}\n", name, left)
                          : Format("{} = {} {} {}\n", name, op, left, right);
      const double l = values[left], r = values[right];
      values[name] = op == "add"   ? l + r
                     : op == "sub" ? l - r
                     : op == "max" ? std::max(l, r)
                     : op == "min" ? std::min(l, r)
                     : op == "neg" ? -l
                                   : static_cast<double>(l < r);
      names.push_back(name);
    }
    std::string stored[3];
    const char* targets[] = {"value", "s0", "s1"};
    for (int i = 0; i < 3; ++i) {
      if (i > 0 && random() % 3 == 0) continue;
      stored[i] = names[random() % names.size()];
      text += Format("{} <- {}\n", targets[i], stored[i]);
    }
    const CompiledUpdate update = CompileUpdate(Program::Parse(text), DType::kF64);
    double memory[3] = {-2, 7, 0.5};
    double sum = 3;
    const void* sources[] = {&sum};
    void* states[] = {&memory[1], &memory[2]};
    UpdateScalars scalars = BindScalars(update, {}, {}, 1, 1);
    TileJob job{.dtype = DType::kF64,
                .count = 1,
                .sources = sources,
                .value = &memory[0],
                .update = &update,
                .scalars = &scalars,
                .states = states};
    RunJobs({&job, 1}, 1);
    for (int i = 0; i < 3; ++i) {
      const double expected = stored[i].empty() ? std::array{-2.0, 7.0, 0.5}[static_cast<size_t>(i)]
                                                : values[stored[i]];
      ASSERT_EQ(memory[i], expected) << text << targets[i];
    }
  }
}

TEST(Evaluator, IntegersHaveNoDivisionAndNoFractions) {
  EXPECT_FAILS(Code::kInvalidArgument, CompileUpdate(BuiltinProgram("adam"), DType::kI32));
  EXPECT_FAILS(Code::kInvalidArgument, CompileUpdate(BuiltinProgram("sgd"), DType::kBool));
  const CompiledUpdate update = CompileUpdate(BuiltinProgram("test"), DType::kI32);
  EXPECT_FAILS(Code::kInvalidArgument, BindScalars(update, std::vector<double>{0.5}, {}, 1, 1));
  EXPECT_FAILS(Code::kInvalidArgument, BindScalars(update, std::vector<double>{3e9}, {}, 1, 1));
  BindScalars(update, std::vector<double>{-7}, {}, 1, 1);
}

TEST(TileDriver, ManySourcesManyJobsAndTwoThreadsGiveTheSumOfEach) {
  constexpr int kJobs = 50;
  std::vector<NDArray> sources, values, outs;
  std::vector<std::vector<const void*>> pointers(kJobs);
  std::vector<TileJob::Output> outputs;
  std::vector<TileJob> jobs(kJobs);
  outputs.reserve(kJobs);
  for (int j = 0; j < kJobs; ++j) {
    const int64_t count = 1 + j * 997;
    for (int k = 0; k < 20; ++k) {
      sources.push_back(test::Full({count}, j + k));
      pointers[static_cast<size_t>(j)].push_back(sources.back().data());
    }
    values.push_back(test::Full({count}, -1));
    outs.push_back(NDArray::Empty({count}, DType::kF64));
    outputs.push_back({outs.back().data(), DType::kF64});
    TileJob& job = jobs[static_cast<size_t>(j)];
    job.count = static_cast<size_t>(count);
    job.sources = pointers[static_cast<size_t>(j)];
    job.value = values.back().data();
    job.outputs = {&outputs.back(), 1};
  }
  RunJobs(jobs, 2);
  for (int j = 0; j < kJobs; ++j) {
    const double expected = 20 * j + 190;
    EXPECT_TRUE(SameBytes(values[static_cast<size_t>(j)], test::Full({1 + j * 997}, expected)));
    EXPECT_TRUE(
        SameBytes(outs[static_cast<size_t>(j)], test::Full({1 + j * 997}, expected, DType::kF64)));
  }
}

TEST(TileDriver, HalfSumsAccumulateInF32AndRoundOnce) {
  // 2048 + 1 is no float16; four of them added one by one in float16 would stay 2048.
  std::vector<NDArray> values = {test::Full({3}, 2048, DType::kF16)};
  for (int i = 0; i < 4; ++i) values.push_back(test::Full({3}, 1, DType::kF16));
  std::vector<const void*> sources;
  for (const NDArray& value : values) sources.push_back(value.data());
  const NDArray stored = NDArray::Empty({3}, DType::kF16);
  TileJob job{.dtype = DType::kF16, .count = 3, .sources = sources, .value = stored.data()};
  RunJobs({&job, 1}, 1);
  EXPECT_TRUE(SameBytes(stored, test::Full({3}, 2052, DType::kF16)));
}

TEST(TileDriver, AMasterKeepsWhatSixteenBitsLose) {
  const Program program = BuiltinProgram("test");
  const CompiledUpdate update = CompileUpdate(program, DType::kF16);
  const NDArray grad = test::Full({1}, 1, DType::kF16);
  const NDArray value = test::Full({1}, 2048, DType::kF16);
  float master = 2048;
  const void* sources[] = {grad.data()};
  UpdateScalars scalars = BindScalars(update, std::vector<double>{0.25}, {}, 1, 1);
  for (int i = 0; i < 8; ++i) {
    TileJob job{.dtype = DType::kF16,
                .count = 1,
                .sources = sources,
                .value = value.data(),
                .master = &master,
                .update = &update,
                .scalars = &scalars};
    RunJobs({&job, 1}, 1);
  }
  EXPECT_EQ(master, 2050);
  EXPECT_TRUE(SameBytes(value, test::Full({1}, 2050, DType::kF16)));
}

TEST(ParallelFor, EveryIndexOnceAndSlotsBelowTheThreads) {
  std::vector<std::atomic<int>> seen(10007);
  std::atomic<size_t> slot_max{0};
  ParallelFor(2, seen.size(), 10, [&](size_t slot, size_t begin, size_t end) {
    slot_max = std::max(slot_max.load(), slot);
    for (size_t i = begin; i < end; ++i) ++seen[i];
  });
  for (const auto& count : seen) ASSERT_EQ(count, 1);
  EXPECT_LT(slot_max, 2U);
}

// The slot that has the first index stays busy until every other index is done.
TEST(ParallelFor, AnIdleSlotTakesWhatABusyOneHasLeft) {
  constexpr size_t kCount = 100;
  if (ThreadsFor(0) < 2) GTEST_SKIP() << "one thread runs all";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::atomic<size_t> others = 0;
  ParallelFor(2, kCount, 1, [&](size_t, size_t begin, size_t end) {
    if (begin > 0) {
      others += end - begin;
      return;
    }
    while (others < kCount - 1 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(others, kCount - 1);
}

TEST(ParallelFor, ExceptionsReachTheCaller) {
  EXPECT_FAILS(Code::kInternal, ParallelFor(2, 1000, 1, [](size_t, size_t, size_t end) {
                 if (end > 500) throw Error(Code::kInternal, "x");
               }));
}

// A pending operation that is done as soon as a caller waits for it.
class EndsWhenWaitedFor final : public Pending {
 public:
  bool done() const noexcept override { return done_; }
  void Wait(std::chrono::nanoseconds) override { done_ = true; }

 private:
  bool done_ = false;
};

TEST(ApplyUpdate, WaitsForTheWriterOfTheGradientAndTheReadersOfTheWeight) {
  const NDArray grad = test::Floats({1, 2});
  const NDArray weight = test::Floats({3, 4});
  const auto writer = std::make_shared<EndsWhenWaitedFor>();
  const auto reader = std::make_shared<EndsWhenWaitedFor>();
  grad.storage()->AddWriter(writer);
  ASSERT_TRUE(weight.storage()->AddReader(reader));
  ApplyUpdate(*Optimizer::Create("sgd"), "w", 1, grad, weight, {}, NDArray());
  EXPECT_TRUE(writer->done());
  EXPECT_TRUE(reader->done());
}

TEST(ApplyUpdate, AGradientThatOverlapsTheWeightElsewhereIsReadBeforeItIsWritten) {
  const NDArray all = test::Full({10000}, 1);
  ApplyUpdate(*Optimizer::Create("test"), "w", 1, all.Slice(0, 9999), all.Slice(1, 10000), {}, {});
  EXPECT_TRUE(test::SameBytes(all.Slice(1, 10000).Copy(), test::Full({9999}, 2)));
}

TEST(ApplyUpdate, WhatIsWrittenMayNotOverlapAndIsLeftAsItWas) {
  const NDArray all = test::Full({300}, 1);
  const NDArray grad = test::Full({100}, 1);
  const NDArray weight = all.Slice(0, 100), beside = all.Slice(100, 200);
  const auto momentum = Optimizer::Create("momentum");
  const auto adam = Optimizer::Create("adam");
  const auto states_of = [](auto... arrays) { return std::vector<NDArray>{arrays...}; };
  EXPECT_FAILS(Code::kInvalidArgument,
               ApplyUpdate(*momentum, "w", 1, grad, weight, states_of(weight), {}));
  EXPECT_FAILS(Code::kInvalidArgument,
               ApplyUpdate(*momentum, "w", 1, grad, weight, states_of(all.Slice(99, 199)), {}));
  EXPECT_FAILS(Code::kInvalidArgument, ApplyUpdate(*adam, "w", 1, grad, weight,
                                                   states_of(beside, all.Slice(150, 250)), {}));
  const NDArray half = test::Full({100}, 1, DType::kF16);
  EXPECT_FAILS(Code::kInvalidArgument,
               ApplyUpdate(*momentum, "w", 1, half, half.Copy(), states_of(beside), beside));
  EXPECT_TRUE(test::SameBytes(all, test::Full({300}, 1)));
  ApplyUpdate(*momentum, "w", 1, grad, weight, states_of(beside), {});
  EXPECT_NE(test::Values(weight)[99], 1);
}

TEST(Optimizer, AHyperparameterIsANumberAndHasItsName) {
  const auto sgd = Optimizer::Create("sgd");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FAILS(Code::kInvalidArgument, sgd->SetParam("learning_rate", nan));
  EXPECT_FAILS(Code::kInvalidArgument, sgd->SetMultiplier("learning_rate", 3, nan));
  EXPECT_FAILS(Code::kInvalidArgument, Optimizer::Create("sgd", {{"wd", nan}}));
  EXPECT_EQ(sgd->param("learning_rate"), 0.01);
  try {
    sgd->SetParam("learningrate", 1);
    FAIL() << "there is no such hyperparameter";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "optimizer 'sgd': no hyperparameter 'learningrate'; did you mean 'learning_rate'?");
  }
}

TEST(Optimizer, ABuiltinClipsToAPositiveBoundAlone) {
  const auto updated = [](double bound) {
    const NDArray value = test::Floats({0, 0});
    const auto optimizer =
        Optimizer::Create("sgd", {{"learning_rate", 1}, {"clip_gradient", bound}});
    ApplyUpdate(*optimizer, 1, 1, test::Floats({8, -8}), value, {}, {});
    return test::Values(value);
  };
  EXPECT_EQ(updated(2), (std::vector<float>{-2, 2}));
  for (const double none : {0.0, -1.0, -5.0}) {
    EXPECT_EQ(updated(none), (std::vector<float>{-8, 8})) << none;
  }
  EXPECT_FAILS(Code::kInvalidArgument, updated(std::nan("")));
  const auto own = std::make_shared<Optimizer>(
      Program::Parse("program mine\nparam clip_gradient -1\nw = add value clip_gradient\n"
                     "value <- w\n"),
      false);
  own->SetParam("clip_gradient", -3);
  EXPECT_EQ(own->param("clip_gradient"), -3) << "what it means is the program's";
}

// A program of the largest size: every instruction is a scalar with three constants, and all params
// exist.
TEST(Update, AProgramOfTheLargestSizeRuns) {
  std::string text = "program large\n";
  for (int i = 0; i < 64; ++i) text += Format("param p{} 1\n", i);
  for (int i = 0; i < Program::kInstructionsMax - 1; ++i) {
    text += Format("s{} = select 1 2 3\n", i);
  }
  const auto optimizer =
      std::make_shared<Optimizer>(Program::Parse(text + "w = add sum s0\nvalue <- w\n"), false);
  const NDArray value = test::Floats({0, 0});
  ApplyUpdate(*optimizer, 1, 1, test::Floats({1, 2}), value, {}, {});
  EXPECT_EQ(test::Values(value), (std::vector<float>{3, 4}));
  EXPECT_FAILS(Code::kInvalidArgument,
               Program::Parse(text + "a = add sum s0\nw = add a s0\nvalue <- w\n"));
}

}  // namespace
}  // namespace tkv
