// tensorkv._core.Operation, and the waker for tasks that await one; see tensorkv/ticket.py.

#include "ticket.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/duration.h"
#include "base/format.h"
#include "batch.h"
#include "gil.h"
#include "notices.h"
#include "raised.h"

namespace tkv::python {
namespace {

thread_local std::shared_ptr<Interruption> interruption_of_thread;

// Python objects hold these classes, each with a pointer.  A shared_ptr made by nanobind would own
// the Python object.  A store's thread that dropped the last one would then wait for the GIL.
struct PyOperation {
  Ticket core;
  nb::object tensors = {};  // PyTorch tensors that it writes to, until a wait finds it done
};

struct PyWaker {
  std::shared_ptr<Waker> core = std::make_shared<Waker>();
};

struct PyInterruption {
  std::shared_ptr<Interruption> core = std::make_shared<Interruption>();
};

double SecondsOf(nb::handle given) {
  const double seconds = PyFloat_AsDouble(given.ptr());
  if (seconds != -1.0 || PyErr_Occurred() == nullptr) return seconds;
  ClearError();
  throw nb::type_error("a number of seconds is needed");
}

std::optional<std::pair<std::string, std::string>> FailureOf(const PyOperation& self) {
  const std::optional<Error> error = self.core->failure();
  if (!error) return std::nullopt;
  return std::pair(std::string(Name(error->code())), std::string(error->what()));
}

}  // namespace

Waker::Waker() : file_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (file_ < 0) throw Fail(Code::kResourceExhausted, "await: eventfd: {}", std::strerror(errno));
}

Waker::~Waker() {
  AllNotices().Forget(this);
  close(file_);
}

void Waker::Add(uint64_t id) noexcept {
  {
    std::lock_guard lock(mutex_);
    ended_.push_back(id);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(file_, &one, sizeof one);
}

std::vector<uint64_t> Waker::Take() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(file_, &count, sizeof count);
  std::lock_guard lock(mutex_);
  return std::exchange(ended_, {});
}

void CheckInterruption() {
  if (interruption_of_thread != nullptr && interruption_of_thread->is_asked) {
    throw Fail(Code::kCancelled, "cancelled by its caller");
  }
}

nb::object ToPython(Ticket ticket, nb::object tensors) {
  NoteWritten(tensors);
  return nb::cast(PyOperation{std::move(ticket), std::move(tensors)});
}

void BindTicket(nb::module_& m) {
  m.def(
      "seconds",
      [](nb::handle seconds, const std::string& verb, const std::string& argument) {
        return std::chrono::duration<double>(FromSeconds(SecondsOf(seconds), verb, argument))
            .count();
      },
      nb::arg("seconds"), nb::arg("verb"), nb::arg("argument"),
      nb::sig("def seconds(seconds: float, verb: str, argument: str) -> float"),
      "Returns a duration that a user has given, bounded; refuses negative ones and NaN.");
  nb::class_<PyWaker>(m, "Waker",
                      "Ids of operations that have ended, and a file that can be read then.")
      .def(nb::init<>())
      .def("fileno", [](const PyWaker& self) { return self.core->file(); })
      .def(
          "add", [](const PyWaker& self, uint64_t id) { self.core->Add(id); }, nb::arg("id"))
      .def("take", [](const PyWaker& self) { return self.core->Take(); })
      .def(
          "wake_for_notices",
          [](const PyWaker& self, uint64_t id) { AllNotices().Wake(self.core.get(), id); },
          nb::arg("id"), "Each notice of a store adds the id from now on.");
  nb::class_<PyInterruption>(m, "Interruption", "Ends what the thread that enters it waits for.")
      .def(nb::init<>())
      .def("ask", [](const PyInterruption& self) { self.core->is_asked = true; })
      .def("enter", [](const PyInterruption& self) { interruption_of_thread = self.core; })
      .def_static("leave", [] { interruption_of_thread.reset(); });
  nb::class_<PyOperation>(m, "Operation", "An operation of a store; see tensorkv.Ticket.")
      .def("done", [](PyOperation& self) { return self.core->done(); })
      .def(
          "wait",
          [](PyOperation& self, nb::handle timeout) {
            const auto patience = timeout.is_none()
                                      ? kLongestWait
                                      : FromSeconds(SecondsOf(timeout), "wait", "timeout");
            const Ticket core = self.core;
            {
              const Unlocked unlocked;
              core->Wait(patience);
            }
            NoteWritten(std::exchange(self.tensors, {}));
          },
          nb::arg("timeout") = nb::none(),
          nb::sig("def wait(self, timeout: float | None = None) -> None"))
      .def("cancel",
           [](PyOperation& self) {
             const Ticket core = self.core;
             const Unlocked unlocked;
             return core->Cancel();
           })
      .def(
          "on_end",
          [](PyOperation& self, const PyWaker& waker, uint64_t id) {
            const Ticket core = self.core;
            const std::shared_ptr<Waker> told = waker.core;
            const Unlocked unlocked;
            core->OnEnd([told, id] { told->Add(id); });
          },
          nb::arg("waker"), nb::arg("id"))
      .def("failure", &FailureOf)
      .def("saved_path", [](const PyOperation& self) { return self.core->saved_path(); });
}

}  // namespace tkv::python
