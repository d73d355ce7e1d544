/* A job of two workers, of which the second does nothing until the first has seen what waiting for it is like.  Started by
 * tests/cluster/test_languages.py. */

#include <stdatomic.h>
#include <string.h>

#include "check.h"

static tkv_store* store;
static atomic_int interrupts; /* how often a wait has asked */
static atomic_int stops;      /* what waits is to end */

static tkv_error* interrupt(void* context) {
  (void)context;
  ++interrupts;
  return stops ? tkv_error_create(TKV_CANCELLED, "the user has had enough") : NULL;
}

static tkv_error* leave(void* context, const tkv_key* key, tkv_array* sum, tkv_array* stored) {
  (void)context, (void)key, (void)sum, (void)stored;
  return NULL;
}

static void a_worker_joins_the_job(void) {
  tkv_store_options options = TKV_INIT(tkv_store_options);
  options.interrupt = interrupt;
  OK(tkv_store_create("dist_sync", &options, &store, &failure));
  EXPECT(tkv_store_num_workers(store) == 2);
  tkv_text* role = NULL;
  OK(tkv_process_role(&role, &failure));
  EXPECT(text_has(role, "worker"));
  tkv_array* array = full(2, 3, 0);
  tkv_item w = one(name("w"), &array);
  OK(tkv_store_init(store, &w, 1, &failure));
  tkv_array_release(array);
}

static void an_observer_looks_at_the_job(void) {
  if (tkv_store_rank(store) != 0) return;
  tkv_text* url = NULL;
  OK(tkv_store_url(store, &url, &failure));
  EXPECT(strncmp(tkv_text_data(url), "tkv://", 6) == 0);
  tkv_store* eye = NULL;
  OK(tkv_store_connect(tkv_text_data(url), 0, NULL, &eye, &failure));
  tkv_text_release(url);
  EXPECT(tkv_store_rank(eye) == -1 && tkv_store_num_workers(eye) == 2);
  EXPECT(w_holds(eye, 0));
  FAILS(TKV_FAILED_PRECONDITION, "an observer's", push_w(eye, 1, &failure));
  tkv_text* status = NULL;
  OK(tkv_store_status(eye, &status, &failure));
  EXPECT(text_has(status, "\"observers\":1"));
  OK(tkv_store_close(eye, 0, &failure));
  tkv_store_release(eye);
  FAILS(TKV_NOT_FOUND, "no job 'w'", tkv_store_connect("w", 0, NULL, &eye, &failure));
}

static void a_wait_of_a_ticket_ends_with_its_patience(void) {
  if (tkv_store_rank(store) != 0) return;
  OK(push_w(store, 1, &failure)); /* the other worker has not, so that the round is open */
  tkv_array* out = full(2, 3, 7);
  tkv_item w = one(name("w"), &out);
  tkv_ticket* ticket = NULL;
  OK(tkv_store_pull_async(store, &w, 1, &ticket, &failure));
  FAILS(TKV_DEADLINE_EXCEEDED, "", tkv_ticket_wait(ticket, 1, &failure));
  EXPECT(tkv_ticket_is_done(ticket) == 0);
  EXPECT(tkv_ticket_cancel(ticket) == 1);
  FAILS(TKV_CANCELLED, "", tkv_ticket_wait(ticket, 60000, &failure));
  EXPECT(tkv_ticket_is_done(ticket) == 1 && tkv_ticket_cancel(ticket) == 0);
  EXPECT(holds(out, 7));
  tkv_ticket_release(ticket);
  tkv_array_release(out);
}

static void an_interrupt_ends_a_wait_for_others(void) {
  if (tkv_store_rank(store) != 0) return;
  tkv_array* out = full(2, 3, 7);
  tkv_item w = one(name("w"), &out);
  stops = 1;
  FAILS(TKV_CANCELLED, "the user has had enough", tkv_store_pull(store, &w, 1, &failure));
  stops = 0;
  EXPECT(interrupts > 0);
  tkv_array_release(out);
}

static void the_job_goes_on(void) {
  OK(tkv_store_barrier(store, &failure));
  int32_t dead = 77;
  OK(tkv_store_num_dead_node(store, 7, &dead, &failure));
  EXPECT(dead == 0 && tkv_store_is_distributed(store) == 1);
  OK(tkv_store_num_dead_node(store, 9 + 2 * 1, &dead, &failure));
  FAILS(TKV_INVALID_ARGUMENT, "num_dead_node: 13 is worker 2, of 2",
        tkv_store_num_dead_node(store, 9 + 2 * 2, &dead, &failure));
  if (tkv_store_rank(store) == 1) OK(push_w(store, 2, &failure));
  EXPECT(w_holds(store, 3));
  const tkv_key w = name("w");
  uint64_t round = 0;
  OK(tkv_store_round(store, &w, &round, &failure));
  EXPECT(round == 1);
  OK(tkv_store_set_compression(store, "fp16", 0, 0, NULL, &failure));
  FAILS(TKV_UNIMPLEMENTED, "set_optimizer",
        tkv_store_set_updater(store, leave, NULL, NULL, &failure));
  OK(tkv_store_close(store, 0, &failure));
  tkv_store_release(store);
}

static const test tests[] = {
    TEST(a_worker_joins_the_job),
    TEST(an_observer_looks_at_the_job),
    TEST(a_wait_of_a_ticket_ends_with_its_patience),
    TEST(an_interrupt_ends_a_wait_for_others),
    TEST(the_job_goes_on),
};
static const suite job_suite = {"Job", tests, COUNT(tests)};

int main(int argc, char** argv) {
  const suite* const suites[] = {&job_suite};
  return run_suites(suites, COUNT(suites), argc, argv);
}
