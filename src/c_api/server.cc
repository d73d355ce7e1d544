// tkv_server_run, and the role of this process in its job.

#include <chrono>

#include "c_api/options.h"
#include "tkv/job.h"

using namespace tkv::c_api;

tkv_code tkv_server_run(const tkv_store_options* options, tkv_error** error) {
  return Try(error, [&] {
    Options given(options, "dist_sync", "server");
    const tkv::StoreOptions& core = given.core();
    const auto service = tkv::Service::StartFromEnvironment(core);
    while (!service->Wait(std::chrono::milliseconds(50))) {
      if (core.interrupt) core.interrupt();
    }
    given.Keep();
  });
}

tkv_code tkv_process_role(tkv_text** role, tkv_error** error) {
  return Give(role, error, "role", [] {
    return std::string(tkv::IsLaunched() ? tkv::Name(tkv::JobFromEnvironment().role) : "");
  });
}
