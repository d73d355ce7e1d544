/* Updaters, and the other functions that a caller lends to a store. */

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "check.h"

/* The record that a callback leaves for its test. */
typedef struct calls {
  atomic_int count;
  atomic_int freed;
  tkv_store* store;
  tkv_error* fails; /* a copy of which is returned */
} calls;
static void count_free(void* context) { ++((calls*)context)->freed; }

static tkv_error* result_of(const calls* calls) {
  return calls->fails == NULL
             ? NULL
             : tkv_error_create(tkv_error_code(calls->fails), tkv_error_message(calls->fails));
}

/* stored += sum, by the interface itself. */
static tkv_error* add(void* context, const tkv_key* key, tkv_array* sum, tkv_array* stored) {
  calls* const calls = context;
  ++calls->count;
  tkv_operands operands = TKV_INIT(tkv_operands);
  operands.a = operands.out = stored;
  operands.b = sum;
  tkv_error* error = NULL;
  if (tkv_array_compute(TKV_ADD, &operands, NULL, &error) != TKV_OK) return error;
  if (key->text == NULL || strcmp(key->text, "w") != 0) {
    return tkv_error_create(TKV_INTERNAL, "another key");
  }
  return result_of(calls);
}

static void an_updater_changes_what_is_stored(void) {
  calls calls = {0};
  tkv_store* store = store_with_w(1);
  OK(tkv_store_set_updater(store, add, &calls, count_free, &failure));
  OK(push_w(store, 2, &failure));
  OK(push_w(store, 4, &failure));
  EXPECT(calls.count == 2 && w_holds(store, 7));
  EXPECT(calls.freed == 0);
  tkv_store_release(store);
  EXPECT(calls.freed == 1);
}

static void an_updater_that_fails_leaves_all_as_it_was(void) {
  calls calls = {.fails = tkv_error_create(TKV_DATA_LOSS, "the updater has lost it")};
  tkv_store* store = store_with_w(1);
  OK(tkv_store_set_updater(store, add, &calls, count_free, &failure));
  FAILS(TKV_DATA_LOSS, "the updater has lost it", push_w(store, 2, &failure));
  EXPECT(calls.count == 1 && w_holds(store, 1));
  EXPECT(push_w(store, 2, NULL) == TKV_DATA_LOSS);
  tkv_error_release(calls.fails);
  tkv_store_release(store);
}

static void the_context_is_freed_once_where_another_updater_comes(void) {
  calls first = {0}, second = {0};
  tkv_store* store = store_with_w(1);
  OK(tkv_store_set_updater(store, add, &first, count_free, &failure));
  OK(tkv_store_set_updater(store, add, &second, count_free, &failure));
  EXPECT(first.freed == 1 && second.freed == 0);
  OK(tkv_store_set_updater(store, NULL, NULL, NULL, &failure));
  EXPECT(first.freed == 1 && second.freed == 1);
  OK(push_w(store, 2, &failure));
  EXPECT(w_holds(store, 2) && second.count == 0);
  tkv_store_release(store);
  EXPECT(first.freed == 1 && second.freed == 1);
}

static void the_context_stays_the_callers_where_the_call_fails(void) {
  calls calls = {0};
  tkv_store* store = store_with_w(1);
  REFUSES(tkv_store_set_updater(NULL, add, &calls, count_free, &failure));
  OK(tkv_store_close(store, 0, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "",
        tkv_store_set_updater(store, add, &calls, count_free, &failure));
  tkv_store_release(store);
  EXPECT(calls.freed == 0);
}

static void ignore_free(void* context) { (void)context; }
static tkv_error* accept(void* context, const tkv_key* key, tkv_array* sum, tkv_array* stored) {
  (void)key, (void)sum, (void)stored;
  return context == NULL ? NULL : tkv_error_create(TKV_INTERNAL, "a context");
}
static void a_context_and_what_frees_it_may_be_null(void) {
  tkv_store* store = store_with_w(1);
  OK(tkv_store_set_updater(store, accept, NULL, ignore_free, &failure));
  OK(push_w(store, 2, &failure));
  OK(tkv_store_set_updater(store, accept, NULL, NULL, &failure));
  OK(push_w(store, 2, &failure));
  EXPECT(w_holds(store, 1));
  tkv_store_release(store);
}

static tkv_error* push_again(void* context, const tkv_key* key, tkv_array* sum, tkv_array* stored) {
  (void)stored;
  calls* const calls = context;
  ++calls->count;
  tkv_item same = one(*key, &sum);
  tkv_error* error = NULL;
  tkv_store_push(calls->store, &same, 1, &error);
  return error;
}
static void an_updater_that_pushes_its_own_key_is_refused(void) {
  tkv_store* store = store_with_w(1);
  calls calls = {.store = store};
  OK(tkv_store_set_updater(store, push_again, &calls, NULL, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "", push_w(store, 2, &failure));
  EXPECT(calls.count == 1 && w_holds(store, 1));
  tkv_store_release(store);
}

/* ---- of options */

static tkv_error* interrupt(void* context) {
  calls* const calls = context;
  ++calls->count;
  return result_of(calls);
}
static void log_line(void* context, int32_t level, const char* text) {
  calls* const calls = context;
  calls->count += level >= 0 && level <= 3 && text[0] != '\0';
}
static tkv_code with_hooks(const char* type, calls* log, calls* interrupts, tkv_store** store,
                           tkv_error** error) {
  const tkv_option given[] = {{"bootstrap", "self"}};
  tkv_store_options options = TKV_INIT(tkv_store_options);
  options.options = given;
  options.option_count = strcmp(type, "dist_sync") == 0;
  options.log = log_line;
  options.log_context = log;
  options.log_free = count_free;
  options.interrupt = interrupt;
  options.interrupt_context = interrupts;
  options.interrupt_free = count_free;
  return tkv_store_create(type, &options, store, error);
}

static void hooks_are_freed_once_with_their_store(void) {
  calls log = {0}, interrupts = {0};
  tkv_store* store = NULL;
  OK(with_hooks("dist_sync", &log, &interrupts, &store, &failure));
  EXPECT(log.freed == 0 && interrupts.freed == 0);
  tkv_store_release(store);
  EXPECT(log.freed == 1 && interrupts.freed == 1);
  EXPECT(log.count > 0);
}

static void hooks_of_a_store_that_is_not_made_are_the_callers(void) {
  calls log = {0}, interrupts = {0};
  tkv_store* store = NULL;
  REFUSES(with_hooks("no such type", &log, &interrupts, &store, &failure));
  EXPECT(log.freed == 0 && interrupts.freed == 0);
}

/* ---- an interrupt ends a wait */

typedef struct gate {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int is_entered, is_open;
} gate;
static void set(gate* gate, int* flag) {
  pthread_mutex_lock(&gate->mutex);
  *flag = 1;
  pthread_cond_broadcast(&gate->changed);
  pthread_mutex_unlock(&gate->mutex);
}
static void await(gate* gate, const int* flag) {
  pthread_mutex_lock(&gate->mutex);
  while (!*flag) pthread_cond_wait(&gate->changed, &gate->mutex);
  pthread_mutex_unlock(&gate->mutex);
}
static tkv_error* stay_in(void* context, const tkv_key* key, tkv_array* sum, tkv_array* stored) {
  (void)key, (void)sum, (void)stored;
  gate* const gate = context;
  set(gate, &gate->is_entered);
  await(gate, &gate->is_open);
  return NULL;
}
static void* push_and_stay(void* store) {
  OK(push_w(store, 2, &failure));
  return NULL;
}

static void an_interrupt_that_fails_ends_the_wait(void) {
  calls log = {0};
  calls interrupts = {.fails = tkv_error_create(TKV_CANCELLED, "the user has had enough")};
  gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
  tkv_store* store = NULL;
  OK(with_hooks("local", &log, &interrupts, &store, &failure));
  tkv_array* array = full(2, 3, 1);
  tkv_item w = one(name("w"), &array);
  OK(tkv_store_init(store, &w, 1, &failure));
  OK(tkv_store_set_updater(store, stay_in, &gate, NULL, &failure));
  pthread_t thread;
  if (EXPECT(pthread_create(&thread, NULL, push_and_stay, store) == 0)) {
    await(&gate, &gate.is_entered);
    FAILS(TKV_CANCELLED, "the user has had enough", tkv_store_push(store, &w, 1, &failure));
    EXPECT(interrupts.count > 0);
    set(&gate, &gate.is_open);
    pthread_join(thread, NULL);
  }
  tkv_array_release(array);
  tkv_store_release(store);
  tkv_error_release(interrupts.fails);
}

static const test tests[] = {
    TEST(an_updater_changes_what_is_stored),
    TEST(an_updater_that_fails_leaves_all_as_it_was),
    TEST(the_context_is_freed_once_where_another_updater_comes),
    TEST(the_context_stays_the_callers_where_the_call_fails),
    TEST(a_context_and_what_frees_it_may_be_null),
    TEST(an_updater_that_pushes_its_own_key_is_refused),
    TEST(hooks_are_freed_once_with_their_store),
    TEST(hooks_of_a_store_that_is_not_made_are_the_callers),
    TEST(an_interrupt_that_fails_ends_the_wait),
};
const suite callback_suite = {"Callbacks", tests, COUNT(tests)};
