// tkv_store_*: creation and end, verbs, updaters, files.

#include "c_api/items.h"
#include "c_api/options.h"

namespace tkv::c_api {
namespace {

// Calls the caller's updater with arrays of the library.
class Updater {
 public:
  Updater(tkv_updater function, std::shared_ptr<UserContext> context)
      : function_(function), context_(std::move(context)) {}

  void operator()(const KeyView& key, const NDArray& sum, const NDArray& stored) const {
    const std::string text(key.text);  // with a terminating zero
    const tkv_key given{key.is_string ? text.c_str() : nullptr, key.number};
    const Handle sum_handle(new tkv_array(sum)), stored_handle(new tkv_array(stored));
    ThrowError(function_(context_->get(), &given, sum_handle.get(), stored_handle.get()));
  }

 private:
  struct Releases {
    void operator()(tkv_array* array) const { Release(array); }
  };
  using Handle = std::unique_ptr<tkv_array, Releases>;

  tkv_updater function_;
  std::shared_ptr<UserContext> context_;
};

// Runs a call with a list of keys.
template <typename Call>
tkv_code WithItems(tkv_store* store, const tkv_item* items, size_t count, const char* verb,
                   tkv_error** error, Call call) {
  return Try(error, [&] {
    KVStore& core = StoreOf(store, verb);
    call(core, Items(items, count, verb));
  });
}

// Two lists of a call: values for the store, and outputs.
struct TwoLists {
  const tkv_item* values;
  size_t value_count;
  const tkv_item* outs;
  size_t out_count;
};
template <typename Call>
tkv_code WithTwoLists(tkv_store* store, const TwoLists& lists, const char* verb, tkv_error** error,
                      Call call) {
  return Try(error, [&] {
    KVStore& core = StoreOf(store, verb);
    call(core, Items(lists.values, lists.value_count, verb),
         Items(lists.outs, lists.out_count, verb));
  });
}

std::string PathOf(const char* path, const char* verb) {
  return std::string(Text(path, verb, "the path"));
}

// Runs a call with the path of a file or a folder.
template <typename Call>
tkv_code WithPath(tkv_store* store, const char* path, const char* verb, tkv_error** error,
                  Call call) {
  return Try(error, [&] {
    KVStore& core = StoreOf(store, verb);
    call(core, PathOf(path, verb));
  });
}

void CheckTicket(tkv_ticket** ticket, const char* verb) {
  CheckNotNull(ticket, verb, "the place for the ticket");
}

}  // namespace
}  // namespace tkv::c_api

using namespace tkv::c_api;
using tkv::KVStore;
using tkv::PullItem;
using tkv::PushItem;

// ---- creation and end

tkv_code tkv_store_create(const char* type, const tkv_store_options* options, tkv_store** store,
                          tkv_error** error) {
  return Try(error, [&] {
    const char* const verb = "create";
    CheckNotNull(store, verb, "the place for the result");
    const std::string_view name = Text(type, verb, "the type");
    Options given(options, name, verb);
    *store = new tkv_store(KVStore::Create(name, given.core()));
    given.Keep();
  });
}
tkv_code tkv_store_connect(const char* url, uint32_t number, const tkv_store_options* options,
                           tkv_store** store, tkv_error** error) {
  return Try(error, [&] {
    const char* const verb = "connect";
    CheckNotNull(store, verb, "the place for the result");
    const std::string_view given_url = url == nullptr ? "" : Text(url, verb, "the URL");
    Options given(options, "connect", verb);
    *store = new tkv_store(KVStore::Connect(given_url, given.core(), number));
    given.Keep();
  });
}
tkv_store* tkv_store_retain(tkv_store* store) { return Retain(store); }
void tkv_store_release(tkv_store* store) { Release(store); }
tkv_code tkv_store_close(tkv_store* store, int32_t has_failed, tkv_error** error) {
  return Try(error, [&] {
    KVStore& core = StoreOf(store, "close");
    has_failed != 0 ? core.CloseAfterFailure() : core.Close();
  });
}

// ---- verbs

tkv_code tkv_store_init(tkv_store* store, const tkv_item* items, size_t count, tkv_error** error) {
  return WithItems(store, items, count, "init", error,
                   [](KVStore& core, const Items& list) { core.Init(list.ForInit()); });
}
tkv_code tkv_store_push(tkv_store* store, const tkv_item* items, size_t count, tkv_error** error) {
  return WithItems(store, items, count, "push", error,
                   [](KVStore& core, const Items& list) { core.Push(list.For<PushItem>()); });
}
tkv_code tkv_store_pull(tkv_store* store, const tkv_item* items, size_t count, tkv_error** error) {
  return WithItems(store, items, count, "pull", error,
                   [](KVStore& core, const Items& list) { core.Pull(list.For<PullItem>()); });
}
tkv_code tkv_store_pushpull(tkv_store* store, const tkv_item* values, size_t value_count,
                            const tkv_item* outs, size_t out_count, tkv_error** error) {
  return WithTwoLists(store, {values, value_count, outs, out_count}, "pushpull", error,
                      [](KVStore& core, const Items& in, const Items& out) {
                        core.PushPull(in.For<PushItem>(), out.For<PullItem>());
                      });
}
tkv_code tkv_store_broadcast(tkv_store* store, const tkv_item* values, size_t value_count,
                             const tkv_item* outs, size_t out_count, tkv_error** error) {
  return WithTwoLists(store, {values, value_count, outs, out_count}, "broadcast", error,
                      [](KVStore& core, const Items& in, const Items& out) {
                        core.Broadcast(in.ForInit(), out.For<PullItem>());
                      });
}
tkv_code tkv_store_delete(tkv_store* store, const tkv_key* key, tkv_error** error) {
  return Try(error, [&] {
    KVStore& core = StoreOf(store, "delete");
    core.Delete(KeyOf(key, "delete"));
  });
}
tkv_code tkv_store_barrier(tkv_store* store, tkv_error** error) {
  return Try(error, [&] { StoreOf(store, "barrier").Barrier(); });
}

// ---- verbs that return a ticket

tkv_code tkv_store_push_async(tkv_store* store, const tkv_item* items, size_t count,
                              tkv_ticket** ticket, tkv_error** error) {
  return WithItems(store, items, count, "push", error, [&](KVStore& core, const Items& list) {
    CheckTicket(ticket, "push");
    *ticket = new tkv_ticket(core.PushAsync(list.For<PushItem>()));
  });
}
tkv_code tkv_store_pull_async(tkv_store* store, const tkv_item* items, size_t count,
                              tkv_ticket** ticket, tkv_error** error) {
  return WithItems(store, items, count, "pull", error, [&](KVStore& core, const Items& list) {
    CheckTicket(ticket, "pull");
    *ticket = new tkv_ticket(core.PullAsync(list.For<PullItem>()));
  });
}
tkv_code tkv_store_pushpull_async(tkv_store* store, const tkv_item* values, size_t value_count,
                                  const tkv_item* outs, size_t out_count, tkv_ticket** ticket,
                                  tkv_error** error) {
  return WithTwoLists(
      store, {values, value_count, outs, out_count}, "pushpull", error,
      [&](KVStore& core, const Items& in, const Items& out) {
        CheckTicket(ticket, "pushpull");
        *ticket = new tkv_ticket(core.PushPullAsync(in.For<PushItem>(), out.For<PullItem>()));
      });
}
tkv_code tkv_store_barrier_async(tkv_store* store, tkv_ticket** ticket, tkv_error** error) {
  return Give(ticket, error, "barrier", [&] { return StoreOf(store, "barrier").BarrierAsync(); });
}
tkv_code tkv_store_save_async(tkv_store* store, const char* path, tkv_ticket** ticket,
                              tkv_error** error) {
  return Give(ticket, error, "save", [&] {
    KVStore& core = StoreOf(store, "save");
    return core.SaveAsync(PathOf(path, "save"));
  });
}

// ---- updaters

tkv_code tkv_store_set_updater(tkv_store* store, tkv_updater updater, void* context, tkv_free free,
                               tkv_error** error) {
  return Try(error, [&] {
    KVStore& core = StoreOf(store, "set_updater");
    const auto kept = std::make_shared<UserContext>(context);
    core.SetUpdater(updater == nullptr ? tkv::UpdateFunction() : Updater(updater, kept));
    kept->Keep(free);
  });
}
tkv_code tkv_store_set_optimizer(tkv_store* store, tkv_optimizer* optimizer, tkv_error** error) {
  return Try(error, [&] {
    const char* const verb = "set_optimizer";
    StoreOf(store, verb).SetOptimizer(Core(optimizer, verb, "the optimizer"));
  });
}
tkv_code tkv_store_set_compression(tkv_store* store, const char* type, double threshold,
                                   double ratio, const char* keys, tkv_error** error) {
  return Try(error, [&] {
    const char* const verb = "set_gradient_compression";
    KVStore& core = StoreOf(store, verb);
    const std::string name(Text(type, verb, "the type"));
    const std::string pattern(keys == nullptr ? "*" : Text(keys, verb, "the pattern of keys"));
    core.SetGradientCompression({name, threshold, ratio}, pattern);
  });
}

// ---- files

tkv_code tkv_store_save(tkv_store* store, const char* path, tkv_text** snapshot,
                        tkv_error** error) {
  return Give(snapshot, error, "save", [&] {
    KVStore& core = StoreOf(store, "save");
    return core.Save(PathOf(path, "save"));
  });
}
tkv_code tkv_store_load(tkv_store* store, const char* path, tkv_error** error) {
  return WithPath(store, path, "load", error,
                  [](KVStore& core, const std::string& from) { core.Load(from); });
}
tkv_code tkv_store_restore(tkv_store* store, const char* path, tkv_error** error) {
  return WithPath(store, path, "restore", error,
                  [](KVStore& core, const std::string& from) { core.Restore(from); });
}
tkv_code tkv_store_has_snapshot(const char* path, int32_t* has, tkv_error** error) {
  return Put(has, error, "has_snapshot",
             [&] { return KVStore::HasSnapshot(PathOf(path, "has_snapshot")); });
}
tkv_code tkv_store_save_states(tkv_store* store, const char* file, tkv_error** error) {
  return WithPath(store, file, "save_states", error,
                  [](KVStore& core, const std::string& to) { core.SaveStates(to); });
}
tkv_code tkv_store_load_states(tkv_store* store, const char* file, tkv_error** error) {
  return WithPath(store, file, "load_states", error,
                  [](KVStore& core, const std::string& from) { core.LoadStates(from); });
}

// ---- traces

tkv_code tkv_store_start_trace(tkv_store* store, tkv_error** error) {
  return Try(error, [&] { StoreOf(store, "start_trace").StartTrace(); });
}
tkv_code tkv_store_pause_trace(tkv_store* store, tkv_error** error) {
  return Try(error, [&] { StoreOf(store, "pause_trace").PauseTrace(); });
}
tkv_code tkv_store_write_trace(tkv_store* store, const char* file, tkv_error** error) {
  return WithPath(store, file, "write_trace", error,
                  [](KVStore& core, const std::string& to) { core.WriteTrace(to); });
}
