// tkv server, tkv head.

#include "serve.h"

#include <csignal>
#include <cstdio>

#include "tkv/config.h"

namespace tkv::cli {
namespace {

volatile std::sig_atomic_t asked_to_end = 0;

}  // namespace

int Serve(const Job& job, bool quiet) {
  std::signal(SIGINT, [](int signal) { asked_to_end = signal; });
  std::signal(SIGTERM, [](int signal) { asked_to_end = signal; });
  const StoreOptions options = OptionsFromEnvironment();
  const bool is_in_group = job.head.empty() && job.role == Job::Role::kServer;
  const auto service = is_in_group ? Service::StartInGroup(options)
                                   : Service::Start(job, options.log, options.server_patience);
  if (!quiet) std::printf("%s listens at %s\n", Name(job.role), service->address().c_str());
  std::fflush(stdout);
  while (!service->Wait(std::chrono::milliseconds(100))) {
    if (asked_to_end != 0) return 128 + asked_to_end;
  }
  return 0;
}

}  // namespace tkv::cli
