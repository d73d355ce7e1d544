/* Snapshots, states and traces. */

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"

/* A path in the folder of the tests, as text of its own for each name. */
static const char* path_of(const char* file) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", folder(), file);
  return path;
}
static int exists(const char* path) {
  struct stat status;
  return stat(path, &status) == 0;
}
/* A store with "w" all 1, and momentum. */
static tkv_store* store_with_momentum(void) {
  tkv_store* store = store_with_w(1);
  const tkv_param params[] = {{"learning_rate", 0.5}, {"momentum", 0.5}};
  tkv_optimizer_options options = TKV_INIT(tkv_optimizer_options);
  options.params = params;
  options.param_count = COUNT(params);
  tkv_optimizer* optimizer = NULL;
  OK(tkv_optimizer_create("momentum", &options, &optimizer, &failure));
  OK(tkv_store_set_optimizer(store, optimizer, &failure));
  tkv_optimizer_release(optimizer);
  return store;
}

static void a_snapshot_is_loaded_and_restored(void) {
  const char* path = path_of("saved");
  tkv_store *store = store_with_w(3), *other = store_with_w(0), *fresh = local();
  int32_t has = -1;
  OK(tkv_store_has_snapshot(path, &has, &failure));
  EXPECT(has == 0);
  tkv_text* snapshot = NULL;
  OK(tkv_store_save(store, path, &snapshot, &failure));
  EXPECT(exists(tkv_text_data(snapshot)));
  EXPECT(text_has(snapshot, path));
  OK(tkv_store_has_snapshot(path, &has, &failure));
  EXPECT(has == 1);
  OK(tkv_store_load(other, path, &failure));
  EXPECT(w_holds(other, 3));
  OK(tkv_store_restore(fresh, path, &failure));
  EXPECT(w_holds(fresh, 3));
  tkv_store_release(store);
  tkv_store_release(other);
  tkv_store_release(fresh);
}

static void a_snapshot_is_written_behind_its_call(void) {
  const char* path = path_of("behind");
  tkv_store *store = store_with_w(4), *other = store_with_w(0);
  tkv_ticket* ticket = NULL;
  OK(tkv_store_save_async(store, path, &ticket, &failure));
  OK(tkv_ticket_wait(ticket, 60000, &failure));
  tkv_ticket_release(ticket);
  OK(tkv_store_load(other, path, &failure));
  EXPECT(w_holds(other, 4));
  tkv_store_release(store);
  tkv_store_release(other);
}

static void states_are_saved_without_values(void) {
  const char* path = path_of("states");
  tkv_store *store = store_with_momentum(), *other = store_with_momentum();
  OK(push_w(store, 2, &failure));
  EXPECT(w_holds(store, 0)); /* 1 - 0.5 * 2, and a momentum of -1 */
  OK(tkv_store_save_states(store, path, &failure));
  OK(tkv_store_load_states(other, path, &failure));
  EXPECT(w_holds(other, 1));
  OK(push_w(other, 2, &failure));
  EXPECT(w_holds(other, -0.5)); /* 1 + 0.5 * -1 - 0.5 * 2 */
  tkv_store_release(store);
  tkv_store_release(other);
}

static void what_is_not_there_is_not_loaded(void) {
  const char* path = path_of("nothing");
  tkv_store* store = store_with_momentum();
  FAILS(TKV_NOT_FOUND, path, tkv_store_load(store, path, &failure));
  FAILS(TKV_NOT_FOUND, path, tkv_store_load_states(store, path, &failure));
  tkv_store* fresh = local();
  FAILS(TKV_NOT_FOUND, path, tkv_store_restore(fresh, path, &failure));
  EXPECT(w_holds(store, 1));
  tkv_store_release(fresh);
  tkv_store_release(store);
}

static void a_trace_is_a_file_of_spans(void) {
  const char* path = path_of("trace.json");
  tkv_store* store = store_with_w(1);
  FAILS(TKV_FAILED_PRECONDITION, "", tkv_store_write_trace(store, path, &failure));
  OK(tkv_store_start_trace(store, &failure));
  OK(push_w(store, 2, &failure));
  OK(tkv_store_pause_trace(store, &failure));
  OK(tkv_store_write_trace(store, path, &failure));
  EXPECT(exists(path));
  tkv_store_release(store);
}

static void paths_that_are_null_are_refused(void) {
  tkv_store* store = store_with_w(1);
  tkv_text* snapshot = NULL;
  tkv_ticket* ticket = NULL;
  int32_t has = -1;
  const char* path = path_of("never");
  REFUSES(tkv_store_save(store, NULL, &snapshot, &failure));
  REFUSES(tkv_store_save(NULL, path, &snapshot, &failure));
  REFUSES(tkv_store_save(store, path, NULL, &failure));
  REFUSES(tkv_store_save_async(store, NULL, &ticket, &failure));
  REFUSES(tkv_store_save_async(store, path, NULL, &failure));
  REFUSES(tkv_store_load(store, NULL, &failure));
  REFUSES(tkv_store_load(NULL, path, &failure));
  REFUSES(tkv_store_restore(store, NULL, &failure));
  REFUSES(tkv_store_restore(NULL, path, &failure));
  REFUSES(tkv_store_has_snapshot(NULL, &has, &failure));
  REFUSES(tkv_store_has_snapshot(path, NULL, &failure));
  REFUSES(tkv_store_save_states(store, NULL, &failure));
  REFUSES(tkv_store_save_states(NULL, path, &failure));
  REFUSES(tkv_store_load_states(store, NULL, &failure));
  REFUSES(tkv_store_load_states(NULL, path, &failure));
  REFUSES(tkv_store_start_trace(NULL, &failure));
  REFUSES(tkv_store_pause_trace(NULL, &failure));
  REFUSES(tkv_store_write_trace(store, NULL, &failure));
  REFUSES(tkv_store_write_trace(NULL, path, &failure));
  EXPECT(snapshot == NULL && ticket == NULL && has == -1 && !exists(path));
  tkv_store_release(store);
}

static const test tests[] = {
    TEST(a_snapshot_is_loaded_and_restored), TEST(a_snapshot_is_written_behind_its_call),
    TEST(states_are_saved_without_values),   TEST(what_is_not_there_is_not_loaded),
    TEST(a_trace_is_a_file_of_spans),        TEST(paths_that_are_null_are_refused),
};
const suite disk_suite = {"Disk", tests, COUNT(tests)};
