// tensorkv._core.Store, the base class of KVStore: its verbs without their policies.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "base/format.h"
#include "base/memory_error.h"
#include "batch.h"
#include "gil.h"
#include "metrics/stats_fields.h"
#include "notices.h"
#include "store.h"
#include "ticket.h"
#include "tkv/job.h"
#include "tkv/testing.h"
#include "tkv/updater_states.h"

namespace tkv::python {

bool IsFailing() noexcept {
  if (PyErr_Occurred() == nullptr || PyErr_ExceptionMatches(PyExc_GeneratorExit) ||
      PyErr_ExceptionMatches(PyExc_StopIteration) ||
      PyErr_ExceptionMatches(PyExc_StopAsyncIteration)) {
    return false;
  }
  if (!PyErr_ExceptionMatches(PyExc_SystemExit)) return true;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject* const status = PyObject_GetAttrString(value, "code");
  const bool has_failed = status == nullptr || (status != Py_None && PyObject_IsTrue(status) != 0);
  Py_XDECREF(status);
  PyErr_Restore(type, value, trace);  // replaces an error of the two calls
  return has_failed;
}

void Store::End(std::unique_ptr<KVStore> store, bool has_failed) noexcept {
  const Unlocked unlocked;
  try {
    if (has_failed) store->CloseAfterFailure();
    store.reset();
  } catch (...) {
    store.reset();
  }
}

namespace {

// The user's update function.  The store's updater and the running calls own it.
//
// The Python object is in a place of its own, which the garbage collector sees but does not own.  A
// thread of the core may drop the last call at any moment, and the collector must not destroy
// objects while it traverses.
struct Callable {
  explicit Callable(nb::object f) : function(std::make_shared<nb::object>(std::move(f))) {}
  ~Callable() {
    const Locked locked;
    const nb::object dropped = std::move(*function);
  }
  Callable(const Callable&) = delete;
  Callable& operator=(const Callable&) = delete;
  const std::shared_ptr<nb::object> function;  // the GIL guards the object
};

// ---- values -------------------------------------------------------------------------------------

// Returns false and does nothing if an argument is a tree or a row-sparse value.
template <typename Call>
bool IfDense(const Call& call) {
  try {
    call();
    return true;
  } catch (const NotDense&) {
    return false;
  }
}

// Returns the started operation.  Returns None and does nothing if an argument is a tree or a
// row-sparse value.
template <typename Call>
nb::object StartedIfDense(const Call& call) {
  try {
    return call();
  } catch (const NotDense&) {
    return nb::none();
  }
}

bool Init(Store& self, nb::handle key, nb::handle value, const std::string& mode) {
  return IfDense([&] {
    const Keys keys("init", key);
    const Batch values(keys, value, Use::kRead);
    const auto items = values.InitItems(mode);
    const Unlocked unlocked;
    self.core->Init(Span(items));
  });
}

void Assign(Store& self, nb::handle key, nb::handle value) {
  const Keys keys("assign", key);
  const Batch values(keys, value, Use::kRead);
  const auto items = values.InitItems("");
  const Unlocked unlocked;
  self.core->Assign(Span(items));
}

// An exception of a signal handler that arrived while an updater's steps were being undone.
thread_local std::exception_ptr raised_meanwhile;

bool Push(Store& self, nb::handle key, nb::handle value, nb::handle priority) {
  return IfDense([&] {
    const Keys keys("push", key);
    const Batch values(keys, value, Use::kRead);
    const auto items = values.PushItems(keys.Priority(priority));
    WithSteps([&] { self.core->Push(Span(items)); });
  });
}

bool Pull(Store& self, nb::handle key, nb::handle out, nb::handle priority) {
  return IfDense([&] {
    const Keys keys("pull", key);
    const Batch outs(keys, out, Use::kWrite);
    const auto items = outs.PullItems(keys.Priority(priority));
    {
      const Unlocked unlocked;
      self.core->Pull(Span(items));
    }
    NoteWritten(outs.tensors());
  });
}

bool HoldsJax(nb::handle values) {
  if (!PyTuple_Check(values.ptr())) return !nb::isinstance<NDArray>(values) && IsJax(values);
  const auto items = nb::borrow<nb::tuple>(values);
  return std::any_of(items.begin(), items.end(), [](nb::handle item) { return HoldsJax(item); });
}

// The arguments of a pushpull. `can_take` is false if the values would have to receive the result,
// but are immutable JAX arrays.
struct PushPullArguments {
  PushPullArguments(nb::handle key, nb::handle value, nb::handle out)
      : keys("pushpull", key),
        given(Frozen(value, 2)),
        can_take(!out.is_none() || !HoldsJax(given)),
        values(keys, given, Use::kRead, &loans) {
    if (can_take) outs.emplace(keys, out.is_none() ? nb::handle(given) : out, Use::kWrite, &loans);
    End(keys, &loans);
  }

  const Keys keys;
  const nb::object given;
  const bool can_take;
  DLPackLoans loans;
  const Batch values;
  std::optional<Batch> outs;
};

// Also returns false, and does nothing, if JAX arrays would have to receive the result.
bool PushPull(Store& self, nb::handle key, nb::handle value, nb::handle out, nb::handle priority) {
  bool can_take = false;
  const bool is_dense = IfDense([&] {
    const PushPullArguments arguments(key, value, out);
    can_take = arguments.can_take;
    if (!can_take) return;
    const int rank = arguments.keys.Priority(priority);
    const auto items = arguments.values.PushItems(rank);
    const auto targets = arguments.outs->PullItems(rank);
    WithSteps([&] { self.core->PushPull(Span(items), Span(targets)); });
    NoteWritten(arguments.outs->tensors());
  });
  return is_dense && can_take;
}

bool Broadcast(Store& self, nb::handle key, nb::handle value, nb::handle out, nb::handle priority) {
  return IfDense([&] {
    const Keys keys("broadcast", key);
    DLPackLoans loans;
    const Batch values(keys, value, Use::kRead, &loans);
    const Batch outs(keys, out, Use::kWrite, &loans);
    End(keys, &loans);
    const auto items = values.InitItems({});
    const auto targets = outs.PullItems(keys.Priority(priority));
    {
      const Unlocked unlocked;
      self.core->Broadcast(Span(items), Span(targets));
    }
    NoteWritten(outs.tensors());
  });
}

nb::object PushAsync(Store& self, nb::handle key, nb::handle value, nb::handle priority) {
  return StartedIfDense([&] {
    const Keys keys("push", key);
    const Batch values(keys, value, Use::kRead);
    const auto items = values.PushItems(keys.Priority(priority));
    return Started([&] { return self.core->PushAsync(Span(items)); });
  });
}

nb::object PullAsync(Store& self, nb::handle key, nb::handle out, nb::handle priority) {
  return StartedIfDense([&] {
    const Keys keys("pull", key);
    const Batch outs(keys, out, Use::kWrite);
    const auto items = outs.PullItems(keys.Priority(priority));
    return Started([&] { return self.core->PullAsync(Span(items)); }, outs.tensors());
  });
}

// Also returns None, and does nothing, if JAX arrays would have to receive the result.
nb::object PushPullAsync(Store& self, nb::handle key, nb::handle value, nb::handle out,
                         nb::handle priority) {
  return StartedIfDense([&]() -> nb::object {
    const PushPullArguments arguments(key, value, out);
    if (!arguments.can_take) return nb::none();
    const int rank = arguments.keys.Priority(priority);
    const auto items = arguments.values.PushItems(rank);
    const auto targets = arguments.outs->PullItems(rank);
    return Started([&] { return self.core->PushPullAsync(Span(items), Span(targets)); },
                   arguments.outs->tensors());
  });
}

// Returns new arrays of the keys' shape, dtype and context: one, or a list for a list of keys.
nb::object FreshOf(Store& self, const Keys& keys) {
  const auto fresh = [&](const KeyView& one) {
    KVStore::KeyInfo info;
    {  // another thread may hold the store's lock and wait for the GIL
      const Unlocked unlocked;
      info = self.core->Describe(one, keys.verb());
    }
    if (info.by_rows)
      throw NotDense(Fail(Code::kInvalidArgument, "{} {}: the key is kept by rows", keys.verb(),
                          one.ToString()));
    return ToPython(NamedWhereMemoryEnds(Format("{} {}", keys.verb(), one.ToString()), [&] {
      return NDArray::Empty(info.shape, info.dtype, info.context);
    }));
  };
  if (!keys.is_list()) return fresh(keys[0]);
  nb::list outputs;
  for (size_t i = 0; i < keys.size(); ++i) outputs.append(fresh(keys[i]));
  return outputs;
}

// Returns new arrays for the keys, or None if the key is a tree or one of the keys is stored by
// rows.
nb::object Fresh(Store& self, const std::string& verb, nb::handle key) {
  return StartedIfDense([&] { return FreshOf(self, Keys(verb.c_str(), key)); });
}

nb::tuple Describe(Store& self, const std::string& verb, nb::handle key) {
  const Keys keys(verb.c_str(), key);
  KVStore::KeyInfo info;
  {
    const Unlocked unlocked;
    info = self.core->Describe(keys[0], verb);
  }
  nb::list shape;
  for (const int64_t extent : info.shape) shape.append(extent);
  return nb::make_tuple(nb::tuple(shape), std::string(Name(info.dtype)));
}

// ---- updater ------------------------------------------------------------------------------------

// The unfinished steps of this thread's pushes; those of a nested push are at the end.
thread_local std::vector<nb::object> steps_under_way;

constexpr int kUndoTries = 100;  // a signal handler may interrupt each of them

// Undoes a step completely, even if signal handlers raise meanwhile.
void Undo(const nb::object& step) noexcept {
  for (int tries = 1;; ++tries) {
    try {
      step.attr("undo")();
      return;
    } catch (nb::python_error& error) {
      if (tries == kUndoTries) {
        error.discard_as_unraisable("the end of a push that an updater failed");
        return;
      }
      if (raised_meanwhile == nullptr) raised_meanwhile = std::current_exception();
    }
  }
}

void RunStep(const nb::object& steps, const KeyView& key, const NDArray& sum,
             const NDArray& stored) {
  const nb::object name = ToPython(key);
  const nb::object target = ToPython(stored);
  const nb::object step = steps.attr("begin")(name, target);
  steps_under_way.push_back(step);
  try {
    step.attr("run")(name, ToPython(sum), target);
  } catch (...) {
    steps_under_way.pop_back();
    Undo(step);
    throw;
  }
}

// Keeps the last `count` steps or undoes them, the newest first.
void EndSteps(size_t count, bool kept) noexcept {
  for (; count > 0; --count) {
    const nb::object step = std::move(steps_under_way.back());
    steps_under_way.pop_back();
    if (!kept && step.is_valid()) Undo(step);
  }
}

// Sets the updater. `steps` makes a step for each key of a push; see tensorkv/_update/functions.py.
void SetFunction(Store& self, nb::object steps) {
  UpdateFunction update;
  UpdateEnd end;
  UpdaterStates states;
  if (!steps.is_none()) {
    const auto callable = std::make_shared<Callable>(std::move(steps));
    std::erase_if(self.functions, [](const auto& old) { return !old->is_valid(); });
    self.functions.push_back(callable->function);
    update = [callable](const KeyView& key, const NDArray& sum, const NDArray& stored) {
      const Locked locked;
      const nb::object called = *callable->function;
      if (called.is_valid()) return RunStep(called, key, sum, stored);
      steps_under_way.emplace_back();  // the collector has taken the function with its store
    };
    end = [](size_t returned, bool kept) noexcept {
      const Locked locked;
      EndSteps(returned, kept);
    };
    states.take = [callable]() -> std::optional<NDArray> {
      const Locked locked;
      const nb::object called = *callable->function;
      // The collector has taken the function with its store.
      if (!called.is_valid()) return std::nullopt;
      const nb::object packed = called.attr("pack_states")();
      if (packed.is_none()) return std::nullopt;
      const auto bytes = nb::cast<nb::bytes>(packed);
      const auto size = static_cast<int64_t>(bytes.size());
      return NDArray::FromBytes(bytes.data(), Shape({size}), DType::kU8);
    };
    states.put = [callable](const std::optional<NDArray>& given) {
      const Locked locked;
      const nb::object called = *callable->function;
      if (!called.is_valid()) return;
      if (!given) {
        called.attr("put_states")(nb::none());
      } else {
        called.attr("put_states")(nb::bytes(given->HostData(), given->bytes()));
      }
    };
  }
  const Unlocked unlocked;
  if (auto* const local = dynamic_cast<SavesUpdaterStates*>(self.core.get())) {
    local->SetUpdaterWithStates(std::move(update), std::move(end), std::move(states),
                                SumType::kWide);
  } else {
    self.core->SetUpdater(std::move(update), std::move(end), SumType::kWide);
  }
}

// Lets the garbage collector find cycles between a store and its updater.
int Traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  if (!nb::inst_ready(object)) return 0;
  for (const auto& function : nb::inst_ptr<Store>(object)->functions) Py_VISIT(function->ptr());
  return 0;
}

int Clear(PyObject* object) {
  Store* store = nb::inst_ptr<Store>(object);
  for (const auto& function : std::exchange(store->functions, {})) {
    const nb::object dropped = std::move(*function);
  }
  return 0;
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(Clear)},
                       {0, nullptr}};

// ---- inspection ---------------------------------------------------------------------------------

class DictFields {
 public:
  template <typename Value>
  void Put(const char* name, const Value& value) {
    dict_[name] = nb::cast(value);
  }
  template <typename Fill>
  void Inner(std::string_view name, Fill fill) {
    InnerOf(nb::str(name.data(), name.size()), fill);
  }
  template <typename Fill>
  void InnerOfKey(const KeyView& key, Fill fill) {
    InnerOf(ToPython(key), fill);
  }
  nb::dict dict() const { return dict_; }

 private:
  template <typename Fill>
  void InnerOf(const nb::object& name, Fill fill) {
    DictFields inner;
    fill(inner);
    dict_[name] = inner.dict_;
  }

  nb::dict dict_;
};

nb::dict Stats(Store& self) {
  StoreStats stats;
  {
    const Unlocked unlocked;
    stats = self.core->Stats();
  }
  DictFields fields;
  PutFields(stats, fields);
  return fields.dict();
}

// ---- construction -------------------------------------------------------------------------------

void Construct(Store* self, auto make) {
  std::unique_ptr<KVStore> core;
  {
    const Unlocked unlocked;
    core = make();
  }
  new (self) Store(std::move(core));
}

// Runs an action on one key without the GIL.
auto OfKey(Store& self, const char* verb, nb::handle key, auto action) {
  const KeyView view = Named(verb, key);  // the caller keeps `key` alive until the end of the call
  const Unlocked unlocked;
  return action(*self.core, view);
}

}  // namespace

std::exception_ptr TakeRaised() noexcept { return std::exchange(raised_meanwhile, nullptr); }

void BindStore(nb::module_& m) {
  m.def(
      "_set_step",
      [](uint32_t number, uint32_t keys) {
        const PushStep before = SetStep({number, keys});
        return nb::make_tuple(before.number, before.keys);
      },
      nb::arg("number"), nb::arg("keys"),
      nb::sig("def _set_step(number: int, keys: int) -> tuple[int, int]"));
  m.def("_take_notices", [] { return AllNotices().Take(); });
  nb::class_<Store> store(m, "Store", nb::type_slots(slots), "What KVStore is made of.");
  store
      .def(
          "__init__",
          [](Store* self, const std::string& type, const nb::dict& options) {
            const StoreOptions parsed = ParseOptions(options, type);
            Construct(self, [&] { return KVStore::Create(type, parsed); });
          },
          nb::arg("type"), nb::arg("options"))
      .def(
          "__init__",
          [](Store* self, testing::Cluster& cluster, int rank) {
            Construct(self, [&] { return cluster.Join(rank); });
          },
          nb::arg("cluster"), nb::arg("rank"))
      .def(
          "__init__",
          [](Store* self, const std::string& url, const nb::dict& options, uint32_t number) {
            const StoreOptions parsed = ParseOptions(options, "connect");
            Construct(self, [&] { return KVStore::Connect(url, parsed, number); });
          },
          nb::arg("url"), nb::arg("options"), nb::arg("store"))
      .def(
          "__init__",
          [](Store* self, testing::Cluster& cluster) {
            Construct(self, [&] { return cluster.Observe(); });
          },
          nb::arg("cluster"))
      .def("_init", &Init, nb::arg("key").none(), nb::arg("value").none(), nb::arg("mode"))
      .def("_assign", &Assign, nb::arg("key").none(), nb::arg("value").none())
      .def("_push", &Push, nb::arg("key").none(), nb::arg("value").none(),
           nb::arg("priority").none())
      .def("_push_async", &PushAsync, nb::arg("key").none(), nb::arg("value").none(),
           nb::arg("priority").none(),
           nb::sig("def _push_async(self, key: object | None, value: object | None, priority: int) "
                   "-> Operation | None"))
      .def("_pull", &Pull, nb::arg("key").none(), nb::arg("out").none(), nb::arg("priority").none())
      .def("_pull_async", &PullAsync, nb::arg("key").none(), nb::arg("out").none(),
           nb::arg("priority").none(),
           nb::sig("def _pull_async(self, key: object | None, out: object | None, priority: int) "
                   "-> Operation | None"))
      .def("_pushpull", &PushPull, nb::arg("key").none(), nb::arg("value").none(),
           nb::arg("out").none(), nb::arg("priority").none())
      .def("_pushpull_async", &PushPullAsync, nb::arg("key").none(), nb::arg("value").none(),
           nb::arg("out").none(), nb::arg("priority").none(),
           nb::sig("def _pushpull_async(self, key: object | None, value: object | None, "
                   "out: object | None, priority: int) -> Operation | None"))
      .def("_broadcast", &Broadcast, nb::arg("key").none(), nb::arg("value").none(),
           nb::arg("out").none(), nb::arg("priority").none())
      .def("_fresh", &Fresh, nb::arg("verb"), nb::arg("key").none())
      .def("_describe", &Describe, nb::arg("verb"), nb::arg("key").none(),
           nb::sig("def _describe(self, verb: str, key: object) -> tuple[tuple[int, ...], str]"),
           "Returns shape and dtype of a key.")
      .def(
          "_update_of",
          [](const Store& self, nb::handle key) -> std::optional<PyOptimizer> {
            const KeyView name = ParseKey(key);
            const Unlocked unlocked;
            auto optimizer = self.core->UpdateOf(name);
            if (optimizer == nullptr) return std::nullopt;
            return PyOptimizer{std::move(optimizer)};
          },
          nb::arg("key").none(), "What servers update a key with now; None: they assign.")
      .def("_set_function", &SetFunction, nb::arg("steps").none())
      .def(
          "_set_optimizer",
          [](Store& self, const PyOptimizer& optimizer) {
            const std::shared_ptr<const Optimizer> core = optimizer.core;
            const Unlocked unlocked;
            self.core->SetOptimizer(core);
          },
          nb::arg("optimizer"))
      .def(
          "_set_gradient_compression",
          [](Store& self, std::string type, double threshold, double ratio,
             const std::string& keys) {
            const Unlocked unlocked;
            self.core->SetGradientCompression({std::move(type), threshold, ratio}, keys);
          },
          nb::arg("type"), nb::arg("threshold"), nb::arg("ratio"), nb::arg("keys"))
      .def(
          "_close",
          [](Store& self, bool has_failed) {
            const Unlocked unlocked;
            has_failed ? self.core->CloseAfterFailure() : self.core->Close();
          },
          nb::arg("has_failed") = false)
      .def("_barrier",
           [](Store& self) {
             const Unlocked unlocked;
             self.core->Barrier();
           })
      .def(
          "_barrier_async",
          [](Store& self) { return Started([&] { return self.core->BarrierAsync(); }); },
          nb::sig("def _barrier_async(self) -> Operation"))
      .def(
          "_save",
          [](Store& self, const std::string& path) {
            const Unlocked unlocked;
            return self.core->Save(path);
          },
          nb::arg("path"))
      .def(
          "_save_async",
          [](Store& self, const std::string& path) {
            return Started([&] { return self.core->SaveAsync(path); });
          },
          nb::arg("path"), nb::sig("def _save_async(self, path: str) -> Operation"))
      .def(
          "_load",
          [](Store& self, const std::string& path) {
            KVStore::SnapshotInfo info;
            {
              const Unlocked unlocked;
              info = self.core->Load(path);
            }
            nb::dict rounds;
            for (const auto& [key, round] : info.rounds) rounds[ToPython(key.view())] = round;
            return rounds;
          },
          nb::arg("path"), nb::sig("def _load(self, path: str) -> dict[int | str, int]"))
      .def(
          "_updates_in",
          [](Store& self, const std::string& path) {
            const auto all = [&] {
              const Unlocked unlocked;
              return UpdatesIn(path, *self.core);
            }();
            nb::dict updates;
            for (const SavedUpdates& saved : all)
              updates[ToPython(saved.key.view())] = saved.updates;
            return updates;
          },
          nb::arg("path"), nb::sig("def _updates_in(self, path: str) -> dict[int | str, int]"))
      .def("_trace_start",
           [](Store& self) {
             const Unlocked unlocked;
             self.core->StartTrace();
           })
      .def("_trace_pause",
           [](Store& self) {
             const Unlocked unlocked;
             self.core->PauseTrace();
           })
      .def(
          "_trace_write",
          [](Store& self, const std::string& file) {
            KVStore::TraceInfo info;
            {
              const Unlocked unlocked;
              info = self.core->WriteTrace(file);
            }
            return nb::make_tuple(info.spans, info.lost);
          },
          nb::arg("file"), nb::sig("def _trace_write(self, file: str) -> tuple[int, int]"))
      .def(
          "_save_states",
          [](Store& self, const std::string& file) {
            const Unlocked unlocked;
            self.core->SaveStates(file);
          },
          nb::arg("file"))
      .def(
          "_load_states",
          [](Store& self, const std::string& file) {
            const Unlocked unlocked;
            self.core->LoadStates(file);
          },
          nb::arg("file"))
      .def(
          "_delete",
          [](Store& self, nb::handle key) {
            OfKey(self, "delete", key, [](KVStore& core, const KeyView& k) { core.Delete(k); });
          },
          nb::arg("key").none())
      .def(
          "_round",
          [](Store& self, nb::handle key) {
            return OfKey(self, "round", key,
                         [](KVStore& core, const KeyView& k) { return core.Round(k); });
          },
          nb::arg("key").none())
      .def(
          "_former_step",
          [](Store& self, nb::handle key) {
            const PushStep step = OfKey(self, "round", key, [](KVStore& core, const KeyView& k) {
              return core.FormerStep(k);
            });
            return nb::make_tuple(step.number, step.keys);
          },
          nb::arg("key").none(),
          nb::sig("def _former_step(self, key: object | None) -> tuple[int, int]"))
      .def(
          "_contains",
          [](Store& self, nb::handle key) {
            return OfKey(self, "in", key,
                         [](KVStore& core, const KeyView& k) { return core.Contains(k); });
          },
          nb::arg("key").none())
      .def("_keys",
           [](Store& self) {
             std::vector<Key> keys;
             {
               const Unlocked unlocked;
               keys = self.core->Keys();
             }
             nb::list list;
             for (const Key& key : keys) list.append(ToPython(key.view()));
             return list;
           })
      .def("_status",
           [](Store& self) {
             const Unlocked unlocked;
             return self.core->Status().ToJson();
           })
      .def_prop_ro("_url", [](Store& self) { return self.core->url(); })
      .def("_stats", &Stats, nb::sig("def _stats(self) -> dict[str, object]"))
      .def("_size",
           [](Store& self) {
             const Unlocked unlocked;
             return self.core->size();
           })
      .def("_num_dead_node",
           [](Store& self, int node) {
             const Unlocked unlocked;
             return self.core->NumDeadNode(node);
           })
      .def_prop_ro("_rejoined", [](Store& self) { return self.core->rejoined(); })
      .def_prop_ro("_type", [](Store& self) { return self.core->type(); })
      .def_prop_ro("_rank", [](Store& self) { return self.core->rank(); })
      .def_prop_ro("_num_workers", [](Store& self) { return self.core->num_workers(); });
  BindRows(m, store);
  m.def("_fit_one_array", &FitOneArray, nb::arg("rows"), nb::arg("row_bytes"),
        "Returns true if all rows of a table fit into one array.");
}

}  // namespace tkv::python
