// tensorkv._core.role, serve: jobs of several processes.

#include "tkv/job.h"

#include <algorithm>
#include <utility>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/format.h"
#include "bindings.h"
#include "gil.h"

namespace tkv::python {
namespace {

// A head or a server on a thread of this process, until the object is dropped or stopped.
struct PyService {
  std::shared_ptr<Service> core;
  std::string url;

  // Returns a shared pointer, because another thread may stop the service meanwhile.
  std::shared_ptr<Service> Get(const char* verb) const {
    if (core != nullptr) return core;
    throw Fail(Code::kFailedPrecondition, "{}: this service has been stopped", verb);
  }
};

Job::Role RoleOf(const std::string& name) {
  for (const Job::Role role : {Job::Role::kWorker, Job::Role::kServer, Job::Role::kHead}) {
    if (name == Name(role)) return role;
  }
  throw Fail(Code::kInvalidArgument, "role '{}'; there are worker, server and head", name);
}

// Starts a head or a server.  A head's `url` is empty, because the head chooses its address.
void StartService(PyService* self, const std::string& role, const std::string& name,
                  const std::string& url, const std::string& token, int rank, int workers,
                  int servers, const nb::dict& given) {
  const StoreOptions options = ParseOptions(given, "dist_sync");
  Job job = url.empty() ? Job() : JobOfUrl(url);
  static_cast<NetworkOptions&>(job) = options;
  job.role = RoleOf(role);
  job.id = name;
  job.token = token;
  job.rank = rank;
  job.workers = workers;
  job.servers = servers;
  if (!options.on_death.empty()) job.on_death = options.on_death;
  if (job.role == Job::Role::kHead) job.head = NewHeadAddress(job);
  PyService made;
  {
    const Unlocked unlocked;
    made.core = Service::Start(job, options.log, options.server_patience);
  }
  if (job.role == Job::Role::kHead) job.head = made.core->address();
  made.url = UrlOf(job);
  new (self) PyService(std::move(made));
}

}  // namespace

void BindJob(nb::module_& m) {
  m.def(
      "role",
      []() -> std::optional<std::string> {
        if (!IsLaunched()) return std::nullopt;
        return Name(JobFromEnvironment().role);
      },
      "Returns what this process is in its job, 'worker', 'server', 'head' or 'observer'; None "
      "without a "
      "launcher.");
  m.def("new_token", &NewToken, "Returns a fresh secret for a job.");
  m.def(
      "job_signs",
      [] {
        std::vector<std::string> texts;
        for (const JobSign& sign : JobSigns()) texts.push_back(sign.text);
        return texts;
      },
      "Returns what in the environment says which job this process belongs to, first what "
      "decides.");
  nb::class_<PyService>(m, "Service", "A head or a server on a thread of this process.")
      .def("__init__", &StartService, nb::arg("role"), nb::arg("name"), nb::arg("url"),
           nb::arg("token"), nb::arg("rank"), nb::arg("workers"), nb::arg("servers"),
           nb::arg("options"),
           nb::sig("def __init__(self, role: str, name: str, url: str, token: str, rank: int, "
                   "workers: int, "
                   "servers: int, options: dict[str, object]) -> None"))
      .def_prop_ro("url", [](const PyService& self) { return self.url; })
      .def_prop_ro(
          "address", [](const PyService& self) { return self.Get("address")->address(); },
          "Where it listens, as TKV_HEAD names it where it is the head.")
      .def(
          "wait",
          [](const PyService& self, double seconds) {
            const auto core = self.Get("wait");
            constexpr double kLongest = 1e6;
            const double bounded = seconds > 0 ? std::min(seconds, kLongest) : 0;
            const auto longest = std::chrono::milliseconds(static_cast<int64_t>(bounded * 1000));
            const Unlocked unlocked;
            return core->Wait(longest);
          },
          nb::arg("seconds"), "Returns whether it is of no more use: every worker has left.")
      .def(
          "exited",
          [](const PyService& self, const std::string& role, int index) {
            const auto core = self.Get("exited");
            const Unlocked unlocked;
            core->Exited(RoleOf(role), index);
          },
          nb::arg("role"), nb::arg("index"), "Tells a head that a process has ended.")
      .def(
          "gone",
          [](const PyService& self, const std::string& role, int index, bool has_failed) {
            const auto core = self.Get("gone");
            const Unlocked unlocked;
            core->Gone(RoleOf(role), index, has_failed);
          },
          nb::arg("role"), nb::arg("index"), nb::arg("has_failed"),
          "Tells a head that no later process takes the place of one that has ended.")
      .def("stop", [](PyService& self) {
        auto core = std::exchange(self.core, nullptr);
        const Unlocked unlocked;
        core.reset();
      });
  m.def(
      "has_snapshot",
      [](const std::string& folder) {
        const Unlocked unlocked;
        return KVStore::HasSnapshot(folder);
      },
      nb::arg("folder"), "Returns whether a load would find a snapshot there.");
  m.def("is_in_group", &IsInGroup, "Returns whether an MPI launcher has started this process.");
  m.def(
      "serve",
      [] {
        const StoreOptions options = ParseOptions({}, "dist_sync");
        const Unlocked unlocked;
        const auto service = Service::StartFromEnvironment(options);
        while (!service->Wait(std::chrono::milliseconds(50))) options.interrupt();
      },
      "Serves as the environment says, until all workers have left.");
}

}  // namespace tkv::python
