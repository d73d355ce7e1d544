// tensorkv._core.role, serve: jobs of several processes.

#include "tkv/job.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "gil.h"

namespace tkv::python {

void BindJob(nb::module_& m) {
  m.def(
      "role",
      []() -> std::optional<std::string> {
        if (!IsLaunched()) return std::nullopt;
        return Name(JobFromEnvironment().role);
      },
      "Returns what this process is in its job, 'worker', 'server' or 'head'; None without a "
      "launcher.");
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
