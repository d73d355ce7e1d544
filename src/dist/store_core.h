// The parts of a store that all classes of it share.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "dist/store_calls.h"
#include "dist/store_keys.h"
#include "job/worker.h"
#include "tkv/kvstore.h"

namespace tkv {

struct StoreCore {
  StoreCore(const StoreOptions& of_store, std::shared_ptr<Worker> of_job, uint32_t number_of_store)
      : options(of_store), worker(std::move(of_job)), number(number_of_store) {}

  // Locks the keys of an open store.
  //   throws  kFailedPrecondition  as StoreCalls::CheckOpen
  std::unique_lock<std::mutex> Lock(std::string_view verb) const { return keys.Lock(verb); }

  const StoreOptions options;
  const std::shared_ptr<Worker> worker;
  const uint32_t number;  // among the stores of the worker, in the order of create()
  StoreCalls calls{worker, number, options};
  StoreKeys keys{&calls};  // its mutex guards members of other classes that say so
};

}  // namespace tkv
