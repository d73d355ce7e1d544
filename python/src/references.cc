// The references of many Python objects at one time, for the search for changes that a call makes.

#include <nanobind/nanobind.h>

#include <new>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bindings.h"

namespace tkv::python {
namespace {

// Calls `visit(PyObject*)` for each object that an object refers to, as gc.get_referents does.
//   throws  std::bad_alloc  from `visit`, after Python's own loop over the referents has ended
template <typename Visit>
void ForEachReferent(PyObject* object, Visit visit) {
  if ((PyType_GetFlags(Py_TYPE(object)) & Py_TPFLAGS_HAVE_GC) == 0) return;
  const auto traverse =
      reinterpret_cast<traverseproc>(PyType_GetSlot(Py_TYPE(object), Py_tp_traverse));
  if (traverse == nullptr) return;
  const auto visit_until_memory_lacks = [](PyObject* referent, void* argument) noexcept {
    try {
      (*static_cast<Visit*>(argument))(referent);
      return 0;
    } catch (const std::bad_alloc&) {
      return -1;
    }
  };
  if (traverse(object, visit_until_memory_lacks, &visit) != 0) throw std::bad_alloc();
}

// A set of classes.  Goes by their addresses: the hash of a class may be code of its metaclass.
class Kinds {
 public:
  explicit Kinds(const nb::sequence& kinds) {
    for (const nb::handle kind : kinds) kinds_.insert(kind.ptr());
  }
  // Returns true if the exact class of an object is one of them.
  bool Has(PyObject* object) const { return kinds_.contains(Py_TYPE(object)); }

 private:
  std::unordered_set<const void*> kinds_;
};

// The references of objects, as they were when this was made.  Holds the objects and the referents,
// so that no new object gets the address of an old one.  The garbage collector knows what it holds:
// an object may come to refer to it, through the traceback of an error.
class References {
 public:
  // Notes the objects of a list whose exact class is one of `kinds`.
  References(const nb::list& objects, const nb::sequence& kinds) {
    const Kinds wanted(kinds);
    for (const nb::handle object : objects) {
      if (!wanted.Has(object.ptr())) continue;
      objects_.push_back(nb::borrow(object));
      ForEachReferent(object.ptr(),
                      [this](PyObject* referent) { referents_.push_back(nb::borrow(referent)); });
      ends_.push_back(referents_.size());
    }
  }
  // Returns the objects that refer to other objects now.
  nb::list Changed() const {
    nb::list changed;
    for (size_t i = 0; i < objects_.size(); ++i) {
      size_t at = i == 0 ? 0 : ends_[i - 1];
      bool is_same = true;
      ForEachReferent(objects_[i].ptr(), [&](PyObject* referent) {
        is_same = is_same && at < ends_[i] && referents_[at].ptr() == referent;
        ++at;
      });
      if (!is_same || at != ends_[i]) changed.append(objects_[i]);
    }
    return changed;
  }
  // Returns the referents that an object had, or None: it is not one of the objects.
  nb::object ReferentsOf(nb::handle object) {
    if (places_.empty()) {
      for (size_t i = 0; i < objects_.size(); ++i) places_.emplace(objects_[i].ptr(), i);
    }
    const auto found = places_.find(object.ptr());
    if (found == places_.end()) return nb::none();
    const size_t place = found->second;
    nb::list referents;
    for (size_t i = place == 0 ? 0 : ends_[place - 1]; i < ends_[place]; ++i) {
      referents.append(referents_[i]);
    }
    return referents;
  }
  // Returns the classes of the referents, each once.
  nb::list KindsOfReferents() const {
    std::unordered_set<PyTypeObject*> seen;
    nb::list kinds;
    for (const nb::object& referent : referents_) {
      if (seen.insert(Py_TYPE(referent.ptr())).second) kinds.append(referent.type());
    }
    return kinds;
  }
  // Returns the referents whose exact class is one of `kinds`, each once.
  nb::list OfKinds(const nb::sequence& kinds) const {
    const Kinds wanted(kinds);
    std::unordered_set<const void*> seen;
    nb::list found;
    for (const nb::object& referent : referents_) {
      if (wanted.Has(referent.ptr()) && seen.insert(referent.ptr()).second) found.append(referent);
    }
    return found;
  }

  // Visits what this holds, for the garbage collector.
  int Visit(visitproc visit, void* argument) const {
    for (const auto* held : {&objects_, &referents_}) {
      for (const nb::object& object : *held) {
        if (const int result = visit(object.ptr(), argument); result != 0) return result;
      }
    }
    return 0;
  }
  void Forget() {
    places_.clear();
    const std::vector<nb::object> objects = std::exchange(objects_, {});
    const std::vector<nb::object> referents = std::exchange(referents_, {});
    ends_.clear();  // before destructors of the objects run
  }

 private:
  std::vector<nb::object> objects_;
  std::vector<size_t> ends_;  // of each object's referents
  std::vector<nb::object> referents_;
  std::unordered_map<PyObject*, size_t> places_;  // by object; filled when it is first needed
};

int TraverseReferences(PyObject* self, visitproc visit, void* argument) {
  if (const int result = visit(reinterpret_cast<PyObject*>(Py_TYPE(self)), argument); result != 0) {
    return result;
  }
  return nb::inst_ready(self) ? nb::inst_ptr<References>(self)->Visit(visit, argument) : 0;
}

int ClearReferences(PyObject* self) {
  nb::inst_ptr<References>(self)->Forget();
  return 0;
}

}  // namespace

void BindReferences(nb::module_& m) {
  static PyType_Slot reference_slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(TraverseReferences)},
      {Py_tp_clear, reinterpret_cast<void*>(ClearReferences)},
      {0, nullptr}};
  nb::class_<References>(m, "References", nb::type_slots(reference_slots),
                         "The references of objects at one time.")
      .def(nb::init<const nb::list&, const nb::sequence&>(), nb::arg("objects"), nb::arg("kinds"),
           nb::sig("def __init__(self, objects: list[Any], kinds: Sequence[type]) -> None"))
      .def("changed", &References::Changed, nb::sig("def changed(self) -> list[Any]"))
      .def("referents_of", &References::ReferentsOf, nb::arg("object"),
           nb::sig("def referents_of(self, object: object) -> list[Any] | None"))
      .def("kinds", &References::KindsOfReferents, nb::sig("def kinds(self) -> list[type]"))
      .def("of_kinds", &References::OfKinds, nb::arg("kinds"),
           nb::sig("def of_kinds(self, kinds: Sequence[type]) -> list[Any]"));
}

}  // namespace tkv::python
