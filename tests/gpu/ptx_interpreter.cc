#include "tests/gpu/ptx_interpreter.h"

#include <bit>
#include <bitset>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "base/format.h"
#include "kernels/reference/reference.h"

namespace tkv::test {
namespace {

constexpr uint32_t kThreads = 256;
constexpr int64_t kStepsMax = 4 << 20;  // per block; a kernel with more steps is considered endless
constexpr std::string_view kBanks = "fdhrqp";
constexpr std::array<std::string_view, 6> kBankTypes = {".f32", ".f64", ".b16",
                                                        ".b32", ".b64", ".pred"};

template <typename... Args>
PtxError Wrong(FormatString<Args...> text, Args&&... args) {
  return PtxError(Format(text, std::forward<Args>(args)...));
}

// ------------------------------------------------------------------------------------ arithmetic
// Registers have 64 bits.  A value uses the lower bits of its type; the rest is zero.

template <typename T>
T As(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Returns the bits of a value.  Every NaN from arithmetic becomes the canonical NaN of GPUs.
template <typename T>
uint64_t Bits(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (value != value) return sizeof(T) == 4 ? 0x7FFFFFFF : 0x7FFFFFFFFFFFFFFF;
  }
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

// The form of an instruction; `banks` has the register banks of the result and the operands.
struct Form {
  std::string banks;
  PtxKernel::Function function;
};
using Forms = std::multimap<std::string, Form, std::less<>>;

uint64_t First(uint64_t a, uint64_t, uint64_t) { return a; }
uint64_t Choose(uint64_t a, uint64_t b, uint64_t predicate) { return predicate != 0 ? a : b; }

template <typename T>
void AddComparisons(const std::string& type, char bank, Forms* forms) {
  const std::string banks = {'p', bank, bank};
  const auto add = [&](const char* how, PtxKernel::Function function) {
    forms->emplace(Format("setp.{}.{}", how, type), Form{banks, function});
  };
  add("lt", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{As<T>(a) < As<T>(b)}; });
  add("le", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{As<T>(a) <= As<T>(b)}; });
  add("gt", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{As<T>(a) > As<T>(b)}; });
  add("ge", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{As<T>(a) >= As<T>(b)}; });
  add("eq", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{As<T>(a) == As<T>(b)}; });
  add(std::is_floating_point_v<T> ? "neu" : "ne",  // != of C++ is true for a NaN
      [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{As<T>(a) != As<T>(b)}; });
  forms->emplace(Format("selp.{}", type), Form{{bank, bank, bank, 'p'}, Choose});
  forms->emplace(Format("mov.{}", type), Form{{bank, bank}, First});
}

template <typename T>
void AddFloats(const std::string& type, char bank, Forms* forms) {
  const auto add = [&](const char* name, const std::string& banks, PtxKernel::Function function) {
    forms->emplace(Format("{}.rn.{}", name, type), Form{banks, function});
  };
  const std::string three(3, bank);
  add("add", three, [](uint64_t a, uint64_t b, uint64_t) { return Bits<T>(As<T>(a) + As<T>(b)); });
  add("sub", three, [](uint64_t a, uint64_t b, uint64_t) { return Bits<T>(As<T>(a) - As<T>(b)); });
  add("mul", three, [](uint64_t a, uint64_t b, uint64_t) { return Bits<T>(As<T>(a) * As<T>(b)); });
  add("div", three, [](uint64_t a, uint64_t b, uint64_t) { return Bits<T>(As<T>(a) / As<T>(b)); });
  add("sqrt", {bank, bank},
      [](uint64_t a, uint64_t, uint64_t) { return Bits(std::sqrt(As<T>(a))); });
  AddComparisons<T>(type, bank, forms);
}

template <typename T>
void AddIntegers(const std::string& type, char bank, Forms* forms) {
  using U = std::make_unsigned_t<T>;
  const auto add = [&](const char* name, PtxKernel::Function function) {
    forms->emplace(Format("{}.{}", name, type), Form{std::string(3, bank), function});
  };
  add("add", [](uint64_t a, uint64_t b, uint64_t) { return Bits<U>(As<U>(a) + As<U>(b)); });
  add("sub", [](uint64_t a, uint64_t b, uint64_t) { return Bits<U>(As<U>(a) - As<U>(b)); });
  add("mul.lo", [](uint64_t a, uint64_t b, uint64_t) { return Bits<U>(As<U>(a) * As<U>(b)); });
  AddComparisons<T>(type, bank, forms);
}

// Conversions of 16-bit floats use the reference implementation, which is independent of half.h.
uint64_t F32FromF16(uint64_t a, uint64_t, uint64_t) {
  const auto bits = As<uint16_t>(a);
  float value = 0;
  kernels::reference::Convert(DType::kF16, &bits, DType::kF32, &value, 1);
  return Bits(value);
}

uint64_t F16FromF32(uint64_t a, uint64_t, uint64_t) {
  const auto value = As<float>(a);
  uint16_t bits = 0;
  kernels::reference::Convert(DType::kF32, &value, DType::kF16, &bits, 1);
  return value != value ? 0x7FFF : bits;
}

uint64_t F32FromF64TowardsZero(uint64_t a, uint64_t, uint64_t) {
  const auto value = As<double>(a);
  const auto nearest = static_cast<float>(value);
  const bool is_beyond = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
  return Bits(is_beyond ? std::nextafterf(nearest, 0.0F) : nearest);
}

template <typename To, typename From>
uint64_t Converted(uint64_t a, uint64_t, uint64_t) {
  return Bits(static_cast<To>(As<From>(a)));
}

Forms AllForms() {
  Forms forms;
  AddFloats<float>("f32", 'f', &forms);
  AddFloats<double>("f64", 'd', &forms);
  AddIntegers<int32_t>("s32", 'r', &forms);
  AddIntegers<uint32_t>("u32", 'r', &forms);
  AddIntegers<int64_t>("s64", 'q', &forms);
  AddComparisons<uint64_t>("u64", 'q', &forms);
  const auto add = [&](const char* name, const char* banks, PtxKernel::Function function) {
    forms.emplace(name, Form{banks, function});
  };
  add("and.b32", "rrr", [](uint64_t a, uint64_t b, uint64_t) { return a & b; });
  add("or.b32", "rrr", [](uint64_t a, uint64_t b, uint64_t) { return a | b; });
  add("xor.b32", "rrr", [](uint64_t a, uint64_t b, uint64_t) { return a ^ b; });
  add("and.b64", "qqq", [](uint64_t a, uint64_t b, uint64_t) { return a & b; });
  add("xor.b64", "qqq", [](uint64_t a, uint64_t b, uint64_t) { return a ^ b; });
  add("shl.b32", "rrr",
      [](uint64_t a, uint64_t b, uint64_t) { return b < 32 ? a << b & UINT32_MAX : 0; });
  add("shr.u32", "rrr", [](uint64_t a, uint64_t b, uint64_t) { return b < 32 ? a >> b : 0; });
  add("shl.b64", "qqr", [](uint64_t a, uint64_t b, uint64_t) { return b < 64 ? a << b : 0; });
  add("mul.wide.u32", "qrr", [](uint64_t a, uint64_t b, uint64_t) { return a * b; });
  add("selp.b32", "rrrp", Choose);
  add("selp.b64", "qqqp", Choose);
  for (const char* banks : {"fr", "rf"}) add("mov.b32", banks, First);
  for (const char* banks : {"qq", "qd", "dq"}) add("mov.b64", banks, First);
  add("cvt.f32.f16", "fh", F32FromF16);
  add("cvt.rn.f16.f32", "hf", F16FromF32);
  add("cvt.f64.f32", "df", Converted<double, float>);
  add("cvt.rn.f32.f64", "fd", Converted<float, double>);
  add("cvt.rz.f32.f64", "fd", F32FromF64TowardsZero);
  add("cvt.s32.s8", "rr", Converted<int32_t, int8_t>);
  add("cvt.u32.u8", "rr", Converted<uint32_t, uint8_t>);
  add("cvt.s32.s16", "rr", Converted<int32_t, int16_t>);
  add("cvt.u64.u32", "qr", Converted<uint64_t, uint32_t>);
  add("cvta.to.global.u64", "qq", First);
  return forms;
}

// The register bank, the bytes in memory and the sign extension of a load or store.
struct Moved {
  char bank;
  size_t item;
  bool is_signed;
};
const std::map<std::string, Moved, std::less<>> kMoved = {
    {"f32", {'f', 4, false}}, {"f64", {'d', 8, false}}, {"b16", {'h', 2, false}},
    {"u8", {'r', 1, false}},  {"s8", {'r', 1, true}},   {"u16", {'r', 2, false}},
    {"s16", {'r', 2, true}},  {"u32", {'r', 4, false}}, {"s32", {'r', 4, false}},
    {"u64", {'q', 8, false}}, {"s64", {'q', 8, false}}};

std::vector<std::string_view> Split(std::string_view text, std::string_view between) {
  std::vector<std::string_view> words;
  for (size_t at = 0; (at = text.find_first_not_of(between, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(between, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

}  // namespace

// ---------------------------------------------------------------------------------------- memory
// Range i begins 64 KiB after (i + 1) 2^32.  An address slightly below it is therefore in no range.
uint64_t DeviceMemory::Allocate(size_t bytes, size_t misaligned_by) {
  const uint64_t begin = ((ranges_.size() + 1) << 32) + (64 << 10) + misaligned_by;
  ranges_.push_back({begin, std::vector<Byte>(bytes)});
  return begin;
}

std::span<DeviceMemory::Byte> DeviceMemory::At(uint64_t address, size_t bytes) {
  const size_t number = (address >> 32) - 1;
  if (number >= ranges_.size()) throw Wrong("address {:x} is in no range", address);
  Range& range = ranges_[number];
  const uint64_t first = address - range.begin;  // wraps below the range
  if (first > range.bytes.size() || bytes > range.bytes.size() - first) {
    throw Wrong("{} bytes at {:x} are out of the bounds of range {}: {} bytes at {:x}", bytes,
                address, number, range.bytes.size(), range.begin);
  }
  return {range.bytes.data() + first, bytes};
}

void DeviceMemory::Write(uint64_t address, std::span<const std::byte> bytes) {
  const std::span<Byte> target = At(address, bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) target[i] = {bytes[i], true, 0, 0};
}

std::vector<std::byte> DeviceMemory::Read(uint64_t address, size_t bytes) const {
  std::vector<std::byte> read;
  for (const Byte& byte : const_cast<DeviceMemory*>(this)->At(address, bytes)) {
    if (!byte.is_written) throw Wrong("byte {} of {:x} was never written", read.size(), address);
    read.push_back(byte.value);
  }
  return read;
}

void DeviceMemory::BeginLaunch() {
  for (Range& range : ranges_) {
    for (Byte& byte : range.bytes) byte.writer = byte.reader = 0;
  }
}

void DeviceMemory::Load(uint64_t address, void* target, size_t bytes, uint32_t thread) {
  if (address % bytes != 0) throw Wrong("{} bytes at {:x} are misaligned", bytes, address);
  auto* out = static_cast<std::byte*>(target);
  for (Byte& byte : At(address, bytes)) {
    if (!byte.is_written) throw Wrong("nobody has written what is read at {:x}", address);
    if (byte.writer != 0 && byte.writer != thread) {
      throw Wrong("thread {} reads at {:x} what thread {} writes", thread, address, byte.writer);
    }
    byte.reader = byte.reader == 0 || byte.reader == thread ? thread : kMany;
    *out++ = byte.value;
  }
}

void DeviceMemory::Store(uint64_t address, const void* source, size_t bytes, uint32_t thread) {
  if (address % bytes != 0) throw Wrong("{} bytes at {:x} are misaligned", bytes, address);
  const auto* in = static_cast<const std::byte*>(source);
  for (Byte& byte : At(address, bytes)) {
    for (const uint32_t other : {byte.writer, byte.reader}) {
      if (other != 0 && other != thread) {
        throw Wrong("thread {} writes at {:x}, where thread {} is", thread, address, other);
      }
    }
    byte = {*in++, true, thread, byte.reader};
  }
}

// ------------------------------------------------------------------------------------------ text
class PtxParser {
 public:
  explicit PtxParser(PtxKernel* kernel) : kernel_(*kernel) {}

  void Parse(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      const size_t end = std::min(text.find('\n'), text.size());
      Line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (directives_ != std::size(kDirectives)) throw Refused("directives are missing");
    if (kernel_.instructions_.empty() ||
        kernel_.instructions_.back().kind != PtxKernel::Instruction::Kind::kReturn) {
      throw Refused("the last instruction is no ret");
    }
    for (auto& instruction : kernel_.instructions_) {
      if (instruction.kind != PtxKernel::Instruction::Kind::kBranch) continue;
      const auto found = labels_.find(instruction.label);
      if (found == labels_.end()) throw Refused("there is no label " + instruction.label);
      instruction.destination = found->second;
    }
  }

 private:
  using Instruction = PtxKernel::Instruction;
  using Operand = PtxKernel::Operand;
  using Kind = Instruction::Kind;

  static constexpr std::string_view kDirectives[] = {".version 6.3", ".target sm_70",
                                                     ".address_size 64", ".maxntid 256, 1, 1"};

  PtxError Refused(const std::string& why) const {
    return Wrong("line {}: {}: {}", line_, current_, why);
  }

  void Line(std::string_view line) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string_view::npos) return;
    line.remove_prefix(begin);
    current_ = line;
    if (line == "{" || line == "}") return;
    if (line.ends_with(':')) {
      const auto place = static_cast<uint32_t>(kernel_.instructions_.size());
      if (!labels_.emplace(line.substr(0, line.size() - 1), place).second) {
        throw Refused("the label stands twice");
      }
    } else if (line.starts_with(".visible .entry ")) {
      Entry(Split(line, " (,)"));
    } else if (line.starts_with(".reg ")) {
      Registers(Split(line, " <>;%"));
    } else if (line.starts_with('.')) {
      if (directives_ == std::size(kDirectives) || line != kDirectives[directives_++]) {
        throw Refused("this directive is not expected here");
      }
    } else {
      if (!line.ends_with(';')) throw Refused("no semicolon");
      Statement(Split(line.substr(0, line.size() - 1), " ,{}"));
    }
  }

  // .visible .entry NAME .param .u64 NAME | .visible .entry NAME .param .align 8 .b8 NAME[BYTES]
  void Entry(const std::vector<std::string_view>& words) {
    if (words.size() > 2) kernel_.name_ = words[2];
    if (words.size() == 6 && words[4] == ".u64") {
      parameter_ = words[5];
      kernel_.parameter_bytes_ = 8;
    } else if (words.size() == 8 && words[5] == "8" && words[6] == ".b8") {
      const auto parts = Split(words[7], "[]");
      parameter_ = parts[0];
      kernel_.parameter_bytes_ = std::stoul(std::string(parts.at(1)));
    } else {
      throw Refused("another parameter is expected");
    }
  }

  // .reg .TYPE BANK COUNT
  void Registers(const std::vector<std::string_view>& words) {
    const size_t bank = words.size() == 4 ? kBanks.find(words[2]) : std::string_view::npos;
    if (bank == std::string_view::npos || words[1] != kBankTypes[bank] || counts_[bank] != 0) {
      throw Refused("these registers are not expected");
    }
    counts_[bank] = static_cast<uint32_t>(std::stoul(std::string(words[3])));
    firsts_[bank] = kernel_.register_count_;
    kernel_.register_count_ += counts_[bank];
  }

  void Statement(std::vector<std::string_view> words) {
    Instruction instruction;
    instruction.text = Format("line {}: {}", line_, current_);
    if (words[0].starts_with('@')) {
      instruction.sources.push_back(Register(words[0].substr(1), 'p'));
      words.erase(words.begin());
      if (words.empty() || words[0] != "bra") throw Refused("only branches are conditional");
    }
    const std::string_view name = words[0];
    ++kernel_.forms_[std::string(name)];
    words.erase(words.begin());
    if (name == "bra" && words.size() == 1) {
      instruction.kind = Kind::kBranch;
      instruction.label = words[0];
    } else if (name == "ret" && words.empty()) {
      instruction.kind = Kind::kReturn;
    } else if (name.starts_with("ld.") || name.starts_with("st.")) {
      Move(name, words, &instruction);
    } else {
      Compute(name, words, &instruction);
    }
    kernel_.instructions_.push_back(std::move(instruction));
  }

  void Compute(std::string_view name, const std::vector<std::string_view>& words,
               Instruction* instruction) {
    static const Forms forms = AllForms();
    const auto [begin, end] = forms.equal_range(name);
    for (auto form = begin; form != end; ++form) {
      const std::string& banks = form->second.banks;
      if (words.size() != banks.size() || !Fits(words, banks)) continue;
      instruction->function = form->second.function;
      instruction->targets.push_back(Register(words[0], banks[0]).number);
      for (size_t i = 1; i < words.size(); ++i) {
        instruction->sources.push_back(Source(words[i], banks[i]));
      }
      return;
    }
    throw Refused("no kernel needs this");
  }

  // Returns true if the registers among the operands belong to these banks.
  bool Fits(const std::vector<std::string_view>& words, const std::string& banks) const {
    for (size_t i = 0; i < words.size(); ++i) {
      const bool is_register = words[i][0] == '%' && words[i].find('.') == std::string_view::npos;
      if ((i == 0 || is_register) && (!is_register || words[i][1] != banks[i])) return false;
    }
    return true;
  }

  // ld.SPACE[.vN].TYPE {REGISTERS}, [ADDRESS] | st.global[.vN].TYPE [ADDRESS], {REGISTERS}
  void Move(std::string_view name, std::vector<std::string_view> words, Instruction* instruction) {
    const auto parts = Split(name, ".");
    const auto moved = kMoved.find(parts.back());
    const bool is_load = parts[0] == "ld";
    const bool is_vector = parts.size() == 4 && (parts[2] == "v2" || parts[2] == "v4");
    const size_t count = is_vector ? static_cast<size_t>(parts[2][1] - '0') : 1;
    instruction->is_parameter = is_load && parts[1] == "param" && count == 1;
    if ((parts.size() != 3 && !is_vector) || moved == kMoved.end() || words.size() != count + 1 ||
        (parts[1] != "global" && !instruction->is_parameter)) {
      throw Refused("no kernel needs this");
    }
    instruction->kind = is_load ? Kind::kLoad : Kind::kStore;
    instruction->item = moved->second.item;
    instruction->is_signed = moved->second.is_signed;
    const auto place = is_load ? words.end() - 1 : words.begin();
    Address(*place, instruction);
    words.erase(place);
    for (const std::string_view word : words) {
      const Operand operand = Register(word, moved->second.bank);
      if (is_load) {
        instruction->targets.push_back(operand.number);
      } else {
        instruction->sources.push_back(operand);
      }
    }
  }

  // [REGISTER+BYTES] | [PARAMETER]
  void Address(std::string_view word, Instruction* instruction) {
    const auto parts = Split(word, "[+]");
    if (!word.starts_with('[') || !word.ends_with(']') || parts.empty() || parts.size() > 2) {
      throw Refused("this is no address");
    }
    instruction->address = Source(parts[0], 'q');
    if (parts.size() == 2) instruction->offset = std::stoull(std::string(parts[1]));
  }

  Operand Register(std::string_view word, char bank) const {
    const size_t number = kBanks.find(bank);
    if (word.size() < 3 || word[0] != '%' || word[1] != bank ||
        word.find_first_not_of("0123456789", 2) != std::string_view::npos) {
      throw Refused(Format("'{}' is no register %{}", word, bank));
    }
    const auto index = static_cast<uint32_t>(std::stoul(std::string(word.substr(2))));
    if (index >= counts_[number]) throw Refused(Format("{} is not declared", word));
    return {Operand::Kind::kRegister, firsts_[number] + index, 0};
  }

  Operand Source(std::string_view word, char bank) const {
    if (bank == 'r' && word == "%tid.x") return {Operand::Kind::kThread, 0, 0};
    if (bank == 'r' && word == "%ctaid.x") return {Operand::Kind::kBlock, 0, 0};
    if (bank == 'r' && word == "%nctaid.x") return {Operand::Kind::kGrid, 0, 0};
    if (bank == 'q' && word == parameter_) return {};  // the parameter begins at 0 of its space
    if (word[0] == '%') return Register(word, bank);
    return {Operand::Kind::kConstant, 0, Constant(word, bank)};
  }

  uint64_t Constant(std::string_view word, char bank) const {
    const std::string text(word);
    size_t used = 0;
    uint64_t value = 0;
    if (bank == 'f' || bank == 'd') {
      const bool is_f32 = bank == 'f';
      if (!word.starts_with(is_f32 ? "0f" : "0d") || word.size() != (is_f32 ? 10 : 18)) {
        throw Refused("a constant of another type");
      }
      value = std::stoull(text.substr(2), &used, 16);
      used += 2;
    } else if (bank == 'r' || bank == 'q') {
      value = word[0] == '-' ? static_cast<uint64_t>(std::stoll(text, &used))
                             : std::stoull(text, &used, 0);
      if (bank == 'r') value = static_cast<uint32_t>(value);
    }
    if (used != word.size()) throw Refused(Format("'{}' is no constant", word));
    return value;
  }

  PtxKernel& kernel_;
  int line_ = 0;
  std::string current_;
  size_t directives_ = 0;
  std::string parameter_;
  std::array<uint32_t, kBanks.size()> counts_{}, firsts_{};
  std::map<std::string, uint32_t, std::less<>> labels_;
};

PtxKernel::PtxKernel(std::string_view text) { PtxParser(this).Parse(text); }

// ------------------------------------------------------------------------------------- execution
namespace {

using Threads = std::bitset<kThreads>;

class Block {
 public:
  Block(std::span<const PtxKernel::Instruction> instructions, uint32_t register_count,
        uint32_t number, uint32_t grid, std::span<const std::byte> parameter, PtxMemory* memory)
      : instructions_(instructions),
        number_(number),
        grid_(grid),
        parameter_(parameter),
        memory_(*memory),
        registers_(size_t{register_count} * kThreads),
        written_(register_count) {}

  void Run() {
    Threads all;
    Go(0, all.set());
    int64_t steps = 0;
    while (!waiting_.empty()) {
      const auto least = waiting_.begin();
      const uint32_t place = least->first;
      const Threads threads = least->second;
      waiting_.erase(least);
      if (++steps > kStepsMax) throw Wrong("the kernel does not end");
      if (threads != active_) Activate(threads);
      try {
        Step(place);
      } catch (const PtxError& error) {
        throw Wrong("{}: {}", instructions_[place].text, error.what());
      }
    }
  }

 private:
  using Instruction = PtxKernel::Instruction;
  using Operand = PtxKernel::Operand;

  void Go(uint32_t place, const Threads& threads) {
    if (threads.any()) waiting_[place] |= threads;
  }

  void Activate(const Threads& threads) {
    active_ = threads;
    numbers_.clear();
    for (uint32_t i = 0; i < kThreads; ++i) {
      if (threads[i]) numbers_.push_back(i);
    }
  }

  uint64_t& Register(uint32_t number, uint32_t thread) {
    return registers_[size_t{number} * kThreads + thread];
  }

  void CheckWritten(const Operand& operand) const {
    if (operand.kind == Operand::Kind::kRegister && (active_ & ~written_[operand.number]).any()) {
      throw Wrong("a register that nobody has written");
    }
  }

  uint64_t Value(const Operand& operand, uint32_t thread) {
    switch (operand.kind) {
      case Operand::Kind::kRegister:
        return Register(operand.number, thread);
      case Operand::Kind::kConstant:
        return operand.constant;
      case Operand::Kind::kThread:
        return thread;
      case Operand::Kind::kBlock:
        return number_;
      case Operand::Kind::kGrid:
        return grid_;
    }
    return 0;
  }

  void Step(uint32_t place) {
    const Instruction& instruction = instructions_[place];
    for (const Operand& source : instruction.sources) CheckWritten(source);
    switch (instruction.kind) {
      case Instruction::Kind::kCompute:
        Compute(instruction);
        break;
      case Instruction::Kind::kLoad:
      case Instruction::Kind::kStore:
        Move(instruction);
        break;
      case Instruction::Kind::kBranch: {
        const Threads taken = Taken(instruction);
        Go(instruction.destination, taken);
        return Go(place + 1, active_ & ~taken);
      }
      case Instruction::Kind::kReturn:
        return;
    }
    for (const uint32_t target : instruction.targets) written_[target] |= active_;
    Go(place + 1, active_);
  }

  void Compute(const Instruction& instruction) {
    const auto& sources = instruction.sources;
    const Operand none;
    const Operand& a = sources[0];
    const Operand& b = sources.size() > 1 ? sources[1] : none;
    const Operand& c = sources.size() > 2 ? sources[2] : none;
    for (const uint32_t thread : numbers_) {
      Register(instruction.targets[0], thread) =
          instruction.function(Value(a, thread), Value(b, thread), Value(c, thread));
    }
  }

  Threads Taken(const Instruction& instruction) {
    if (instruction.sources.empty()) return active_;
    Threads taken;
    for (const uint32_t thread : numbers_) {
      if (Value(instruction.sources[0], thread) != 0) taken.set(thread);
    }
    return taken;
  }

  void Move(const Instruction& instruction) {
    CheckWritten(instruction.address);
    const size_t item = instruction.item;
    const bool is_load = instruction.kind == Instruction::Kind::kLoad;
    const size_t count = is_load ? instruction.targets.size() : instruction.sources.size();
    std::array<std::byte, 32> bytes;
    for (const uint32_t thread : numbers_) {
      const uint64_t address = Value(instruction.address, thread) + instruction.offset;
      const uint32_t id = number_ * kThreads + thread + 1;
      if (is_load) Load(instruction, address, bytes.data(), count * item, id);
      for (size_t i = 0; i < count; ++i) {
        std::byte* const here = bytes.data() + i * item;
        if (is_load) {
          Register(instruction.targets[i], thread) = Extended(here, item, instruction.is_signed);
        } else {
          std::memcpy(here, &Register(instruction.sources[i].number, thread), item);
        }
      }
      if (!is_load) memory_.Store(address, bytes.data(), count * item, id);
    }
  }

  void Load(const Instruction& instruction, uint64_t address, std::byte* target, size_t bytes,
            uint32_t thread) {
    if (!instruction.is_parameter) return memory_.Load(address, target, bytes, thread);
    if (address % bytes != 0 || address > parameter_.size() ||
        bytes > parameter_.size() - address) {
      throw Wrong("{} bytes at {} of the parameter, which has {}", bytes, address,
                  parameter_.size());
    }
    std::memcpy(target, parameter_.data() + address, bytes);
  }

  // As a register of 32 bits, or 64, has it.
  static uint64_t Extended(const std::byte* bytes, size_t item, bool is_signed) {
    uint64_t value = 0;
    std::memcpy(&value, bytes, item);
    const bool is_negative = is_signed && (value >> (8 * item - 1) & 1) != 0;
    return is_negative ? static_cast<uint32_t>(value | ~uint64_t{0} << 8 * item) : value;
  }

  const std::span<const Instruction> instructions_;
  const uint32_t number_;
  const uint32_t grid_;
  const std::span<const std::byte> parameter_;
  PtxMemory& memory_;
  std::vector<uint64_t> registers_;
  std::vector<Threads> written_;         // by register
  std::map<uint32_t, Threads> waiting_;  // by place
  Threads active_;
  std::vector<uint32_t> numbers_;  // of the active threads
};

}  // namespace

void PtxKernel::Launch(uint32_t blocks, std::span<const std::byte> parameter,
                       PtxMemory* memory) const {
  if (parameter.size() > parameter_bytes_) {
    throw Wrong("{} bytes of parameter, the kernel declares {}", parameter.size(),
                parameter_bytes_);
  }
  memory->BeginLaunch();
  for (uint32_t block = 0; block < blocks; ++block) {
    Block(instructions_, register_count_, block, blocks, parameter, memory).Run();
  }
}

}  // namespace tkv::test
