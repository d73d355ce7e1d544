#include "rendezvous.h"

#include <nanobind/stl/string.h>

#include "base/duration.h"
#include "base/format.h"
#include "gil.h"
#include "notices.h"
#include "raised.h"

namespace tkv::python {
namespace {

class PyRendezvous final : public Rendezvous {
 public:
  explicit PyRendezvous(nb::object store) : store_(std::move(store)) {
    for (const char* const name : {"set", "get", "wait"}) {
      if (AttributeOf(store_, name).is_valid()) continue;
      throw Fail(Code::kInvalidArgument,
                 "create: bootstrap is of type {} without {}(); 'self', or an object with set, get "
                 "and wait is needed",
                 TextOf(store_.type()), name);
    }
  }
  ~PyRendezvous() override {
    const Locked locked;
    store_.reset();
  }
  void Set(const std::string& key, const std::string& value) override {
    const Locked locked;
    const nb::object why =
        nb::module_::import_("tensorkv._store.bootstrap").attr("set_value")(store_, key, value);
    if (why.is_none()) return;
    throw Fail(Code::kUnavailable, "create: bootstrap: set {}: {}", key, TextOf(why));
  }
  std::string Get(const std::string& key, std::chrono::milliseconds longest) override {
    const auto deadline = DeadlineAfter(longest);
    std::string why;
    while (std::chrono::steady_clock::now() < deadline) {
      CheckSignals();
      const Locked locked;
      const auto answer = nb::cast<nb::tuple>(
          nb::module_::import_("tensorkv._store.bootstrap").attr("get_value")(store_, key, 0.2));
      if (!answer[0].is_none()) return TextOf(answer[0]);
      why = TextOf(answer[1]);
    }
    throw Fail(Code::kDeadlineExceeded, "bootstrap: {}: {}", key, why);
  }

 private:
  nb::object store_;
};

}  // namespace

std::shared_ptr<Rendezvous> RendezvousOf(nb::handle store) {
  return std::make_shared<PyRendezvous>(nb::borrow(store));
}

}  // namespace tkv::python
