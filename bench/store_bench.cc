// Measures a push and a pull of a small key, called from C++.  The bound is two copies of its
// bytes.

#include <benchmark/benchmark.h>

#include "tkv/kvstore.h"
#include "tkv/ops.h"

namespace {

void BM_PushPullOneKey(benchmark::State& state) {
  const auto store = tkv::KVStore::Create("local");
  const tkv::NDArray value = tkv::NDArray::Zeros({state.range(0) / 4});
  const tkv::NDArray out = tkv::NDArray::Zeros({state.range(0) / 4});
  store->Init(3, value);
  for (auto _ : state) {
    store->Push(3, value);
    store->Pull(3, out);
  }
}
BENCHMARK(BM_PushPullOneKey)->Arg(1 << 10)->Arg(64 << 10);

}  // namespace
