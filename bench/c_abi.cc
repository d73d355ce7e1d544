// Compares calls of the C interface with the same calls in C++: a push and a pull of 1 KiB in one
// process, by each in turn.  The bound is the call in C++.
//
//   c_abi CALLS REPETITIONS     prints, for each repetition, nanoseconds in C++ and in C

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tkv/kvstore.h"
#include "tkv/ops.h"
#include "tkv/tkv.h"

namespace {

constexpr int64_t kCount = 256;  // floats: 1 KiB

// Returns the nanoseconds of one call of f.
template <typename F>
double Time(int calls, F f) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) f();
  const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - begin;
  return passed.count() / calls;
}

class Cpp {
 public:
  Cpp() { store_->Init("w", value_); }
  void PushAndPull() {
    const tkv::PushItem push{"w", values_};
    const tkv::PullItem pull{"w", outs_};
    store_->Push({&push, 1});
    store_->Pull({&pull, 1});
  }
  void Give(double value) { tkv::Fill(value_, value); }
  float Got() const { return static_cast<const float*>(out_.data())[kCount - 1]; }

 private:
  const std::unique_ptr<tkv::KVStore> store_ = tkv::KVStore::Create("local");
  const tkv::NDArray value_ = tkv::NDArray::Zeros({kCount}), out_ = value_.Copy();
  const tkv::NDArray* const values_[1] = {&value_};
  const tkv::NDArray* const outs_[1] = {&out_};
};

void Must(tkv_code code) {
  if (code == TKV_OK) return;
  std::fprintf(stderr, "c_abi: %s\n", tkv_code_name(code));
  std::exit(1);
}

class C {
 public:
  C() {
    const tkv_context cpu = {TKV_CPU, 0};
    Must(tkv_store_create("local", nullptr, &store_, nullptr));
    Must(tkv_array_full(&kCount, 1, TKV_F32, cpu, 0, &value_, nullptr));
    Must(tkv_array_copy(value_, &out_, nullptr));
    const tkv_item item = ItemOf(&value_);
    Must(tkv_store_init(store_, &item, 1, nullptr));
  }
  ~C() {
    tkv_array_release(value_);
    tkv_array_release(out_);
    tkv_store_release(store_);
  }
  C(const C&) = delete;
  C& operator=(const C&) = delete;
  void PushAndPull() {
    const tkv_item push = ItemOf(&value_), pull = ItemOf(&out_);
    tkv_error* error = nullptr;
    Must(tkv_store_push(store_, &push, 1, &error));
    Must(tkv_store_pull(store_, &pull, 1, &error));
  }
  void Give(double value) { Must(tkv_array_fill(value_, value, nullptr)); }
  float Got() const {
    float elements[kCount];
    Must(tkv_array_read(out_, elements, sizeof elements, nullptr));
    return elements[kCount - 1];
  }

 private:
  static tkv_item ItemOf(tkv_array* const* array) { return {{"w", 0}, array, 1, 0, nullptr}; }

  tkv_store* store_ = nullptr;
  tkv_array* value_ = nullptr;
  tkv_array* out_ = nullptr;
};

// Returns true if a pull returns the pushed value.
template <typename Side>
bool Works(Side* side) {
  side->Give(3);
  side->PushAndPull();
  return side->Got() == 3;
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc == 3 ? std::atoi(argv[1]) : 0;
  const int repetitions = argc == 3 ? std::atoi(argv[2]) : 0;
  if (calls < 1 || repetitions < 1) {
    std::fprintf(stderr, "usage: c_abi CALLS REPETITIONS\n");
    return 2;
  }
  Cpp cpp;
  C c;
  if (!Works(&cpp) || !Works(&c)) {
    std::fprintf(stderr, "c_abi: a pull gives something else than was pushed\n");
    return 1;
  }
  for (int i = 0; i < repetitions; ++i) {
    const double cpp_ns = Time(calls, [&] { cpp.PushAndPull(); });
    const double c_ns = Time(calls, [&] { c.PushAndPull(); });
    std::printf("%.1f %.1f\n", cpp_ns, c_ns);
  }
  return 0;
}
