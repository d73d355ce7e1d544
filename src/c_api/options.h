// The options of new stores and servers.

#pragma once

#include <memory>

#include "c_api/handles.h"
#include "tkv/options.h"

namespace tkv::c_api {

// The caller's options with the contexts of their callbacks.
class Options {
 public:
  //   type    of the new store
  //   throws  kInvalidArgument  as SetArguments, and for values in the environment
  Options(const tkv_store_options* given, std::string_view type, const char* verb);

  const StoreOptions& core() const { return core_; }
  // Makes the library the owner of the contexts.
  void Keep();

 private:
  tkv_store_options given_;
  StoreOptions core_;
  std::shared_ptr<UserContext> log_, interrupt_;
};

}  // namespace tkv::c_api
