// What stores and servers are made with.

#pragma once

#include <memory>

#include "c_api/handles.h"
#include "tkv/options.h"

namespace tkv::c_api {

// Options of the caller's with the contexts of their callbacks.
class Options {
 public:
  //   type    of the store that is made
  //   throws  kInvalidArgument  as SetArguments, and for what is in the environment
  Options(const tkv_store_options* given, std::string_view type, const char* verb);

  const StoreOptions& core() const { return core_; }
  // The contexts are the library's from now on.
  void Keep();

 private:
  tkv_store_options given_;
  StoreOptions core_;
  std::shared_ptr<UserContext> log_, interrupt_;
};

}  // namespace tkv::c_api
