// The C++ side of bench/jvm.py: a push and a pull of wrapped memory, as Java does them.
//
// Reads lines "BYTES COUNT" and answers each with the nanoseconds of a push and a pull, the best of the
// repetitions; the script asks this process and Java in turn.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

#include "tkv/kvstore.h"

namespace {

constexpr int kRepetitions = 5;

double Nanoseconds(int64_t bytes, int64_t count) {
  const tkv::Shape shape{bytes / 4};
  const auto store = tkv::KVStore::Create("local");
  std::vector<float> value(static_cast<size_t>(bytes / 4), 1.0f), out(value.size());
  const auto wrap = [&](std::vector<float>& memory) {
    return tkv::NDArray::Wrap(memory.data(), shape, tkv::DType::kF32, tkv::Context::Cpu(), false,
                              nullptr);
  };
  const tkv::NDArray value_array = wrap(value), out_array = wrap(out);
  const tkv::KeyView key("w");
  store->Init(key, value_array);

  double best = 0;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i) {
      store->Push(key, value_array);
      store->Pull(key, out_array);
    }
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    const double each = taken.count() / static_cast<double>(count);
    best = repetition == 0 ? each : std::min(best, each);
  }
  return out == value ? best : -1;
}

}  // namespace

int main() {
  int64_t bytes = 0, count = 0;
  while (std::cin >> bytes >> count) std::cout << Nanoseconds(bytes, count) << std::endl;
}
