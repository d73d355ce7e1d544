// tkv server, tkv head.

#include "serve.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "interrupt.h"
#include "tkv/config.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

constexpr std::chrono::milliseconds kWaitSlice{400};  // the interval of checks for a signal

void SetUnlessEmpty(const char* variable, const std::string& value) {
  if (!value.empty()) setenv(variable, value.c_str(), 1);
}

std::string TextOf(int value) { return value < 0 ? std::string() : std::to_string(value); }

//   throws  kInvalidArgument  an option that contradicts the variables of `who`
void CheckNothingIsGiven(const ServeOptions& given, const char* who) {
  if (given.id.empty() && given.workers < 0 && given.servers < 0 && given.rank < 0) return;
  throw Error(Code::kInvalidArgument,
              std::string(Name(given.role)) + ": --job, --workers, --servers and --rank have no " +
                  "effect here, where " + who + " says who takes part; --head names another job");
}

std::unique_ptr<Service> Start(const ServeOptions& given, const StoreOptions& options) {
  // A server joins the group of an MPI launcher unless something else names the head.
  const std::vector<JobSign> signs = JobSigns();
  const bool is_dmlc = !signs.empty() && signs[0].by == JobSign::By::kMxnet && given.head.empty();
  const bool is_of_group =
      given.role == Job::Role::kServer && given.head.empty() && !IsLaunched() && IsInGroup();
  if (is_dmlc || is_of_group) CheckNothingIsGiven(given, is_dmlc ? "DMLC_*" : "mpirun or srun");
  SetUnlessEmpty("TKV_HEAD", given.head);
  SetUnlessEmpty("TKV_JOB", given.id);
  SetUnlessEmpty("TKV_WORKERS", TextOf(given.workers));
  SetUnlessEmpty("TKV_SERVERS", TextOf(given.servers));
  SetUnlessEmpty("TKV_RANK", TextOf(given.rank));
  if (!is_of_group && !is_dmlc) setenv("TKV_ROLE", Name(given.role), 1);
  return Service::StartFromEnvironment(options);
}

void SayWhereItListens(Job::Role role, const std::string& address, Form form) {
  if (form == Form::kJson) {
    Print(JsonObject("listening").Add("role", Name(role)).Add("address", address));
    return;
  }
  std::printf("%s listens at %s\n", Name(role), address.c_str());
  std::fflush(stdout);
}

}  // namespace

int RunServe(const ServeOptions& given, Form form) {
  // Schedulers send these signals to all processes before the job's time is up.  A server continues
  // until its workers leave.
  std::signal(SIGUSR1, SIG_IGN);
  std::signal(SIGUSR2, SIG_IGN);
  StoreOptions options = OptionsFromEnvironment();
  options.interrupt = InterruptBySignal();
  try {
    const auto service = Start(given, options);
    if (!given.quiet) SayWhereItListens(given.role, service->address(), form);
    while (!service->Wait(kWaitSlice)) options.interrupt();
  } catch (const Error&) {
    if (SignalThatCame() == 0) throw;
    return 128 + SignalThatCame();
  }
  return 0;
}

}  // namespace tkv::cli
