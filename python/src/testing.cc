// tensorkv._core.Cluster: a job among the threads of this process.

#include "tkv/testing.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "gil.h"

namespace tkv::python {

void BindTesting(nb::module_& m) {
  using testing::Cluster;
  nb::class_<Cluster>(m, "Cluster", "Servers and head of a job; see tensorkv.testing.cluster.")
      .def(
          "__init__",
          [](Cluster* self, int workers, int servers, const std::string& type,
             const nb::dict& options) {
            nb::dict all = options;
            all["bootstrap"] = "self";  // its options are those of a job in one process
            testing::ClusterOptions cluster{workers, servers, type, ParseOptions(all, type)};
            const Unlocked unlocked;
            new (self) Cluster(cluster);
          },
          nb::arg("workers"), nb::arg("servers"), nb::arg("type"), nb::arg("options"))
      .def(
          "kill_server",
          [](Cluster& self, int index) {
            const Unlocked unlocked;
            self.KillServer(index);
          },
          nb::arg("index"), "Ends a server, as if its process had died.")
      .def(
          "kill_head",
          [](Cluster& self) {
            const Unlocked unlocked;
            self.KillHead();
          },
          "Ends the head: data goes on, nobody joins any more.");
}

}  // namespace tkv::python
