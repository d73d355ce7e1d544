// tensorkv._core.Store, the base class of KVStore.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <vector>

#include "base/format.h"
#include "base/small_vector.h"
#include "base/wait.h"
#include "bindings.h"
#include "tkv/config.h"
#include "tkv/testing.h"

namespace tkv::python {
namespace {

bool IsList(nb::handle object) { return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()); }

// The Python function that updates; shared by the store, the calls under way and the garbage
// collector's view.
struct Callable {
  explicit Callable(nb::object f) : function(std::move(f)) {}
  ~Callable() {
    nb::gil_scoped_acquire locked;
    function.reset();
  }
  Callable(const Callable&) = delete;
  Callable& operator=(const Callable&) = delete;
  nb::object function;
};

struct Store {
  Store(std::unique_ptr<KVStore> made, std::shared_ptr<Callable> function)
      : core(std::move(made)), updater(std::move(function)) {}
  // A store of several workers takes its leave, which waits for servers.
  ~Store() {
    nb::gil_scoped_release unlocked;
    core.reset();
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  std::unique_ptr<KVStore> core;
  std::shared_ptr<Callable> updater;
};

KeyView Named(const char* verb, nb::handle key) {
  try {
    return ParseKey(key);
  } catch (const Error& error) {
    throw Fail(error.code(), "{}: {}", verb, error.what());
  }
}

// What an argument of one call becomes.  Errors name the verb and the key.
class Batch {
 public:
  explicit Batch(const char* verb) : verb_(verb) {}

  // Keys and, for each, the arrays given for it: a single key has one array or a list; a list of
  // keys has a list of the same length of such.
  void Parse(nb::handle keys, nb::handle values, Use use) {
    if (!IsList(keys)) {
      Add(keys, values, use);
      return;
    }
    const size_t count = nb::len(keys);
    if (!IsList(values) || nb::len(values) != count) {
      throw Fail(Code::kInvalidArgument, "{}: {} keys need a list of {} values, here is {}", verb_,
                 count, count,
                 IsList(values) ? Format("one of {}", nb::len(values)) : std::string("no list"));
    }
    views_.reserve(count);
    for (size_t i = 0; i < count; ++i) Add(Item(keys, i), Item(values, i), use);
  }

  SmallVector<PushItem, 1> PushItems(int priority) const { return Items<PushItem>(priority); }
  SmallVector<PullItem, 1> PullItems(int priority) const { return Items<PullItem>(priority); }
  SmallVector<InitItem, 1> InitItems() const {
    SmallVector<InitItem, 1> items;
    for (size_t i = 0; i < views_.size(); ++i) {
      const auto arrays = Arrays(i);
      if (arrays.size() != 1) {
        throw Fail(Code::kInvalidArgument, "{} {}: {} values, one is needed", verb_,
                   views_[i].ToString(), arrays.size());
      }
      items.push_back({views_[i], arrays[0]});
    }
    return items;
  }

 private:
  static nb::handle Item(nb::handle list, size_t i) {
    PyObject* const object = list.ptr();
    const auto at = static_cast<Py_ssize_t>(i);
    return PyList_Check(object) ? PyList_GetItem(object, at) : PyTuple_GetItem(object, at);
  }

  void Add(nb::handle key, nb::handle values, Use use) {
    const KeyView view = Named(verb_, key);
    views_.push_back(view);
    if (IsList(values)) {
      const size_t count = nb::len(values);
      for (size_t i = 0; i < count; ++i) AddArray(view, Item(values, i), use);
    } else {
      AddArray(view, values, use);
    }
    ends_.push_back(arrays_.size());
  }

  void AddArray(const KeyView& key, nb::handle value, Use use) {
    if (nb::isinstance<NDArray>(value)) {
      arrays_.push_back(nb::inst_ptr<NDArray>(value));
    } else {
      try {
        arrays_.push_back(list_.Add(value, use));
      } catch (const Error& error) {
        throw Fail(error.code(), "{} {}: {}", verb_, key.ToString(), error.what());
      }
    }
  }

  std::span<const NDArray* const> Arrays(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {arrays_.data() + begin, ends_[i] - begin};
  }

  template <typename T>
  SmallVector<T, 1> Items(int priority) const {
    SmallVector<T, 1> items;
    items.reserve(views_.size());
    for (size_t i = 0; i < views_.size(); ++i) items.push_back({views_[i], Arrays(i), priority});
    return items;
  }

  const char* const verb_;
  SmallVector<KeyView, 1> views_;
  SmallVector<size_t, 1> ends_;
  SmallVector<const NDArray*, 8> arrays_;
  ArrayList list_;
};

template <typename Items>
auto Span(const Items& items) {
  return std::span<const typename Items::value_type>(items.data(), items.size());
}

void Init(Store& self, nb::handle key, nb::handle value, nb::handle mode) {
  Batch batch("init");
  batch.Parse(key, value, Use::kRead);
  auto items = batch.InitItems();
  const std::string text = mode.is_none() ? std::string() : nb::cast<std::string>(nb::str(mode));
  for (InitItem& item : items) item.mode = text;
  nb::gil_scoped_release unlocked;
  self.core->Init(Span(items));
}

// An operation under way, for Python; `result` is what its wait gives back.
struct PyTicket {
  Ticket core;
  nb::object result;
};

nb::object TicketOf(Ticket ticket, nb::object result) {
  return nb::cast(PyTicket{std::move(ticket), std::move(result)});
}

nb::object Push(Store& self, nb::handle key, nb::handle value, int priority, bool async_op) {
  Batch batch("push");
  batch.Parse(key, value, Use::kRead);
  const auto items = batch.PushItems(priority);
  Ticket ticket;
  {
    nb::gil_scoped_release unlocked;
    if (async_op) {
      ticket = self.core->PushAsync(Span(items));
    } else {
      self.core->Push(Span(items));
    }
  }
  return async_op ? TicketOf(std::move(ticket), nb::none()) : nb::none();
}

// The ticket where the operation is to be under way, else nothing.
Ticket PullInto(Store& self, nb::handle key, nb::handle out, int priority, bool async_op) {
  Batch batch("pull");
  batch.Parse(key, out, Use::kWrite);
  const auto items = batch.PullItems(priority);
  nb::gil_scoped_release unlocked;
  if (async_op) return self.core->PullAsync(Span(items));
  self.core->Pull(Span(items));
  return nullptr;
}

// New arrays of the keys' shape, dtype and context: one, or a list for a list of keys.
nb::object FreshOutputs(Store& self, const char* verb, nb::handle key) {
  const auto fresh = [&](nb::handle one) {
    const KVStore::KeyInfo info = self.core->Describe(Named(verb, one), verb);
    return ToPython(NDArray::Empty(info.shape, info.dtype, info.context));
  };
  if (!IsList(key)) return fresh(key);
  nb::list outputs;
  for (nb::handle one : key) outputs.append(fresh(one));
  return outputs;
}

nb::object Like(const nb::object& arrays, nb::handle like) {
  return nb::module_::import_("tensorkv._interop").attr("like")(arrays, like);
}

nb::object Pull(Store& self, nb::handle key, nb::handle out, int priority, bool, nb::handle like,
                bool async_op) {
  if (async_op && !like.is_none()) {
    throw Fail(Code::kInvalidArgument, "pull: `like` needs the values at once; give `out`");
  }
  nb::object outputs = out.is_none() ? FreshOutputs(self, "pull", key) : nb::object(nb::none());
  Ticket ticket =
      PullInto(self, key, out.is_none() ? nb::handle(outputs) : out, priority, async_op);
  if (async_op) return TicketOf(std::move(ticket), std::move(outputs));
  return like.is_none() || outputs.is_none() ? outputs : Like(outputs, like);
}

bool HoldsJax(nb::handle values) {
  if (!IsList(values)) return !nb::isinstance<NDArray>(values) && IsJax(values);
  for (nb::handle value : values) {
    if (HoldsJax(value)) return true;
  }
  return false;
}

nb::object PushPull(Store& self, nb::handle key, nb::handle value, nb::handle out, int priority,
                    bool async_op) {
  // JAX arrays cannot take the result: it comes back as new ones.
  const bool is_new = out.is_none() && HoldsJax(value);
  nb::object fresh;
  if (is_new) fresh = FreshOutputs(self, "pushpull", key);
  Batch values("pushpull");
  Batch outs("pushpull");
  values.Parse(key, value, Use::kRead);
  outs.Parse(key, is_new ? nb::handle(fresh) : (out.is_none() ? value : out), Use::kWrite);
  if (async_op && is_new) {
    throw Fail(Code::kInvalidArgument, "pushpull: JAX values need an `out` where async_op is set");
  }
  Ticket ticket;
  {
    const auto items = values.PushItems(priority);
    const auto targets = outs.PullItems(priority);
    nb::gil_scoped_release unlocked;
    if (async_op && !is_new) {
      ticket = self.core->PushPullAsync(Span(items), Span(targets));
    } else {
      self.core->PushPull(Span(items), Span(targets));
    }
  }
  if (ticket != nullptr) return TicketOf(std::move(ticket), nb::none());
  return is_new ? Like(fresh, value) : nb::none();
}

void Broadcast(Store& self, nb::handle key, nb::handle value, nb::handle out, int priority) {
  Batch values("broadcast");
  Batch outs("broadcast");
  values.Parse(key, value, Use::kRead);
  outs.Parse(key, out, Use::kWrite);
  const auto items = values.InitItems();
  const auto targets = outs.PullItems(priority);
  nb::gil_scoped_release unlocked;
  self.core->Broadcast(Span(items), Span(targets));
}

void SetFunction(Store& self, nb::object function) {
  std::shared_ptr<Callable> callable;
  UpdateFunction update;
  if (!function.is_none()) {
    callable = std::make_shared<Callable>(std::move(function));
    update = [callable](const KeyView& key, const NDArray& sum, const NDArray& stored) {
      nb::gil_scoped_acquire locked;
      callable->function(ToPython(key), ToPython(sum), ToPython(stored));
    };
  }
  {
    nb::gil_scoped_release unlocked;
    self.core->SetUpdater(std::move(update));
  }
  std::swap(self.updater, callable);
}

void SetOptimizer(Store& self, std::shared_ptr<Optimizer> optimizer) {
  std::shared_ptr<Callable> old;
  {
    nb::gil_scoped_release unlocked;
    self.core->SetOptimizer(std::move(optimizer));
  }
  std::swap(self.updater, old);
}

// An updater may well refer to its store: the collector must see through both.
int Traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  if (!nb::inst_ready(object)) return 0;
  const Store* store = nb::inst_ptr<Store>(object);
  if (store->updater != nullptr) Py_VISIT(store->updater->function.ptr());
  return 0;
}

int Clear(PyObject* object) {
  Store* store = nb::inst_ptr<Store>(object);
  if (store->updater != nullptr) {
    try {
      SetFunction(*store, nb::none());
    } catch (const Error&) {
      store->updater.reset();  // closed, or of another process: then nothing calls it any more
    }
  }
  return 0;
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(Clear)},
                       {0, nullptr}};

// Notices of the store's threads: kept until Python asks, for no thread of the store takes the GIL.
struct Notices {
  static constexpr size_t kMax = 1000;
  std::mutex mutex;
  std::vector<std::pair<int, std::string>> waiting;

  void Add(int level, const std::string& text) {
    std::lock_guard lock(mutex);
    if (waiting.size() < kMax) waiting.emplace_back(level, text);
  }
  bool any() {
    std::lock_guard lock(mutex);
    return !waiting.empty();
  }
  std::vector<std::pair<int, std::string>> Take() {
    std::lock_guard lock(mutex);
    return std::exchange(waiting, {});
  }
};

Notices& AllNotices() {
  static auto* const notices = new Notices;  // threads may speak until the process ends
  return *notices;
}

// Signals wake every wait: a handler that raises ends it.  Notices are told on the way.
void CheckSignals() {
  nb::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (AllNotices().any()) nb::module_::import_("tensorkv._life").attr("tell_notices")();
}

// A store of the user's that the processes share.
class PyRendezvous final : public Rendezvous {
 public:
  explicit PyRendezvous(nb::object store) : store_(std::move(store)) {
    for (const char* const name : {"set", "get", "wait"}) {
      if (nb::hasattr(store_, name)) continue;
      throw Fail(Code::kInvalidArgument,
                 "create: bootstrap is of type {} without {}(); 'self', or an object with set, get "
                 "and wait is needed",
                 nb::cast<std::string>(nb::str(store_.type())), name);
    }
  }
  ~PyRendezvous() override {
    const nb::gil_scoped_acquire locked;
    store_.reset();
  }
  void Set(const std::string& key, const std::string& value) override {
    const nb::gil_scoped_acquire locked;
    store_.attr("set")(key, value);
  }
  std::string Get(const std::string& key, std::chrono::milliseconds longest) override {
    const auto deadline = std::chrono::steady_clock::now() + longest;
    std::string why;
    while (std::chrono::steady_clock::now() < deadline) {
      CheckSignals();
      const nb::gil_scoped_acquire locked;
      const auto answer = nb::cast<nb::tuple>(
          nb::module_::import_("tensorkv._bootstrap").attr("get_value")(store_, key, 0.2));
      if (!answer[0].is_none()) return nb::cast<std::string>(answer[0]);
      why = nb::cast<std::string>(answer[1]);
    }
    throw Fail(Code::kDeadlineExceeded, "create: worker 0 has not made the job after {} ms: {}",
               longest.count(), why);
  }

 private:
  nb::object store_;
};

}  // namespace

StoreHooks HooksOf(nb::handle bootstrap) {
  StoreHooks hooks;
  hooks.interrupt = CheckSignals;
  hooks.log = [](int level, const std::string& text) { AllNotices().Add(level, text); };
  if (bootstrap.is_valid() && !bootstrap.is_none() && !nb::isinstance<nb::str>(bootstrap)) {
    hooks.rendezvous = std::make_shared<PyRendezvous>(nb::borrow(bootstrap));
  }
  return hooks;
}

namespace {

void Wait(PyTicket& self, nb::handle timeout) {
  const auto patience = timeout.is_none() ? std::chrono::milliseconds(3'600'000)
                                          : MillisecondsOf(nb::cast<double>(timeout));
  nb::gil_scoped_release unlocked;
  self.core->Wait(patience);
}

}  // namespace

void BindStore(nb::module_& m) {
  nb::class_<PyTicket>(m, "Ticket", R"(An operation under way: what `async_op=True` gives back.

Can be awaited. A failure that nobody waits for is raised by the next call on its key and by close().

Example:
    >>> kv = mx.kv.create('local')
    >>> kv.init(3, mx.nd.ones((2,)))
    >>> ticket = kv.pull(3, async_op=True)
    >>> ticket.wait().asnumpy()
    array([1., 1.], dtype=float32)
    >>> ticket.done()
    True
)")
      .def(
          "wait",
          [](PyTicket& self, nb::handle timeout) {
            Wait(self, timeout);
            return self.result;
          },
          nb::arg("timeout") = nb::none(),
          R"(Waits until the operation is done and returns its result.

Args:
    timeout: in seconds; the operation itself goes on when it is over.

Raises:
    DeadlineExceededError: not done in time.
    KVError: what made the operation fail.
)")
      .def(
          "done", [](PyTicket& self) { return self.core->done(); },
          "Returns whether the operation has ended, well or not.")
      .def(
          "__await__",
          [](nb::handle self) {
            return nb::module_::import_("tensorkv._life")
                .attr("wait_for")(self)
                .attr("__await__")();
          },
          "Waits without blocking the event loop.");
  m.def("_take_notices", [] { return AllNotices().Take(); });
  nb::class_<Store>(m, "Store", nb::type_slots(slots),
                    "The verbs of a store. Use tensorkv.kvstore.create().")
      .def(
          "__init__",
          [](Store* self, const std::string& type, const nb::dict& options) {
            const StoreOptions parsed = ParseOptions(options, type);
            std::unique_ptr<KVStore> core;
            {
              nb::gil_scoped_release unlocked;
              core = KVStore::Create(type, parsed);
            }
            new (self) Store(std::move(core), nullptr);
          },
          nb::arg("type"), nb::arg("options"))
      .def(
          "__init__",
          [](Store* self, testing::Cluster& cluster, int rank) {
            std::unique_ptr<KVStore> core;
            {
              nb::gil_scoped_release unlocked;
              core = cluster.Join(rank);
            }
            new (self) Store(std::move(core), nullptr);
          },
          nb::arg("cluster"), nb::arg("rank"))
      .def("init", &Init, nb::arg("key").none(), nb::arg("value").none(), nb::kw_only(),
           nb::arg("mode") = nb::none(),
           R"(Creates each key with a copy of its value; shape and dtype stay those of the value.

Args:
    key: an int (64-bit, also NumPy integers) or a str, or a list of them; one kind per store.
    value: an NDArray or any array with DLPack or the buffer protocol, of any shape and dtype; for a list of keys
        a list of the same length.
    mode: ``'sync'`` or ``'async'``, of these keys in a distributed store; default that of the store. A store in one
        process takes it and has one mode.

In a distributed store rank 0 creates the key and the others find it: they wait for rank 0, and the shapes and dtypes of
all ranks have to be equal, as have the modes: every worker makes the same stores in the same order. What is wrong with the
arguments is found before anything is created; where a server or rank 0 is lost on the way, keys of the list that were
created before stay (``key in kv`` tells which), and a key that was created in part can be tried again.

Raises:
    AlreadyExistsError: a key is there already, or stands twice in the call. No key of the call was created.
    InvalidArgumentError: int and str keys in one store, lists of different lengths, no array; in a distributed store
        another shape, dtype or mode than rank 0's.
    DeadlineExceededError, UnavailableError: in a distributed store rank 0 or a server did not come, or is dead.

Example:
    >>> kv = mx.kv.create('local')
    >>> kv.init(3, mx.nd.ones((2, 3)))
    >>> kv.init(['a'], [mx.nd.zeros((2,))])
    Traceback (most recent call last):
    tensorkv.errors.InvalidArgumentError: init 'a': a string key, the store has integer keys
)")
      .def(
          "push", &Push, nb::arg("key").none(), nb::arg("value").none(), nb::arg("priority") = 0,
          nb::arg("async_op") = false,
          R"(Sums the values given for each key, from left to right, and hands the sum to the updater (default: assign).

Args:
    key: a key or a list of keys. A key that stands twice counts as one with all its values.
    value: for one key an array or a list of arrays, each with the key's shape and dtype; for a list of keys a list
        of such. Arrays of other frameworks are read where they are, never copied; strided ones are packed.
    priority: in a distributed store, what waits to leave for a server does so the larger first; in others nothing
        waits. Pushes of one key keep their order.
    async_op: return a Ticket, which is done when the round is complete. Without it a push of a distributed store
        returns when the arrays may be changed again, and its failure is raised by the next call on the key.

Returns:
    None, or a Ticket with `async_op`.

Raises:
    KeyNotFoundError: a key was never initialised.
    InvalidArgumentError: another shape or dtype, an empty list, bool values in a sum.
    DeadlineExceededError: another thread used a key longer than the patience.
    FailedPreconditionError: the store is closed, was made before a fork, or the updater pushes its own key.
    Exception: what the updater raised. In every case no key of the call has changed.

Example:
    >>> kv = mx.kv.create('local')
    >>> kv.init(3, mx.nd.zeros((2,)))
    >>> kv.push(3, [mx.nd.ones((2,)), mx.nd.ones((2,)) * 2])
    >>> kv.pull(3).asnumpy()
    array([3., 3.], dtype=float32)
)")
      .def("pull", &Pull, nb::arg("key").none(), nb::arg("out") = nb::none(),
           nb::arg("priority") = 0, nb::arg("ignore_sparse") = true, nb::arg("like") = nb::none(),
           nb::arg("async_op") = false,
           R"(Copies the value of each key into its outputs, or returns it.

Args:
    key: a key or a list of keys.
    out: for one key an array or a list of arrays of the key's shape, for a list of keys a list of such: NDArray,
        NumPy, PyTorch or any other writable array. Converts between float dtypes. Where one array stands for several
        keys it holds the last one.
    priority: as push.
    ignore_sparse: accepted; every array is dense.
    like: where there is no `out`, the framework of this array is that of the result.
    async_op: return a Ticket; its wait gives what pull would have given.

Returns:
    A Ticket with `async_op`; None with `out`; else a new NDArray with the key's shape, dtype and context, a list of them for a list of keys.

Raises:
    KeyNotFoundError: a key was never initialised.
    InvalidArgumentError: another shape, a dtype that does not convert, a read-only output, a JAX array, a tensor that
        requires grad. No output was written.
    DeadlineExceededError, FailedPreconditionError: as push.

Example:
    >>> kv = mx.kv.create('local')
    >>> kv.init('w', mx.nd.ones((2,)))
    >>> a = np.zeros(2, np.float32)
    >>> kv.pull('w', out=a)
    >>> a
    array([1., 1.], dtype=float32)
)")
      .def(
          "pushpull", &PushPull, nb::arg("key").none(), nb::arg("value").none(),
          nb::arg("out") = nb::none(), nb::arg("priority") = 0, nb::arg("async_op") = false,
          R"(Push, then pull, in one pass over memory. Without `out` the values themselves take the result.

Args:
    key, value, priority: as push.
    out: as pull.
    async_op: return a Ticket, which is done when the outputs are written.

Returns:
    None, or a Ticket with `async_op`; for JAX values without `out`, a new JAX array of the key's shape and dtype, a list for a list of keys.

Raises:
    As push and pull; then neither the store nor an output has changed.

Example:
    >>> kv = mx.kv.create('local')
    >>> kv.init(3, mx.nd.zeros((2,)))
    >>> grads = [mx.nd.ones((2,)), mx.nd.ones((2,))]
    >>> kv.pushpull(3, grads)
    >>> grads[0].asnumpy()
    array([2., 2.], dtype=float32)
)")
      .def("broadcast", &Broadcast, nb::arg("key").none(), nb::arg("value").none(),
           nb::arg("out").none(), nb::arg("priority") = 0,
           R"(Init, then pull of the same keys: every output gets the initial value.

Args:
    key, value: as init; the keys must be new.
    out: as pull.
    priority: as push, for the pull.

Raises:
    As init and pull; then no key was created and no output written.

Example:
    >>> kv = mx.kv.create('local')
    >>> outs = [mx.nd.zeros((2,), mx.cpu(i)) for i in range(2)]
    >>> kv.broadcast('w', mx.nd.ones((2,)), out=outs)
    >>> outs[1].asnumpy()
    array([1., 1.], dtype=float32)
)")
      .def("_set_function", &SetFunction, nb::arg("function").none())
      .def("_set_optimizer", &SetOptimizer, nb::arg("optimizer"))
      .def("_close",
           [](Store& self) {
             {
               nb::gil_scoped_release unlocked;
               self.core->Close();
             }
             self.updater.reset();
           })
      .def(
          "_barrier",
          [](Store& self) {
            nb::gil_scoped_release unlocked;
            self.core->Barrier();
          },
          "Waits until every worker has come here; in one process there is one.")
      .def(
          "delete",
          [](Store& self, nb::handle key) {
            const KeyView view = Named("delete", key);
            nb::gil_scoped_release unlocked;
            self.core->Delete(view);
          },
          nb::arg("key").none(),
          R"(Removes a key; a later init makes it anew.

In a distributed store every worker calls it, between two barriers.

Raises:
    KeyNotFoundError: no such key.

Example:
    >>> kv = mx.kv.create('local')
    >>> kv.init(3, mx.nd.ones((2,)))
    >>> kv.delete(3)
    >>> 3 in kv
    False
)")
      .def(
          "round",
          [](Store& self, nb::handle key) {
            const KeyView view = Named("round", key);
            nb::gil_scoped_release unlocked;
            return self.core->Round(view);
          },
          nb::arg("key").none(),
          R"(Returns how often this worker has pushed the key: the number of its last round.

A worker that has been started again goes on from the round that its earlier life had reached.

Example:
    >>> kv = mx.kv.create('local')
    >>> kv.init(3, mx.nd.ones((2,)))
    >>> kv.push(3, mx.nd.ones((2,)))
    >>> kv.round(3)
    1
)")
      .def_prop_ro(
          "rejoined", [](Store& self) { return self.core->rejoined(); },
          "Whether this worker has lived before in this job.")
      .def("_keys",
           [](Store& self) {
             nb::list keys;
             for (const Key& key : self.core->Keys()) keys.append(ToPython(key.view()));
             return keys;
           })
      .def("__len__", [](Store& self) { return self.core->size(); })
      .def(
          "__contains__",
          [](Store& self, nb::handle key) { return self.core->Contains(Named("in", key)); },
          nb::arg("key").none())
      .def_prop_ro(
          "type", [](Store& self) { return self.core->type(); },
          "The name that the store was created with.")
      .def_prop_ro(
          "rank", [](Store& self) { return self.core->rank(); }, "Number of this worker, from 0.")
      .def_prop_ro(
          "num_workers", [](Store& self) { return self.core->num_workers(); },
          "Number of workers.");
}

}  // namespace tkv::python
