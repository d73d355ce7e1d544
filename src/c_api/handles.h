// The objects behind the opaque handles of tkv.h.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c_api/boundary.h"
#include "tkv/kvstore.h"

namespace tkv::c_api {

struct Counted {
  std::atomic<uint32_t> count{1};
};

template <typename Handle>
Handle* Retain(Handle* handle) {
  if (handle != nullptr) handle->count.fetch_add(1, std::memory_order_relaxed);
  return handle;
}

template <typename Handle>
void Release(Handle* handle) {
  if (handle != nullptr && handle->count.fetch_sub(1, std::memory_order_acq_rel) == 1)
    delete handle;
}

// The caller's context of a callback, or owner of memory.  The library frees it when it is no
// longer needed, but only if Keep was called before; until then it belongs to the caller.
class UserContext {
 public:
  explicit UserContext(void* context) : context_(context) {}
  ~UserContext() {
    if (free_ != nullptr) free_(context_);
  }
  UserContext(const UserContext&) = delete;
  UserContext& operator=(const UserContext&) = delete;

  void* get() const { return context_; }
  void Keep(tkv_free free) { free_ = free; }

 private:
  void* const context_;
  tkv_free free_ = nullptr;
};

}  // namespace tkv::c_api

struct tkv_error : tkv::c_api::Counted {
  tkv_error(tkv_code number, const char* text) : code(number), message(text) {}
  const tkv_code code;
  const std::string message;
};

struct tkv_text {
  std::string core;
};

struct tkv_array : tkv::c_api::Counted {
  explicit tkv_array(tkv::NDArray array) : core(std::move(array)) {}
  const tkv::NDArray core;
};

struct tkv_optimizer : tkv::c_api::Counted {
  explicit tkv_optimizer(std::shared_ptr<tkv::Optimizer> optimizer) : core(std::move(optimizer)) {}
  const std::shared_ptr<tkv::Optimizer> core;
};

struct tkv_store : tkv::c_api::Counted {
  explicit tkv_store(std::unique_ptr<tkv::KVStore> store) : core(std::move(store)) {}
  const std::unique_ptr<tkv::KVStore> core;
};

struct tkv_ticket : tkv::c_api::Counted {
  explicit tkv_ticket(tkv::Ticket ticket) : core(std::move(ticket)) {}
  const tkv::Ticket core;
};

struct tkv_keys {
  explicit tkv_keys(std::vector<tkv::Key> list);
  const std::vector<tkv::Key> owned;
  std::vector<tkv_key> views;
};

namespace tkv::c_api {

// Returns the store of a handle.
inline KVStore& StoreOf(tkv_store* store, const char* verb) {
  return *Core(store, verb, "the store");
}
inline const NDArray& ArrayOf(const tkv_array* array, const char* verb) {
  return Core(array, verb, "the array");
}

// Makes a handle for the result of `make`.  Checks `out` before it calls `make`.
template <typename Handle, typename Make>
tkv_code Give(Handle** out, tkv_error** error, const char* verb, Make make) {
  return Try(error, [&] {
    CheckNotNull(out, verb, "the place for the result");
    *out = new Handle{make()};
  });
}

// The same for a plain value.
template <typename Value, typename Get>
tkv_code Put(Value* out, tkv_error** error, const char* verb, Get get) {
  return Try(error, [&] {
    CheckNotNull(out, verb, "the place for the result");
    *out = static_cast<Value>(get());
  });
}

}  // namespace tkv::c_api
