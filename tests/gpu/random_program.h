// Random update programs, and random values of every dtype.

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/format.h"
#include "kernels/kernels.h"
#include "kernels/operation.h"
#include "tkv/program.h"
#include "update/op_names.h"

namespace tkv::test {

using Random = std::mt19937_64;
using Bytes = std::vector<std::byte>;

template <typename T>
T OneOf(std::initializer_list<T> values, Random* random) {
  return values.begin()[(*random)() % values.size()];
}

// ----------------------------------------------------------------------------------------- values
template <typename T>
T RandomFloat(Random* random) {
  using Limits = std::numeric_limits<T>;
  const auto number = static_cast<T>(static_cast<double>((*random)() % 4001) / 1024 - 2);
  switch ((*random)() % 16) {
    case 0:
      return OneOf({Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), T{0}, -T{0},
                    Limits::denorm_min(), -Limits::denorm_min(), Limits::max(), Limits::lowest(),
                    Limits::min()},
                   random);
    case 1:  // any exponent
      return std::ldexp(number, static_cast<int>((*random)() % (2 * Limits::max_exponent)) -
                                    Limits::max_exponent);
    case 2:  // near the ends of float16
      return std::ldexp(number, OneOf({-24, -25, -14, 15}, random));
    default:
      return number;
  }
}

// Returns a 64-bit float near the middle between two neighbouring 16-bit floats.
inline double NearlyHalfWay(Random* random) {
  const double between = 1 + static_cast<double>((*random)() % 4096) / 4096;
  const double nearby = std::ldexp(1.0, -static_cast<int>(20 + (*random)() % 32));
  return between + OneOf({nearby, 0.0, -nearby}, random);
}

template <typename T>
T RandomInteger(Random* random) {
  using Limits = std::numeric_limits<T>;
  switch ((*random)() % 4) {
    case 0:
      return OneOf({Limits::min(), Limits::max(), T{0}, T{1}}, random);
    case 1:
      return static_cast<T>((*random)());
    default:
      return static_cast<T>((*random)() % 40);
  }
}

template <typename T>
void Append(T value, Bytes* bytes) {
  const auto raw = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  bytes->insert(bytes->end(), raw.begin(), raw.end());
}

inline void AppendRandom(DType dtype, Random* random, Bytes* bytes) {
  switch (dtype) {
    case DType::kF32:
      return Append(RandomFloat<float>(random), bytes);
    case DType::kF64:
      return Append((*random)() % 4 == 0 ? NearlyHalfWay(random) : RandomFloat<double>(random),
                    bytes);
    case DType::kF16:
    case DType::kBF16: {
      const float wide = RandomFloat<float>(random);
      uint16_t bits = 0;
      kernels::Convert(DType::kF32, &wide, dtype, &bits, 1);
      return Append((*random)() % 16 == 0 ? static_cast<uint16_t>((*random)()) : bits, bytes);
    }
    case DType::kI8:
      return Append(RandomInteger<int8_t>(random), bytes);
    case DType::kU8:
      return Append(RandomInteger<uint8_t>(random), bytes);
    case DType::kI16:
      return Append(RandomInteger<int16_t>(random), bytes);
    case DType::kI32:
      return Append(RandomInteger<int32_t>(random), bytes);
    default:
      return Append(RandomInteger<int64_t>(random), bytes);
  }
}

// Returns the default parameters, changed where a default would make an instruction a no-op.
inline std::vector<double> LivelyParams(const Program& program) {
  std::vector<double> params;
  for (const Program::Param& param : program.params()) {
    params.push_back(param.name == "wd"                ? 0.01
                     : param.name == "rescale_grad"    ? 0.3
                     : param.name.starts_with("clip_") ? 1.5
                     : param.name == "learning_rate"   ? 0.1
                                                       : param.value);
  }
  return params;
}

// -------------------------------------------------------------------------------- random programs
class RandomProgram {
 public:
  RandomProgram(DType dtype, Random* random) : is_float_(IsFloat(dtype)), random_(*random) {
    Add("program random");
    for (int i = 0; i < 2; ++i) {
      Add(Format("param p{} {}", i, Number()));
      scalars_.push_back(Format("p{}", i));
    }
    const size_t states = random_() % 4;
    for (size_t i = 0; i < states; ++i) {
      arrays_.push_back(Format("s{}", i));
      Add(Format("state {}", arrays_.back()));
    }
    if (is_float_) {
      Add("c0 = sqrt t\nc1 = div p0 n\nc2 = sub p1 c1");
      scalars_.insert(scalars_.end(), {"t", "n", "c0", "c1", "c2"});
    }
    const size_t length = 1 + random_() % 16;
    for (size_t i = 0; i < length; ++i) Instruction(i);
    Add(Format("value <- {}", AnArray()));
    for (size_t i = 0; i < states; ++i) {
      if (random_() % 3 != 0) Add(Format("s{} <- {}", i, AnArray()));
    }
  }

  const std::string& text() const { return text_; }

 private:
  void Add(const std::string& line) { text_ += Format("{}\n", line); }

  std::string Number() {
    if (!is_float_) return Format("{}", random_() % 100);
    return OneOf<std::string>({"0.1", "-2.5", "1", "0", "inf", "1e-8", "0.999", "-0.0", "3e38"},
                              &random_);
  }

  std::string AnArray() {
    const size_t recent = std::min<size_t>(arrays_.size(), 6);
    return random_() % 2 == 0 ? arrays_[random_() % arrays_.size()]
                              : arrays_[arrays_.size() - 1 - random_() % recent];
  }

  std::string AScalar() {
    return random_() % 3 == 0 ? Number() : scalars_[random_() % scalars_.size()];
  }

  void Instruction(size_t number) {
    const NamedOp* named = nullptr;
    do {
      named = &kNamedOps[random_() % std::size(kNamedOps)];
    } while (kernels::IsOfScalarsOnly(named->op) || (!is_float_ && named->op >= kernels::Op::kDiv));
    const auto arity = static_cast<size_t>(kernels::Arity(named->op));
    const size_t array = random_() % arity;  // one operand at least is an array
    std::string line = Format("x{} = {}", number, named->name);
    for (size_t i = 0; i < arity; ++i) {
      line += Format(" {}", i == array || random_() % 3 != 0 ? AnArray() : AScalar());
    }
    Add(line);
    arrays_.push_back(Format("x{}", number));
  }

  const bool is_float_;
  Random& random_;
  std::string text_;
  std::vector<std::string> arrays_ = {"sum", "value"};
  std::vector<std::string> scalars_;
};

}  // namespace tkv::test
