// The stores of the conformance suite.  A line below adds a store.

#include "tests/conformance/store_conformance.h"

namespace tkv {
namespace {

StoreOptions Threads(int threads) {
  StoreOptions options;
  options.threads = threads;
  return options;
}

StoreOptions Self(int servers) {
  StoreOptions options;
  options.bootstrap = "self";
  options.servers = servers;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreConformance,
    ::testing::Values(
        StoreSubject{"local", [] { return KVStore::Create("local"); }},
        StoreSubject{"device", [] { return KVStore::Create("device"); }},
        StoreSubject{"local_one_thread", [] { return KVStore::Create("local", Threads(1)); }},
        StoreSubject{"dist_sync", [] { return KVStore::Create("dist_sync", Self(2)); }, false},
        StoreSubject{"dist_async", [] { return KVStore::Create("dist_async", Self(1)); }, false}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tkv
