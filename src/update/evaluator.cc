#include "update/evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "kernels/operation.h"
#include "update/op_names.h"

namespace tkv {
namespace {

using Location = TileCode::Location;

kernels::OpFunction Resolve(kernels::Op op, DType compute, kernels::ScalarMask mask) {
  const kernels::OpFunction run = kernels::ResolveOp(op, compute, mask);
  if (run == nullptr) {
    throw Fail(Code::kInvalidArgument, "{}: {} arrays do not have this operation", Name(op),
               Name(compute));
  }
  return run;
}

DType CheckedComputeType(DType dtype) {
  if (!IsArithmetic(dtype)) {
    throw Fail(Code::kInvalidArgument, "{} arrays have no arithmetic", Name(dtype));
  }
  return ComputeType(dtype);
}

// The part of a program that one run over a tile computes.
struct Part {
  std::vector<bool> runs;  // whether each instruction runs
  std::vector<StoreTo> stores;
  std::vector<uint16_t> reduced;  // arrays to be reduced
};

// Marks the instructions that the marked instructions and these arrays depend on.
void MarkNeeded(const ProgramBody& body, std::span<const uint16_t> arrays,
                std::vector<bool>* runs) {
  const auto mark = [&](uint16_t array) {
    if (array >= body.input_count()) (*runs)[array - body.input_count()] = true;
  };
  for (const uint16_t array : arrays) mark(array);
  for (size_t i = body.instructions.size(); i-- > 0;) {
    if (!(*runs)[i]) continue;
    const Instruction& instruction = body.instructions[i];
    if (instruction.is_draw) continue;
    for (int k = 0; k < kernels::Arity(instruction.op); ++k) {
      if (!instruction.operands[k].is_scalar) mark(instruction.operands[k].index);
    }
  }
}

// Assigns a register or an output to each result.  A stored result goes directly to its output if
// no later step reads the old contents.  Other results share registers, which are free after their
// last use.
class Allocator {
 public:
  Allocator(const ProgramBody& body, Part part)
      : body_(body), part_(std::move(part)), last_use_(ArrayCount(), -1) {
    for (size_t i = 0; i < body.instructions.size(); ++i) {
      if (!part_.runs[i]) continue;
      for (const Operand& operand : Operands(i)) {
        if (!operand.is_scalar) last_use_[operand.index] = static_cast<int>(i);
      }
    }
    const int end = static_cast<int>(body.instructions.size());
    locations_.resize(ArrayCount());
    for (uint16_t i = 0; i < body.input_count(); ++i) locations_[i] = {Location::Kind::kInput, i};
    for (const uint16_t array : part_.reduced) last_use_[array] = end;
    for (const StoreTo& store : part_.stores) {
      if (!TryDirect(store)) {
        copies_.push_back(store);
        last_use_[store.source] = end;
      }
    }
  }

  TileCode Run(DType compute) {
    TileCode code;
    code.compute = compute;
    for (size_t i = 0; i < body_.instructions.size(); ++i) {
      if (!part_.runs[i]) continue;
      const kernels::Op op = body_.instructions[i].op;
      TileCode::Step step;
      kernels::ScalarMask mask = 0;
      size_t position = 0;
      for (const Operand& operand : Operands(i)) {
        if (operand.is_scalar) mask |= static_cast<kernels::ScalarMask>(1U << position);
        step.operands[position++] = LocationOf(operand);
      }
      if (body_.instructions[i].is_draw) {
        step.draw = body_.instructions[i].draw;
        for (int k = 0; k < 2; ++k)
          step.operands[k] = LocationOf(body_.instructions[i].operands[k]);
      } else {
        step.run = Resolve(op, compute, mask);
      }
      for (const Operand& operand : Operands(i)) Release(operand, static_cast<int>(i));
      step.out = Claim(static_cast<uint16_t>(body_.input_count() + i), static_cast<int>(i));
      code.steps.push_back(step);
    }
    AppendCopies(&code);
    for (size_t i = 0; i < part_.reduced.size(); ++i) {
      code.steps.push_back({nullptr,
                            {locations_[part_.reduced[i]], {}, {}},
                            {Location::Kind::kReduction, static_cast<uint16_t>(i)}});
    }
    code.register_count = register_count_;
    return code;
  }

 private:
  size_t ArrayCount() const { return body_.input_count() + body_.instructions.size(); }

  std::span<const Operand> Operands(size_t instruction) const {
    const Instruction& i = body_.instructions[instruction];
    if (i.is_draw) return {};
    return {i.operands, static_cast<size_t>(kernels::Arity(i.op))};
  }

  Location LocationOf(const Operand& operand) const {
    if (operand.is_scalar) return {Location::Kind::kScalar, operand.index};
    return locations_[operand.index];
  }

  bool TryDirect(const StoreTo& store) {
    if (store.source < body_.input_count()) return false;
    const int defined = store.source - body_.input_count();
    // The output is the memory of the input `target`, so no later step or copy may read its old
    // contents.
    const bool is_read_later =
        last_use_[store.target] > defined ||
        std::any_of(part_.stores.begin(), part_.stores.end(),
                    [&](const StoreTo& s) { return s.source == store.target; });
    if (is_read_later || locations_[store.source].kind != Location::Kind::kNone) return false;
    locations_[store.source] = {Location::Kind::kOutput, static_cast<uint16_t>(store.target - 1)};
    return true;
  }

  void Release(const Operand& operand, int now) {
    if (operand.is_scalar || last_use_[operand.index] != now) return;
    Location& location = locations_[operand.index];
    if (location.kind == Location::Kind::kRegister &&
        std::find(free_.begin(), free_.end(), location.index) == free_.end()) {
      free_.push_back(location.index);
    }
  }

  Location Claim(uint16_t array, int now) {
    Location& location = locations_[array];
    if (location.kind == Location::Kind::kOutput) return location;
    if (free_.empty()) free_.push_back(register_count_++);
    location = {Location::Kind::kRegister, free_.back()};
    free_.pop_back();
    if (last_use_[array] < now) free_.push_back(location.index);  // no later step reads it
    return location;
  }

  // Outputs are the memory of inputs.  If a copy reads an input that another copy overwrites (a
  // swap of two states), every source first goes to a register.
  void AppendCopies(TileCode* code) {
    const auto is_overwritten = [&](const StoreTo& copy) {
      return copy.source < body_.input_count() && copy.source >= 1 &&
             std::any_of(
                 part_.stores.begin(), part_.stores.end(),
                 [&](const StoreTo& s) { return s.target == copy.source; });
    };
    std::vector<Location> sources;
    for (const StoreTo& copy : copies_) {
      Location source = locations_[copy.source];
      if (is_overwritten(copy)) {
        const Location saved{Location::Kind::kRegister, register_count_++};
        code->steps.push_back({nullptr, {source, {}, {}}, saved});
        source = saved;
      }
      sources.push_back(source);
    }
    for (size_t i = 0; i < copies_.size(); ++i) {
      const Location target{Location::Kind::kOutput, static_cast<uint16_t>(copies_[i].target - 1)};
      code->steps.push_back({nullptr, {sources[i], {}, {}}, target});
    }
  }

  const ProgramBody& body_;
  const Part part_;
  std::vector<int> last_use_;
  std::vector<Location> locations_;
  std::vector<StoreTo> copies_;
  std::vector<uint16_t> free_;
  uint16_t register_count_ = 0;
};

template <typename T>
void RoundTo(std::span<const double> scalars, std::byte* out) {
  for (size_t i = 0; i < scalars.size(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      // The largest T may not be a double; one above it always is.
      const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
      const double low = static_cast<double>(std::numeric_limits<T>::min());
      if (!(scalars[i] >= low && scalars[i] < above) || scalars[i] != std::floor(scalars[i])) {
        throw Fail(Code::kInvalidArgument, "scalar {}: an integer array of {} bytes cannot hold it",
                   scalars[i], sizeof(T));
      }
    }
    const T value = static_cast<T>(scalars[i]);
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

std::vector<Identity> FindIdentities(const ProgramBody& body) {
  std::vector<Identity> found;
  if (!body.reductions.empty() || body.draw_count > 0) return found;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < body.instructions.size(); ++i) {
    const Instruction& instruction = body.instructions[i];
    if (kernels::Arity(instruction.op) != 2) continue;
    const Operand& a = instruction.operands[0];
    const Operand& b = instruction.operands[1];
    if (a.is_scalar == b.is_scalar) continue;
    const auto add = [&](const Operand& array, const Operand& scalar, double value) {
      found.push_back({static_cast<uint16_t>(i), array.index, scalar.index, value});
    };
    if (instruction.op == kernels::Op::kMul) add(a.is_scalar ? b : a, a.is_scalar ? a : b, 1);
    if (instruction.op == kernels::Op::kDiv && b.is_scalar) add(a, b, 1);
    if (instruction.op == kernels::Op::kMin && a.is_scalar) add(b, a, kInfinity);
    if (instruction.op == kernels::Op::kMax && a.is_scalar) add(b, a, -kInfinity);
  }
  return found;
}

ProgramBody Without(const ProgramBody& body, std::span<const Identity> identities,
                    uint64_t left_out) {
  ProgramBody rest = body;
  rest.instructions.clear();
  std::vector<uint16_t> names(body.input_count());  // number of each array in `rest`
  std::iota(names.begin(), names.end(), uint16_t{0});
  size_t next = 0;  // the next identity
  for (size_t i = 0; i < body.instructions.size(); ++i) {
    if (next < identities.size() && identities[next].instruction == i) {
      const size_t number = next++;
      if ((left_out >> number & 1) != 0) {
        names.push_back(names[identities[number].array]);
        continue;
      }
    }
    Instruction instruction = body.instructions[i];
    for (int k = 0; k < kernels::Arity(instruction.op); ++k) {
      Operand& operand = instruction.operands[k];
      if (!operand.is_scalar) operand.index = names[operand.index];
    }
    names.push_back(static_cast<uint16_t>(rest.input_count() + rest.instructions.size()));
    rest.instructions.push_back(instruction);
  }
  for (StoreTo& store : rest.stores) store.source = names[store.source];
  return rest;
}

TileCode Compile(const ProgramBody& body, DType dtype) {
  const DType compute = CheckedComputeType(dtype);
  const Part all{std::vector<bool>(body.instructions.size(), true), body.stores, {}};
  TileCode code = Allocator(body, all).Run(compute);  // throws if the dtype lacks an operation
  if (body.draw_count > 0 && !IsFloat(compute)) {
    throw Fail(Code::kInvalidArgument, "normal: {} arrays do not have this operation",
               Name(compute));
  }
  if (body.reductions.empty()) return code;
  if (!IsFloat(compute)) {
    throw Fail(Code::kInvalidArgument, "reduce_sum: {} arrays do not have this operation",
               Name(compute));
  }
  Part storing{std::vector<bool>(body.instructions.size(), false), body.stores, {}};
  std::vector<uint16_t> stored;
  stored.reserve(body.stores.size());
  for (const StoreTo& store : body.stores) stored.push_back(store.source);
  MarkNeeded(body, stored, &storing.runs);
  return Allocator(body, std::move(storing)).Run(compute);
}

std::vector<TileCode> CompilePasses(const ProgramBody& body, DType dtype) {
  std::vector<TileCode> passes;
  for (uint16_t number = 0; number < body.pass_count(); ++number) {
    Part pass{std::vector<bool>(body.instructions.size(), false), {}, {}};
    for (const Reduction& reduction : body.reductions) {
      if (reduction.pass == number) pass.reduced.push_back(reduction.array);
    }
    MarkNeeded(body, pass.reduced, &pass.runs);
    passes.push_back(Allocator(body, std::move(pass)).Run(CheckedComputeType(dtype)));
  }
  return passes;
}

TileCode CompileOne(kernels::Op op, DType dtype, kernels::ScalarMask scalars) {
  TileCode code;
  code.compute = CheckedComputeType(dtype);
  TileCode::Step step;
  step.run = Resolve(op, code.compute, scalars);
  uint16_t input = 0;
  for (int i = 0; i < kernels::Arity(op); ++i) {
    const bool is_scalar = (scalars & (1U << i)) != 0;
    step.operands[i] = is_scalar ? Location{Location::Kind::kScalar, 0}
                                 : Location{Location::Kind::kInput, input++};
  }
  step.out = {Location::Kind::kOutput, 0};
  code.steps.push_back(step);
  return code;
}

void RoundScalars(std::span<const double> scalars, DType compute, std::byte* rounded) {
  switch (compute) {
    case DType::kF32:
      RoundTo<float>(scalars, rounded);
      break;
    case DType::kF64:
      RoundTo<double>(scalars, rounded);
      break;
    case DType::kI8:
      RoundTo<int8_t>(scalars, rounded);
      break;
    case DType::kU8:
      RoundTo<uint8_t>(scalars, rounded);
      break;
    case DType::kI16:
      RoundTo<int16_t>(scalars, rounded);
      break;
    case DType::kI32:
      RoundTo<int32_t>(scalars, rounded);
      break;
    case DType::kI64:
      RoundTo<int64_t>(scalars, rounded);
      break;
    case DType::kU16:
      RoundTo<uint16_t>(scalars, rounded);
      break;
    case DType::kU32:
      RoundTo<uint32_t>(scalars, rounded);
      break;
    case DType::kU64:
      RoundTo<uint64_t>(scalars, rounded);
      break;
    default:
      TKV_CHECK(false);
  }
}

std::vector<std::byte> RoundScalars(std::span<const double> scalars, DType compute) {
  std::vector<std::byte> rounded(scalars.size() * ItemSize(compute));
  RoundScalars(scalars, compute, rounded.data());
  return rounded;
}

namespace {

// Number of elements that all steps process before the next ones, so that the registers fit into
// the first-level cache.  Registers begin at different offsets in a page: otherwise the processor
// would take a load to depend on a recent store (4K aliasing).
constexpr size_t kStripElements = 512;
constexpr size_t kRegisterGap = 64;  // bytes

// A run of a code's steps over a tile, or over a strip of a tile.
class Run {
 public:
  Run(const TileCode& code, const void* scalars, const void* const* inputs, void* const* outputs,
      void* scratch, size_t register_bytes)
      : code_(code),
        item_(ItemSize(code.compute)),
        scalars_(static_cast<const std::byte*>(scalars)),
        inputs_(inputs),
        outputs_(outputs),
        scratch_(static_cast<std::byte*>(scratch)),
        register_bytes_(register_bytes) {}

  void operator()(size_t begin, size_t count, double* sums, const Draws& draws) const {
    for (const TileCode::Step& step : code_.steps) {
      const void* const first = At(step.operands[0], begin);
      if (step.out.kind == Location::Kind::kReduction) {
        sums[step.out.index] = kernels::ReduceSum(code_.compute, first, count);
        continue;
      }
      void* const out = At(step.out, begin);
      if (step.draw >= 0) {
        DrawNormals(code_.compute, draws.location,
                    {draws.scalars[step.operands[0].index], draws.scalars[step.operands[1].index],
                     static_cast<uint32_t>(step.draw)},
                    out, count);
      } else if (step.run != nullptr) {
        step.run(first, At(step.operands[1], begin), At(step.operands[2], begin), out, count);
      } else if (first != out) {
        std::memcpy(out, first, count * item_);
      }
    }
  }

 private:
  void* At(const Location& location, size_t begin) const {
    switch (location.kind) {
      case Location::Kind::kInput:
        return static_cast<std::byte*>(const_cast<void*>(inputs_[location.index])) + begin * item_;
      case Location::Kind::kOutput:
        return static_cast<std::byte*>(outputs_[location.index]) + begin * item_;
      case Location::Kind::kRegister:
        return scratch_ + location.index * register_bytes_;
      case Location::Kind::kScalar:
        return const_cast<std::byte*>(scalars_) + location.index * item_;
      case Location::Kind::kReduction:
      case Location::Kind::kNone:
        break;
    }
    return nullptr;
  }

  const TileCode& code_;
  const size_t item_;
  const std::byte* const scalars_;
  const void* const* const inputs_;
  void* const* const outputs_;
  std::byte* const scratch_;
  const size_t register_bytes_;
};

}  // namespace

void RunTile(const TileCode& code, const void* scalars, const void* const* inputs,
             void* const* outputs, void* scratch, size_t count, double* sums, const Draws& draws) {
  const size_t item = ItemSize(code.compute);
  // Sums are defined over a whole tile, and draws by its first element.
  const bool is_whole = std::any_of(code.steps.begin(), code.steps.end(), [](const auto& step) {
    return step.draw >= 0 || step.out.kind == Location::Kind::kReduction;
  });
  if (is_whole) {
    return Run(code, scalars, inputs, outputs, scratch, kTileElements * item)(0, count, sums,
                                                                              draws);
  }
  const Run run(code, scalars, inputs, outputs, scratch, kStripElements * item + kRegisterGap);
  for (size_t begin = 0; begin < count; begin += kStripElements) {
    run(begin, std::min(kStripElements, count - begin), nullptr, draws);
  }
}

}  // namespace tkv
