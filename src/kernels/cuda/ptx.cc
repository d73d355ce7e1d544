#include "kernels/cuda/ptx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "kernels/cuda/launch_table.h"
#include "kernels/operation.h"

namespace tkv::kernels::cuda {
namespace {

// The forms of a dtype's elements in memory and in registers.  Integers of 8 and 16 bits use
// registers of 32 bits, extended by their sign; bfloat16 is loaded as an integer.
struct ElementType {
  char bank;                   // register bank: f f32, d f64, h 16 bits, r 32 bits, q 64 bits
  const char* memory;          // the type of loads and stores
  const char* arithmetic;      // null: converted before arithmetic
  const char* wrap = nullptr;  // brings a result back into the range of a short integer
};

ElementType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {'f', "f32", "f32"};
    case DType::kF64:
      return {'d', "f64", "f64"};
    case DType::kF16:
      return {'h', "b16", nullptr};
    case DType::kBF16:
      return {'r', "u16", nullptr};
    case DType::kI8:
      return {'r', "s8", "s32", "cvt.s32.s8"};
    case DType::kU8:
      return {'r', "u8", "u32", "cvt.u32.u8"};
    case DType::kI16:
      return {'r', "s16", "s32", "cvt.s32.s16"};
    case DType::kI32:
      return {'r', "s32", "s32"};
    case DType::kI64:
      return {'q', "s64", "s64"};
    default:
      TKV_CHECK(false);
      return {};
  }
}

// Returns a whole number of the compute type, as an operand.
std::string Constant(DType compute, int value) {
  if (compute == DType::kF32) {
    return Format("0f{:08X}", std::bit_cast<uint32_t>(static_cast<float>(value)));
  }
  if (compute == DType::kF64) {
    return Format("0d{:016X}", std::bit_cast<uint64_t>(static_cast<double>(value)));
  }
  return Format("{}", value);
}

// The lines of a kernel, and the registers that they use.
class Assembler {
 public:
  std::string New(char bank) {
    return Format("%{}{}", bank, counts_[static_cast<size_t>(kBanks.find(bank))]++);
  }

  void Label(std::string_view label) { text_ += Format("{}:\n", label); }

  void Emit(std::string_view operation, const std::vector<std::string>& operands) {
    text_ += Format("  {} {};\n", operation, Join(operands, ", "));
  }

  // Emits an operation and returns the register with its result.
  std::string Make(char bank, std::string_view operation, std::vector<std::string> operands) {
    operands.insert(operands.begin(), New(bank));
    Emit(operation, operands);
    return operands.front();
  }

  void Jump(std::string_view label) { text_ += Format("  bra {};\n", label); }
  void JumpIf(std::string_view predicate, std::string_view label) {
    text_ += Format("  @{} bra {};\n", predicate, label);
  }

  void Return() { text_ += "  ret;\n"; }

  std::string Declarations() const {
    constexpr std::array kTypes = {"f32", "f64", "b16", "b32", "b64", "pred"};
    static_assert(kTypes.size() == kBanks.size());
    std::string text;
    for (size_t i = 0; i < kBanks.size(); ++i) {
      if (counts_[i] > 0) text += Format("  .reg .{} %{}<{}>;\n", kTypes[i], kBanks[i], counts_[i]);
    }
    return text;
  }

  const std::string& text() const { return text_; }

 private:
  static constexpr std::string_view kBanks = "fdhrqp";
  std::array<int, kBanks.size()> counts_{};
  std::string text_;
};

// Registers: one for each element of a thread.
using Lanes = std::vector<std::string>;

// Emits conversions and operations on single elements.
class Arithmetic {
 public:
  Arithmetic(Assembler* to, DType compute)
      : to_(*to), compute_(compute), type_(TypeOf(compute)), t_(type_.arithmetic) {}

  std::string Convert(const std::string& x, DType from, DType target) {
    if (from == target) return x;
    if (from == DType::kF16) return Convert(Make('f', "cvt.f32.f16", {x}), DType::kF32, target);
    if (from == DType::kBF16) {
      const std::string bits = Make('r', "shl.b32", {x, "16"});
      return Convert(Make('f', "mov.b32", {bits}), DType::kF32, target);
    }
    if (target == DType::kF64) return Make('d', "cvt.f64.f32", {x});
    if (target == DType::kF32) return Make('f', "cvt.rn.f32.f64", {x});
    const std::string narrow = from == DType::kF64 ? F32RoundedToOdd(x) : x;
    return target == DType::kF16 ? Make('h', "cvt.rn.f16.f32", {narrow}) : BF16FromF32(narrow);
  }

  std::string Add(const std::string& a, const std::string& b) {
    return IsFloat(compute_) ? Rounded("add", {a, b}) : Wrapped("add", {a, b});
  }

  std::string Apply(Op op, const std::string& a, const std::string& b, const std::string& c) {
    const bool is_float = IsFloat(compute_);
    switch (op) {
      case Op::kAdd:
        return Add(a, b);
      case Op::kSub:
        return is_float ? Rounded("sub", {a, b}) : Wrapped("sub", {a, b});
      case Op::kMul:
        return is_float ? Rounded("mul", {a, b}) : Wrapped("mul.lo", {a, b});
      case Op::kDiv:
        return Rounded("div", {a, b});
      case Op::kSqrt:
        return Rounded("sqrt", {a});
      case Op::kMin:
        return Choose(Compare("lt", a, b), a, b);
      case Op::kMax:
        return Choose(Compare("gt", a, b), a, b);
      case Op::kLess:
        return Truth(Compare("lt", a, b));
      case Op::kLessEqual:
        return Truth(Compare("le", a, b));
      case Op::kGreater:
        return Truth(Compare("gt", a, b));
      case Op::kGreaterEqual:
        return Truth(Compare("ge", a, b));
      case Op::kEqual:
        return Truth(Compare("eq", a, b));
      case Op::kNotEqual:
        return Truth(Differ(a, b));
      case Op::kSelect:
        return Choose(Differ(a, Whole(0)), b, c);
      case Op::kNeg:
        return is_float ? WithBits("xor", a, kSignBits) : Wrapped("sub", {Whole(0), a});
      case Op::kAbs:
        if (is_float) return WithBits("and", a, kOtherBits);
        return Choose(Compare("lt", a, Whole(0)), Wrapped("sub", {Whole(0), a}), a);
      case Op::kSign: {
        const std::string below = Choose(Compare("lt", a, Whole(0)), Whole(-1), Whole(0));
        const std::string sign = Choose(Compare("gt", a, Whole(0)), Whole(1), below);
        return Choose(Differ(a, a), a, sign);  // a NaN stays
      }
      case Op::kPow:
      case Op::kFloor:
      case Op::kExp:
      case Op::kLog:
      case Op::kCos:
        break;  // only for scalars
    }
    TKV_CHECK(false);
    return {};
  }

 private:
  // Masks for the two sizes of floats.
  struct Bits {
    const char* of_f32;
    const char* of_f64;
  };
  static constexpr Bits kSignBits{"0x80000000", "0x8000000000000000"};
  static constexpr Bits kOtherBits{"0x7FFFFFFF", "0x7FFFFFFFFFFFFFFF"};

  std::string Make(char bank, std::string_view operation, std::vector<std::string> operands) {
    return to_.Make(bank, operation, std::move(operands));
  }

  std::string Whole(int value) const { return Constant(compute_, value); }

  std::string Rounded(std::string_view name, std::vector<std::string> operands) {
    return Make(type_.bank, Format("{}.rn.{}", name, t_), std::move(operands));
  }

  std::string Wrapped(std::string_view name, std::vector<std::string> operands) {
    const std::string wide = Make(type_.bank, Format("{}.{}", name, t_), std::move(operands));
    return type_.wrap == nullptr ? wide : Make(type_.bank, type_.wrap, {wide});
  }

  // Returns a predicate that is false if one of them is a NaN.
  std::string Compare(std::string_view how, const std::string& a, const std::string& b) {
    return Make('p', Format("setp.{}.{}", how, t_), {a, b});
  }

  // Returns a predicate that is true if one of them is a NaN.
  std::string Differ(const std::string& a, const std::string& b) {
    return Compare(IsFloat(compute_) ? "neu" : "ne", a, b);
  }

  std::string Choose(const std::string& predicate, const std::string& a, const std::string& b) {
    return Make(type_.bank, Format("selp.{}", t_), {a, b, predicate});
  }

  std::string Truth(const std::string& predicate) { return Choose(predicate, Whole(1), Whole(0)); }

  std::string WithBits(std::string_view name, const std::string& a, const Bits& bits) {
    const bool is_f32 = compute_ == DType::kF32;
    const char* const size = is_f32 ? "b32" : "b64";
    const char bank = is_f32 ? 'r' : 'q';
    const std::string before = Make(bank, Format("mov.{}", size), {a});
    const std::string after =
        Make(bank, Format("{}.{}", name, size), {before, is_f32 ? bits.of_f32 : bits.of_f64});
    return Make(type_.bank, Format("mov.{}", size), {after});
  }

  // Uses integers, like half.h, because GPUs before sm_80 have no conversion.
  std::string BF16FromF32(const std::string& x) {
    const std::string bits = Make('r', "mov.b32", {x});
    const std::string upper = Make('r', "shr.u32", {bits, "16"});
    const std::string odd = Make('r', "and.b32", {upper, "1"});
    const std::string raised = Make('r', "add.u32", {bits, "0x7FFF"});
    const std::string rounded = Make('r', "add.u32", {raised, odd});
    const std::string quiet = Make('r', "or.b32", {bits, "0x400000"});
    const std::string is_nan = Make('p', "setp.neu.f32", {x, x});
    const std::string chosen = Make('r', "selp.b32", {quiet, rounded, is_nan});
    return Make('r', "shr.u32", {chosen, "16"});
  }

  // Truncates, and sets the last bit if that was inexact, so that a later rounding to fewer bits is
  // right; see half.h.
  std::string F32RoundedToOdd(const std::string& x) {
    const std::string cut = Make('f', "cvt.rz.f32.f64", {x});
    const std::string again = Make('d', "cvt.f64.f32", {cut});
    const std::string is_inexact = Make('p', "setp.neu.f64", {again, x});
    const std::string bits = Make('r', "mov.b32", {cut});
    const std::string odd = Make('r', "or.b32", {bits, "1"});
    return Make('f', "mov.b32", {Make('r', "selp.b32", {odd, bits, is_inexact})});
  }

  Assembler& to_;
  const DType compute_;
  const ElementType type_;
  const std::string_view t_;
};

// The registers with the values of a key's entry, which the code of all its elements reads.
struct Key {
  const char* table_space;  // state space of loads from the table
  std::string table;
  std::string more_count, more_offset;
  std::vector<std::string> pointers;
  std::vector<std::string> scalars;
};

// Emits the code for one element, or for kElementsPerThread neighbours.
class Body {
 public:
  Body(Assembler* to, const Elementwise& code, const Key& key, std::string index, uint32_t lanes)
      : to_(*to),
        code_(code),
        key_(key),
        index_(std::move(index)),
        lanes_(lanes),
        arithmetic_(to, code.compute) {}

  void Write() {
    std::vector<Lanes> sources;
    sources.reserve(code_.source_count);
    for (uint16_t i = 0; i < code_.source_count; ++i)
      sources.push_back(Load(code_.source_dtype, i));
    std::vector<Lanes> loaded;
    loaded.reserve(code_.loads.size());
    for (const auto& load : code_.loads) loaded.push_back(Load(load.dtype, load.pointer));

    arrays_.push_back(Sum(sources));
    for (size_t i = 0; i < loaded.size(); ++i) {
      arrays_.push_back(Convert(loaded[i], code_.loads[i].dtype, code_.compute));
    }
    for (const Instruction& instruction : code_.instructions) Compute(instruction);
    for (const auto& store : code_.stores) Store(store);
  }

 private:
  enum class Way : uint8_t { kLoad, kStore };

  Lanes Sum(const std::vector<Lanes>& sources) {
    if (sources.empty()) return {};
    Lanes sum = Convert(sources[0], code_.source_dtype, code_.compute);
    for (size_t i = 1; i < sources.size(); ++i) {
      const Lanes next = Convert(sources[i], code_.source_dtype, code_.compute);
      for (size_t k = 0; k < lanes_; ++k) sum[k] = arithmetic_.Add(sum[k], next[k]);
    }
    if (code_.has_more_sources) AddMoreTo(sum);
    return sum;
  }

  // Adds the sources whose pointers are in the table, one at a time.
  void AddMoreTo(const Lanes& sum) {
    const std::string again = Format("MORE_{}", lanes_);
    const std::string done = Format("SUMMED_{}", lanes_);
    const std::string left = to_.Make('r', "mov.u32", {key_.more_count});
    const std::string at = to_.Make('q', "add.s64", {key_.table, key_.more_offset});
    to_.Label(again);
    to_.JumpIf(to_.Make('p', "setp.eq.u32", {left, "0"}), done);
    const std::string generic =
        to_.Make('q', Format("ld.{}.u64", key_.table_space), {Format("[{}]", at)});
    const std::string pointer = to_.Make('q', "cvta.to.global.u64", {generic});
    const std::string address =
        to_.Make('q', "add.s64", {pointer, Offset(ItemSize(code_.source_dtype))});
    const Lanes next =
        Convert(LoadFrom(address, code_.source_dtype), code_.source_dtype, code_.compute);
    for (size_t k = 0; k < lanes_; ++k) {
      to_.Emit(Format("mov.{}", TypeOf(code_.compute).arithmetic),
               {sum[k], arithmetic_.Add(sum[k], next[k])});
    }
    to_.Emit("add.s64", {at, at, "8"});
    to_.Emit("sub.u32", {left, left, "1"});
    to_.Jump(again);
    to_.Label(done);
  }

  void Compute(const Instruction& instruction) {
    Lanes result;
    for (size_t k = 0; k < lanes_; ++k) {
      std::string operands[3];
      for (int i = 0; i < Arity(instruction.op); ++i) {
        const Operand& operand = instruction.operands[i];
        operands[i] = operand.is_scalar ? key_.scalars[operand.index] : arrays_[operand.index][k];
      }
      result.push_back(arithmetic_.Apply(instruction.op, operands[0], operands[1], operands[2]));
    }
    arrays_.push_back(std::move(result));
  }

  void Store(const Elementwise::Store& store) {
    Lanes& rounded = rounded_[{store.array, store.through}];
    if (rounded.empty()) rounded = Convert(arrays_[store.array], code_.compute, store.through);
    Access(Way::kStore, store.dtype, Address(store.pointer, store.dtype),
           Convert(rounded, store.through, store.dtype));
  }

  Lanes Load(DType dtype, uint16_t pointer) { return LoadFrom(Address(pointer, dtype), dtype); }

  Lanes LoadFrom(const std::string& address, DType dtype) {
    Lanes lanes;
    for (size_t k = 0; k < lanes_; ++k) lanes.push_back(to_.New(TypeOf(dtype).bank));
    Access(Way::kLoad, dtype, address, lanes);
    return lanes;
  }

  // Accesses as many elements at a time as the widest access allows.
  void Access(Way way, DType dtype, const std::string& address, const Lanes& lanes) {
    const size_t item = ItemSize(dtype);
    const size_t width = std::min<size_t>(lanes_, kAlignment / item);
    const char* const memory = TypeOf(dtype).memory;
    for (size_t k = 0; k < lanes_; k += width) {
      const Lanes part(lanes.begin() + static_cast<ptrdiff_t>(k),
                       lanes.begin() + static_cast<ptrdiff_t>(k + width));
      const std::string registers = width == 1 ? part[0] : Format("{{{}}}", Join(part, ", "));
      const std::string vector = width == 1 ? "" : Format(".v{}", width);
      const std::string place = Format("[{}+{}]", address, k * item);
      if (way == Way::kLoad) {
        to_.Emit(Format("ld.global{}.{}", vector, memory), {registers, place});
      } else {
        to_.Emit(Format("st.global{}.{}", vector, memory), {place, registers});
      }
    }
  }

  Lanes Convert(const Lanes& lanes, DType from, DType target) {
    Lanes converted;
    for (const std::string& lane : lanes) {
      converted.push_back(arithmetic_.Convert(lane, from, target));
    }
    return converted;
  }

  // Returns the byte offset of this thread's elements.
  const std::string& Offset(size_t item) {
    std::string& offset = offsets_[item];
    if (offset.empty()) {
      offset = to_.Make('q', "shl.b64", {index_, Format("{}", std::countr_zero(item))});
    }
    return offset;
  }

  const std::string& Address(uint16_t pointer, DType dtype) {
    std::string& address = addresses_[pointer];
    if (address.empty()) {
      address = to_.Make('q', "add.s64", {key_.pointers[pointer], Offset(ItemSize(dtype))});
    }
    return address;
  }

  Assembler& to_;
  const Elementwise& code_;
  const Key& key_;
  const std::string index_;
  const uint32_t lanes_;
  Arithmetic arithmetic_;
  std::vector<Lanes> arrays_;
  std::map<std::pair<uint16_t, DType>, Lanes> rounded_;  // by array and type
  std::map<size_t, std::string> offsets_;                // by the size of an element
  std::map<uint16_t, std::string> addresses_;            // by pointer
};

// Emits the whole kernel: each block takes tiles in turn, finds the key of each, and runs the code
// on it.
class Kernel {
 public:
  Kernel(const Elementwise& code, TablePlace place)
      : code_(code),
        is_parameter_(place == TablePlace::kParameter),
        space_(is_parameter_ ? "param" : "global") {}

  std::string Write() {
    LoadTable();
    const std::string grid = to_.Make('r', "mov.u32", {"%nctaid.x"});
    const std::string thread = to_.Make('r', "mov.u32", {"%tid.x"});
    const std::string tile = to_.Make('r', "mov.u32", {"%ctaid.x"});
    to_.Label("TILE");
    to_.JumpIf(to_.Make('p', "setp.ge.u32", {tile, tiles_}), "END");
    const std::string entry = FindEntry(tile);
    const std::string first_tile = FirstTileOf(entry);
    const Key key = LoadKey(entry);
    const std::string tile_of_key = to_.Make('r', "sub.u32", {tile, first_tile});
    const std::string begin =
        to_.Make('q', "mul.wide.u32", {tile_of_key, Format("{}", kBlockElements)});
    WriteBodies(key, begin, thread);
    to_.Label("NEXT");
    to_.Emit("add.u32", {tile, tile, grid});
    to_.Jump("TILE");
    to_.Label("END");
    to_.Return();
    return Head() + to_.Declarations() + to_.text() + "}\n";
  }

 private:
  std::string Head() const {
    const std::string parameter = is_parameter_
                                      ? Format(".param .align 8 .b8 table[{}]", kParameterBytesMax)
                                      : ".param .u64 table";
    return Format(
        ".version 6.3\n.target sm_70\n.address_size 64\n\n"
        ".visible .entry {}({})\n.maxntid {}, 1, 1\n{{\n",
        kKernelName, parameter, kBlockThreads);
  }

  std::string LoadFromTable(const char* type, char bank, const std::string& address,
                            size_t offset) {
    return to_.Make(bank, Format("ld.{}.{}", space_, type), {Format("[{}+{}]", address, offset)});
  }

  std::string Global(const std::string& generic) {
    return to_.Make('q', "cvta.to.global.u64", {generic});
  }

  void LoadTable() {
    table_ = is_parameter_ ? to_.Make('q', "mov.b64", {"table"})
                           : Global(to_.Make('q', "ld.param.u64", {"[table]"}));
    entry_count_ = LoadFromTable("u32", 'r', table_, offsetof(TableHead, entry_count));
    tiles_ = LoadFromTable("u32", 'r', table_, offsetof(TableHead, tile_count));
    const std::string offset =
        LoadFromTable("u32", 'r', table_, offsetof(TableHead, entries_offset));
    entries_ = to_.Make('q', "add.s64", {table_, to_.Make('q', "cvt.u64.u32", {offset})});
  }

  std::string FirstTileOf(const std::string& entry) {
    const std::string offset = to_.Make('q', "mul.wide.u32", {entry, "4"});
    const std::string address = to_.Make('q', "add.s64", {table_, offset});
    return LoadFromTable("u32", 'r', address, sizeof(TableHead));
  }

  // Emits a search for the last entry that begins at or before the tile.
  std::string FindEntry(const std::string& tile) {
    const std::string low = to_.Make('r', "mov.u32", {"0"});
    const std::string high = to_.Make('r', "mov.u32", {entry_count_});
    to_.Label("SEARCH");
    const std::string width = to_.Make('r', "sub.u32", {high, low});
    to_.JumpIf(to_.Make('p', "setp.le.u32", {width, "1"}), "FOUND");
    const std::string half = to_.Make('r', "shr.u32", {width, "1"});
    const std::string middle = to_.Make('r', "add.u32", {low, half});
    const std::string begins = to_.Make('p', "setp.le.u32", {FirstTileOf(middle), tile});
    to_.Emit("selp.u32", {low, middle, low, begins});
    to_.Emit("selp.u32", {high, high, middle, begins});
    to_.Jump("SEARCH");
    to_.Label("FOUND");
    return low;
  }

  Key LoadKey(const std::string& entry) {
    const std::string offset =
        to_.Make('q', "mul.wide.u32", {entry, Format("{}", EntryBytes(code_))});
    const std::string at = to_.Make('q', "add.s64", {entries_, offset});
    count_ = LoadFromTable("u64", 'q', at, offsetof(EntryHead, count));
    is_aligned_ = LoadFromTable("u32", 'r', at, offsetof(EntryHead, is_aligned));
    Key key{space_, table_, {}, {}, {}, {}};
    if (code_.has_more_sources) {
      key.more_count = LoadFromTable("u32", 'r', at, offsetof(EntryHead, more_count));
      key.more_offset = to_.Make('q', "cvt.u64.u32",
                                 {LoadFromTable("u32", 'r', at, offsetof(EntryHead, more_offset))});
    }
    size_t place = sizeof(EntryHead);
    for (uint16_t i = 0; i < code_.pointer_count; ++i, place += 8) {
      key.pointers.push_back(Global(LoadFromTable("u64", 'q', at, place)));
    }
    const ElementType type = TypeOf(code_.compute);
    for (uint16_t i = 0; i < code_.scalar_count; ++i, place += 8) {
      key.scalars.push_back(LoadFromTable(type.memory, type.bank, at, place));
    }
    return key;
  }

  // Emits two bodies: a whole tile of aligned arrays is read by wide accesses to neighbours; in any
  // other tile, each thread takes every 256th element.
  void WriteBodies(const Key& key, const std::string& begin, const std::string& thread) {
    const std::string all = Format("{}", kBlockElements);
    const std::string own = to_.Make('q', "cvt.u64.u32", {thread});
    const std::string left = to_.Make('q', "sub.s64", {count_, begin});
    const std::string index = to_.Make('q', "add.s64", {begin, own});
    to_.JumpIf(to_.Make('p', "setp.eq.u32", {is_aligned_, "0"}), "SINGLE");
    to_.JumpIf(to_.Make('p', "setp.lt.u64", {left, all}), "SINGLE");
    const std::string skipped =
        to_.Make('q', "mul.wide.u32", {thread, Format("{}", kElementsPerThread)});
    Body(&to_, code_, key, to_.Make('q', "add.s64", {begin, skipped}), kElementsPerThread).Write();
    to_.Jump("NEXT");

    to_.Label("SINGLE");
    const std::string is_whole = to_.Make('p', "setp.lt.u64", {all, left});
    const std::string length = to_.Make('q', "selp.b64", {all, left, is_whole});
    const std::string end = to_.Make('q', "add.s64", {begin, length});
    to_.Label("ELEMENT");
    to_.JumpIf(to_.Make('p', "setp.ge.u64", {index, end}), "NEXT");
    Body(&to_, code_, key, index, 1).Write();
    to_.Emit("add.s64", {index, index, Format("{}", kBlockThreads)});
    to_.Jump("ELEMENT");
  }

  const Elementwise& code_;
  const bool is_parameter_;
  const char* const space_;
  Assembler to_;
  // Names of registers.
  std::string table_, entry_count_, tiles_, entries_;
  std::string count_, is_aligned_;  // of the key
};

}  // namespace

std::string WritePtx(const Elementwise& code, TablePlace place) {
  return Kernel(code, place).Write();
}

}  // namespace tkv::kernels::cuda
