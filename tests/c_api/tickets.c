/* Calls under way, of a job that is this process alone. */

#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { kPatienceMs = 60000 };

static tkv_store* job_of_one(void) {
  const tkv_option given[] = {{"bootstrap", "self"}};
  tkv_store_options options = TKV_INIT(tkv_store_options);
  options.options = given;
  options.option_count = COUNT(given);
  tkv_store* store = NULL;
  OK(tkv_store_create("dist_sync", &options, &store, &failure));
  return store;
}

/* A job with the key "w", all 1. */
static tkv_store* job_with_w(void) {
  tkv_store* store = job_of_one();
  tkv_array* array = full(2, 3, 1);
  tkv_item w = one(name("w"), &array);
  OK(tkv_store_init(store, &w, 1, &failure));
  tkv_array_release(array);
  return store;
}

static void ends_well(tkv_ticket* ticket) {
  OK(tkv_ticket_wait(ticket, kPatienceMs, &failure));
  EXPECT(tkv_ticket_is_done(ticket) == 1);
  EXPECT(tkv_ticket_cancel(ticket) == 0);
  tkv_ticket_release(ticket);
}

static void each_verb_goes_on_behind_its_call(void) {
  tkv_store* store = job_with_w();
  tkv_array *value = full(2, 3, 4), *out = full(2, 3, 0);
  tkv_item in = one(name("w"), &value), to = one(name("w"), &out);
  tkv_ticket* ticket = NULL;
  OK(tkv_store_push_async(store, &in, 1, &ticket, &failure));
  ends_well(ticket);
  OK(tkv_store_pull_async(store, &to, 1, &ticket, &failure));
  ends_well(ticket);
  EXPECT(holds(out, 4));
  OK(tkv_array_fill(value, 5, &failure));
  OK(tkv_store_pushpull_async(store, &in, 1, &to, 1, &ticket, &failure));
  ends_well(ticket);
  EXPECT(holds(out, 5));
  OK(tkv_store_barrier_async(store, &ticket, &failure));
  ends_well(ticket);
  tkv_array_release(value);
  tkv_array_release(out);
  tkv_store_release(store);
}

static void a_call_keeps_its_arrays_and_goes_on_without_its_ticket(void) {
  tkv_store* store = job_with_w();
  tkv_array *value = full(2, 3, 6), *out = full(2, 3, 0);
  tkv_item in = one(name("w"), &value), to = one(name("w"), &out);
  tkv_ticket* ticket = NULL;
  OK(tkv_store_push_async(store, &in, 1, &ticket, &failure));
  tkv_array_release(value);
  tkv_ticket_release(ticket);
  OK(tkv_store_pull(store, &to, 1, &failure));
  EXPECT(holds(out, 6));
  tkv_array_release(out);
  tkv_store_release(store);
}

static void a_retained_ticket_outlives_a_release(void) {
  tkv_store* store = job_of_one();
  tkv_ticket* ticket = NULL;
  OK(tkv_store_barrier_async(store, &ticket, &failure));
  EXPECT(tkv_ticket_retain(ticket) == ticket);
  tkv_ticket_release(ticket);
  ends_well(ticket);
  tkv_store_release(store);
}

static void a_ticket_outlives_its_store(void) {
  tkv_store* store = job_with_w();
  tkv_array* out = full(2, 3, 0);
  tkv_item w = one(name("w"), &out);
  tkv_ticket* ticket = NULL;
  OK(tkv_store_pull_async(store, &w, 1, &ticket, &failure));
  tkv_store_release(store);
  tkv_code code = tkv_ticket_wait(ticket, kPatienceMs, NULL);
  EXPECT(code == TKV_OK || code == TKV_CANCELLED || code == TKV_FAILED_PRECONDITION);
  EXPECT(tkv_ticket_is_done(ticket) == 1);
  tkv_ticket_release(ticket);
  tkv_array_release(out);
}

typedef struct ends {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int ended;
  atomic_int freed;
} ends;
static void note_end(void* context) {
  ends* const ends = context;
  pthread_mutex_lock(&ends->mutex);
  ++ends->ended;
  pthread_cond_broadcast(&ends->changed);
  pthread_mutex_unlock(&ends->mutex);
}
static void note_free(void* context) { ++((ends*)context)->freed; }

static void the_end_is_told_once(void) {
  ends ends = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  tkv_store* store = job_of_one();
  tkv_ticket* ticket = NULL;
  OK(tkv_store_barrier_async(store, &ticket, &failure));
  OK(tkv_ticket_on_end(ticket, note_end, &ends, note_free, &failure));
  pthread_mutex_lock(&ends.mutex);
  while (ends.ended == 0) pthread_cond_wait(&ends.changed, &ends.mutex);
  pthread_mutex_unlock(&ends.mutex);
  ends_well(ticket);
  tkv_store_release(store);
  EXPECT(ends.ended == 1 && ends.freed == 1);
}

static void the_end_is_told_at_once_where_it_has_come(void) {
  ends ends = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  tkv_store* store = store_with_w(1); /* its calls have ended when they return */
  tkv_array* value = full(2, 3, 4);
  tkv_item w = one(name("w"), &value);
  tkv_ticket* ticket = NULL;
  OK(tkv_store_push_async(store, &w, 1, &ticket, &failure));
  EXPECT(tkv_ticket_is_done(ticket) == 1);
  OK(tkv_ticket_on_end(ticket, note_end, &ends, note_free, &failure));
  EXPECT(ends.ended == 1);
  tkv_ticket_release(ticket);
  EXPECT(ends.freed == 1);
  tkv_array_release(value);
  tkv_store_release(store);
}

static void calls_that_are_refused_give_no_ticket(void) {
  ends ends = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  tkv_store* store = store_with_w(1);
  tkv_array* value = full(3, 3, 4);
  tkv_item wide = one(name("w"), &value), unknown = one(name("v"), &value);
  tkv_ticket* ticket = NULL;
  REFUSES(tkv_store_push_async(store, &wide, 1, &ticket, &failure));
  FAILS(TKV_NOT_FOUND, "v", tkv_store_pull_async(store, &unknown, 1, &ticket, &failure));
  REFUSES(tkv_store_pushpull_async(store, &wide, 1, &wide, 1, &ticket, &failure));
  REFUSES(tkv_store_push_async(NULL, &wide, 1, &ticket, &failure));
  REFUSES(tkv_store_push_async(store, NULL, 1, &ticket, &failure));
  REFUSES(tkv_store_pull_async(NULL, &wide, 1, &ticket, &failure));
  REFUSES(tkv_store_pushpull_async(NULL, &wide, 1, &wide, 1, &ticket, &failure));
  REFUSES(tkv_store_barrier_async(NULL, &ticket, &failure));
  REFUSES(tkv_store_barrier_async(store, NULL, &failure));
  REFUSES(tkv_store_save_async(NULL, folder(), &ticket, &failure));
  REFUSES(tkv_ticket_wait(NULL, 0, &failure));
  REFUSES(tkv_ticket_on_end(NULL, note_end, &ends, note_free, &failure));
  EXPECT(ticket == NULL && ends.ended == 0 && ends.freed == 0);
  tkv_array_release(value);
  tkv_store_release(store);
}

/* A push whose ticket nobody could be given has not happened. */
static void a_call_without_a_place_for_its_ticket_changes_nothing(void) {
  tkv_store* store = store_with_w(1);
  tkv_array *value = full(2, 3, 4), *out = full(2, 3, 0);
  tkv_item in = one(name("w"), &value), to = one(name("w"), &out);
  REFUSES(tkv_store_push_async(store, &in, 1, NULL, &failure));
  REFUSES(tkv_store_pushpull_async(store, &in, 1, &to, 1, NULL, &failure));
  REFUSES(tkv_store_pull_async(store, &to, 1, NULL, &failure));
  EXPECT(holds(out, 0));
  OK(tkv_store_pull(store, &to, 1, &failure));
  EXPECT(holds(out, 1));
  tkv_array_release(value);
  tkv_array_release(out);
  tkv_store_release(store);
}

static void null_is_no_ticket(void) {
  EXPECT(tkv_ticket_retain(NULL) == NULL);
  tkv_ticket_release(NULL);
  (void)tkv_ticket_is_done(NULL);
  EXPECT(tkv_ticket_cancel(NULL) == 0);
  tkv_store* store = store_with_w(1);
  tkv_ticket* ticket = NULL;
  OK(tkv_store_barrier_async(store, &ticket, &failure));
  REFUSES(tkv_ticket_on_end(ticket, NULL, NULL, NULL, &failure));
  tkv_ticket_release(ticket);
  tkv_store_release(store);
}

static const test tests[] = {
    TEST(each_verb_goes_on_behind_its_call),
    TEST(a_call_keeps_its_arrays_and_goes_on_without_its_ticket),
    TEST(a_retained_ticket_outlives_a_release),
    TEST(a_ticket_outlives_its_store),
    TEST(the_end_is_told_once),
    TEST(the_end_is_told_at_once_where_it_has_come),
    TEST(calls_that_are_refused_give_no_ticket),
    TEST(a_call_without_a_place_for_its_ticket_changes_nothing),
    TEST(null_is_no_ticket),
};
const suite ticket_suite = {"Tickets", tests, COUNT(tests)};
