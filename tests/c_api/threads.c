/* Handles that threads share. */

#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { kThreads = 4, kRounds = 200 };

typedef struct shared {
  tkv_store* store;
  tkv_array* array;
  pthread_barrier_t begin; /* every thread has done its first call */
  atomic_int others;       /* codes that were not expected */
} shared;

static void count_free(void* context) { ++*(int*)context; }

static void run_threads(void* (*work)(void*), void* context) {
  pthread_t threads[kThreads];
  int started = 0;
  while (started < kThreads && pthread_create(&threads[started], NULL, work, context) == 0) {
    ++started;
  }
  EXPECT(started == kThreads);
  for (int i = 0; i < started; ++i) pthread_join(threads[i], NULL);
}

static void* retain_use_release(void* context) {
  shared* const shared = context;
  for (int i = 0; i < kRounds; ++i) {
    tkv_store* store = tkv_store_retain(shared->store);
    tkv_array* array = tkv_array_retain(shared->array);
    tkv_item w = one(name("w"), &array);
    if (tkv_store_push(store, &w, 1, NULL) != TKV_OK) ++shared->others;
    if (tkv_array_size(array) != 6 || tkv_store_rank(store) != 0) ++shared->others;
    tkv_array_release(array);
    tkv_store_release(store);
  }
  return NULL;
}

static void* retain_and_release(void* context) {
  shared* const shared = context;
  for (int i = 0; i < 50000; ++i) tkv_array_release(tkv_array_retain(shared->array));
  return NULL;
}

static void no_count_of_a_handle_is_lost(void) {
  float elements[6] = {0};
  const int64_t shape[] = {2, 3};
  int freed = 0;
  shared shared = {0};
  OK(tkv_array_wrap(elements, shape, NULL, 2, TKV_F32, cpu, 0, &freed, count_free, &shared.array,
                    &failure));
  run_threads(retain_and_release, &shared);
  EXPECT(freed == 0);
  tkv_array_release(shared.array);
  EXPECT(freed == 1);
}

static void threads_share_handles(void) {
  shared shared = {.store = store_with_w(0), .array = full(2, 3, 1)};
  run_threads(retain_use_release, &shared);
  EXPECT(shared.others == 0);
  tkv_store_release(shared.store);
  tkv_array_release(shared.array);
}

static void* use_until_closed(void* context) {
  shared* const shared = context;
  tkv_array* out = full(2, 3, 0);
  tkv_item in = one(name("w"), &shared->array), to = one(name("w"), &out);
  tkv_code code = tkv_store_push(shared->store, &in, 1, NULL);
  pthread_barrier_wait(&shared->begin);
  while (code == TKV_OK) {
    code = tkv_store_push(shared->store, &in, 1, NULL);
    if (code == TKV_OK) code = tkv_store_pull(shared->store, &to, 1, NULL);
  }
  if (code != TKV_FAILED_PRECONDITION) ++shared->others;
  size_t keys = 0;
  if (tkv_store_size(shared->store, &keys, NULL) != TKV_FAILED_PRECONDITION) ++shared->others;
  tkv_array_release(out);
  return NULL;
}
static void* close_store(void* context) {
  shared* const shared = context;
  pthread_barrier_wait(&shared->begin);
  OK(tkv_store_close(shared->store, 0, &failure));
  return NULL;
}

static void a_store_is_closed_while_threads_use_it(void) {
  shared shared = {.store = store_with_w(0), .array = full(2, 3, 1)};
  pthread_t closer;
  pthread_barrier_init(&shared.begin, NULL, kThreads + 1);
  if (EXPECT(pthread_create(&closer, NULL, close_store, &shared) == 0)) {
    run_threads(use_until_closed, &shared);
    pthread_join(closer, NULL);
  }
  EXPECT(shared.others == 0);
  pthread_barrier_destroy(&shared.begin);
  tkv_store_release(shared.store);
  tkv_array_release(shared.array);
}

/* ---- the last release on another thread */

typedef struct last {
  tkv_store* store;
  tkv_array* array;
  tkv_optimizer* optimizer;
  tkv_ticket* ticket;
  tkv_error* error;
} last;
static void* release_all(void* context) {
  last* const last = context;
  tkv_ticket_release(last->ticket);
  tkv_store_release(last->store);
  tkv_array_release(last->array);
  tkv_optimizer_release(last->optimizer);
  tkv_error_release(last->error);
  return NULL;
}
static tkv_error* keep(void* context, const tkv_key* key, tkv_array* sum, tkv_array* stored) {
  (void)context, (void)key, (void)sum, (void)stored;
  return NULL;
}

static void the_last_release_may_be_on_another_thread(void) {
  float elements[6] = {0};
  const int64_t shape[] = {2, 3};
  int array_freed = 0, updater_freed = 0;
  last last = {.store = store_with_w(0), .error = tkv_error_create(TKV_ABORTED, "late")};
  OK(tkv_array_wrap(elements, shape, NULL, 2, TKV_F32, cpu, 0, &array_freed, count_free,
                    &last.array, &failure));
  OK(tkv_optimizer_create("sgd", NULL, &last.optimizer, &failure));
  OK(tkv_store_set_updater(last.store, keep, &updater_freed, count_free, &failure));
  tkv_item w = one(name("w"), &last.array);
  OK(tkv_store_push_async(last.store, &w, 1, &last.ticket, &failure));
  pthread_t thread;
  if (EXPECT(pthread_create(&thread, NULL, release_all, &last) == 0)) pthread_join(thread, NULL);
  EXPECT(array_freed == 1 && updater_freed == 1);
}

/* ---- two threads in one updater's store */

static tkv_error* count_call(void* context, const tkv_key* key, tkv_array* sum, tkv_array* stored) {
  (void)key;
  ++*(atomic_int*)context;
  tkv_operands operands = TKV_INIT(tkv_operands);
  operands.a = operands.out = stored;
  operands.b = sum;
  tkv_error* error = NULL;
  tkv_array_compute(TKV_ADD, &operands, NULL, &error);
  return error;
}

static void updates_of_threads_come_one_after_the_other(void) {
  atomic_int calls = 0;
  shared shared = {.store = store_with_w(0), .array = full(2, 3, 1)};
  OK(tkv_store_set_updater(shared.store, count_call, &calls, NULL, &failure));
  run_threads(retain_use_release, &shared);
  EXPECT(shared.others == 0 && calls == kThreads * kRounds);
  tkv_item w = one(name("w"), &shared.array);
  OK(tkv_store_pull(shared.store, &w, 1, &failure));
  EXPECT(holds(shared.array, kThreads * kRounds));
  tkv_store_release(shared.store);
  tkv_array_release(shared.array);
}

static const test tests[] = {
    TEST(no_count_of_a_handle_is_lost),
    TEST(threads_share_handles),
    TEST(a_store_is_closed_while_threads_use_it),
    TEST(the_last_release_may_be_on_another_thread),
    TEST(updates_of_threads_come_one_after_the_other),
};
const suite thread_suite = {"Threads", tests, COUNT(tests)};
