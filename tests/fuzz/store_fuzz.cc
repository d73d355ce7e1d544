// Makes random calls on a store and on a model in plain C++.  After every call the values must be
// equal.  A call that fails must change nothing.

#include <cstdint>
#include <cstdlib>
#include <map>
#include <vector>

#include "store/local_store.h"
#include "tests/fuzz/reader.h"
#include "tkv/error.h"
#include "tkv/kvstore.h"
#include "tkv/ops.h"

namespace {

using tkv::NDArray;
using tkv::test::Reader;

NDArray Array(int64_t count, double value) {
  const NDArray array = NDArray::Empty({count});
  tkv::Fill(array, value);
  return array;
}

struct ModelKey {
  int64_t count;
  float value;
};

void Check(tkv::KVStore& store, const std::map<int64_t, ModelKey>& model) {
  if (store.size() != model.size()) std::abort();
  for (const auto& [key, expected] : model) {
    const NDArray out = Array(expected.count, -1);
    store.Pull(key, out);
    for (int64_t i = 0; i < expected.count; ++i) {
      if (static_cast<const float*>(out.data())[i] != expected.value) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Reader in{data, size};
  const auto store = tkv::MakeLocalStore("local", {});
  std::map<int64_t, ModelKey> model;
  bool adds = false;
  for (int step = 0; step < 40 && in.size > 0; ++step) {
    const uint8_t verb = in.Next() % 6;
    const int64_t key = in.Next() % 6;
    const int64_t count = in.Next() % 4;
    const size_t values = in.Next() % 4;
    const auto found = model.find(key);
    std::vector<NDArray> list;
    float sum = 0;
    for (size_t i = 0; i < values; ++i) {
      list.push_back(Array(count, static_cast<double>(i + 1)));
      sum += static_cast<float>(i + 1);
    }
    const bool valid = found != model.end() && found->second.count == count && values > 0;
    try {
      if (verb == 0) {
        store->Init(key, Array(count, 7));
        if (found != model.end()) std::abort();
        model[key] = {count, 7};
      } else if (verb == 1 || verb == 2) {
        if (verb == 1) store->Push(key, list);
        if (verb == 2) store->PushPull(key, list, list);
        if (!valid) std::abort();
        found->second.value = adds ? found->second.value + sum : sum;
        if (verb == 2 && count > 0 &&
            *static_cast<const float*>(list[0].data()) != found->second.value)
          std::abort();
      } else if (verb == 3) {
        store->Pull(key, list);
        if (!valid) std::abort();
      } else if (verb == 4) {
        adds = true;
        store->SetOptimizer(tkv::Optimizer::Create("test"));
      } else {
        adds = false;
        store->SetUpdater(nullptr);
      }
    } catch (const tkv::Error&) {
      if (verb >= 4 || (verb == 0 && found == model.end()) || (verb > 0 && valid)) std::abort();
    }
    Check(*store, model);
  }
  return 0;
}
