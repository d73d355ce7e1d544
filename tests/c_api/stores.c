/* Stores of one process: how they are made, the verbs, and what they say of themselves. */

#include <string.h>

#include "check.h"

static tkv_code with_option(const char* type, const char* option, const char* value,
                            tkv_store** store, tkv_error** error) {
  const tkv_option given[] = {{option, value}};
  tkv_store_options options = TKV_INIT(tkv_store_options);
  options.options = given;
  options.option_count = COUNT(given);
  options.ignores_environment = 1;
  return tkv_store_create(type, &options, store, error);
}

/* ---- made and closed */

static void types_have_names_in_any_case(void) {
  const char* const types[] = {"local", "LOCAL", "device"};
  for (size_t i = 0; i < COUNT(types); ++i) {
    tkv_store* store = NULL;
    tkv_text* type = NULL;
    OK(tkv_store_create(types[i], NULL, &store, &failure));
    OK(tkv_store_type(store, &type, &failure));
    EXPECT(text_has(type, i < 2 ? "local" : "device"));
    tkv_store_release(store);
  }
}

static void types_that_there_are_not_are_refused(void) {
  tkv_store* store = NULL;
  FAILS(TKV_INVALID_ARGUMENT, "loca", tkv_store_create("loca", NULL, &store, &failure));
  REFUSES(tkv_store_create(NULL, NULL, &store, &failure));
  REFUSES(tkv_store_create("local", NULL, NULL, &failure));
  EXPECT(store == NULL);
}

static void options_have_the_names_of_all_languages(void) {
  tkv_store* store = NULL;
  OK(with_option("local", "threads", "1", &store, &failure));
  tkv_store_release(store);
  store = NULL;
  REFUSES(with_option("local", "thread", "1", &store, &failure));
  REFUSES(with_option("local", "threads", "many", &store, &failure));
  REFUSES(with_option("local", "threads", "-1", &store, &failure));
  REFUSES(with_option("local", "staleness", "2", &store, &failure)); /* has no effect there */
  REFUSES(with_option("local", NULL, "1", &store, &failure));
  REFUSES(with_option("local", "threads", NULL, &store, &failure));
  tkv_store_options options = TKV_INIT(tkv_store_options);
  options.option_count = 1;
  REFUSES(tkv_store_create("local", &options, &store, &failure));
  EXPECT(store == NULL);
}

static void a_retained_store_is_open_after_a_release(void) {
  tkv_store* store = store_with_w(1);
  EXPECT(tkv_store_retain(store) == store);
  tkv_store_release(store);
  EXPECT(w_holds(store, 1));
  tkv_store_release(store);
  EXPECT(tkv_store_retain(NULL) == NULL);
  tkv_store_release(NULL);
}

static void a_closed_store_refuses_all_but_close(void) {
  tkv_store* store = store_with_w(1);
  tkv_array* array = full(2, 3, 2);
  tkv_item w = one(name("w"), &array);
  tkv_ticket* ticket = NULL;
  tkv_text* text = NULL;
  size_t keys = 77;
  OK(tkv_store_close(store, 0, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_init(store, &w, 1, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_push(store, &w, 1, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_pull(store, &w, 1, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_pushpull(store, &w, 1, &w, 1, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_broadcast(store, &w, 1, &w, 1, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_delete(store, &w.key, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_push_async(store, &w, 1, &ticket, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_save(store, folder(), &text, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_barrier(store, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_stats(store, &text, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_size(store, &keys, &failure));
  EXPECT(ticket == NULL && text == NULL && keys == 77 && holds(array, 2));
  OK(tkv_store_close(store, 1, &failure));
  REFUSES(tkv_store_close(NULL, 0, &failure));
  tkv_array_release(array);
  tkv_store_release(store);
}

/* ---- the verbs */

static void a_push_of_several_arrays_is_their_sum(void) {
  tkv_store* store = store_with_w(0);
  tkv_array* values[] = {full(2, 3, 1), full(2, 3, 2), full(2, 3, 4)};
  tkv_item w = item(name("w"), values, COUNT(values));
  OK(tkv_store_push(store, &w, 1, &failure));
  EXPECT(w_holds(store, 7));
  for (size_t i = 0; i < COUNT(values); ++i) tkv_array_release(values[i]);
  tkv_store_release(store);
}

static void a_pull_writes_every_output(void) {
  tkv_store* store = store_with_w(5);
  tkv_array* outs[] = {full(2, 3, 0), full(2, 3, 0)};
  tkv_item w = item(name("w"), outs, COUNT(outs));
  OK(tkv_store_pull(store, &w, 1, &failure));
  EXPECT(holds(outs[0], 5) && holds(outs[1], 5));
  tkv_array_release(outs[0]);
  tkv_array_release(outs[1]);
  tkv_store_release(store);
}

static void a_pull_into_memory_that_elements_share_writes_nothing(void) {
  float elements[6] = {1, 2, 3, 4, 5, 6};
  const int64_t shape[] = {2, 3};
  const int64_t overlapping[][2] = {{0, 1}, {1, 0}, {1, 1}, {2, 1}, {0, 0}};
  tkv_store* store = store_with_w(7);
  tkv_array *value = full(2, 3, 8), *apart = full(2, 3, 9);
  const tkv_item in = one(name("w"), &value), fresh = one(name("new"), &value);
  for (size_t i = 0; i < COUNT(overlapping); ++i) {
    tkv_array* shared = NULL;
    OK(tkv_array_wrap(elements, shape, overlapping[i], 2, TKV_F32, cpu, 0, NULL, NULL, &shared,
                      &failure));
    tkv_array* outs[] = {apart, shared};
    const tkv_item alone = one(name("w"), &shared), both = item(name("w"), outs, COUNT(outs));
    const tkv_item made = one(name("new"), &shared);
    tkv_ticket* ticket = NULL;
    size_t keys = 0;
    FAILS(TKV_INVALID_ARGUMENT, "one memory location", tkv_store_pull(store, &alone, 1, &failure));
    FAILS(TKV_INVALID_ARGUMENT, "pull 'w'", tkv_store_pull(store, &both, 1, &failure));
    REFUSES(tkv_store_pull_async(store, &alone, 1, &ticket, &failure));
    REFUSES(tkv_store_pushpull(store, &in, 1, &alone, 1, &failure));
    REFUSES(tkv_store_pushpull_async(store, &in, 1, &alone, 1, &ticket, &failure));
    REFUSES(tkv_store_broadcast(store, &fresh, 1, &made, 1, &failure));
    OK(tkv_store_size(store, &keys, &failure));
    EXPECT(ticket == NULL && keys == 1 && w_holds(store, 7) && holds(apart, 9));
    for (size_t j = 0; j < COUNT(elements); ++j) EXPECT(elements[j] == (float)(j + 1));
    OK(tkv_store_push(store, &alone, 1, &failure)); /* as a value it is fine */
    OK(tkv_array_fill(value, 7, &failure));
    OK(tkv_store_push(store, &in, 1, &failure));
    OK(tkv_array_fill(value, 8, &failure));
    tkv_array_release(shared);
  }
  tkv_array_release(value);
  tkv_array_release(apart);
  tkv_store_release(store);
}

static void lists_of_integer_keys_go_in_one_call(void) {
  tkv_store* store = local();
  tkv_array* arrays[] = {full(2, 3, 3), full(1, 4, 5)};
  tkv_item items[] = {one(number(3), &arrays[0]), one(number(INT64_C(1) << 40), &arrays[1])};
  OK(tkv_store_init(store, items, COUNT(items), &failure));
  OK(tkv_store_push(store, items, COUNT(items), &failure));
  OK(tkv_array_fill(arrays[0], 0, &failure));
  OK(tkv_array_fill(arrays[1], 0, &failure));
  OK(tkv_store_pull(store, items, COUNT(items), &failure));
  EXPECT(holds(arrays[0], 3) && holds(arrays[1], 5));
  tkv_array_release(arrays[0]);
  tkv_array_release(arrays[1]);
  tkv_store_release(store);
}

static void pushpull_and_broadcast_write_their_outputs(void) {
  tkv_store* store = local();
  tkv_array *value = full(2, 3, 4), *out = full(2, 3, 0);
  tkv_item in = one(name("w"), &value), to = one(name("w"), &out);
  OK(tkv_store_broadcast(store, &in, 1, &to, 1, &failure));
  EXPECT(holds(out, 4));
  OK(tkv_array_fill(value, 6, &failure));
  OK(tkv_store_pushpull(store, &in, 1, &to, 1, &failure));
  EXPECT(holds(out, 6));
  FAILS(TKV_ALREADY_EXISTS, "w", tkv_store_broadcast(store, &in, 1, &to, 1, &failure));
  tkv_array_release(value);
  tkv_array_release(out);
  tkv_store_release(store);
}

static void a_list_is_checked_before_anything_changes(void) {
  tkv_store* store = store_with_w(1);
  tkv_array *good = full(2, 3, 9), *wide = full(3, 3, 9);
  tkv_item twice[] = {one(name("a"), &good), one(name("w"), &good)};
  FAILS(TKV_ALREADY_EXISTS, "w", tkv_store_init(store, twice, 2, &failure));
  tkv_item unknown[] = {one(name("w"), &good), one(name("v"), &good)};
  FAILS(TKV_NOT_FOUND, "v", tkv_store_push(store, unknown, 2, &failure));
  tkv_item wrong[] = {one(name("w"), &good), one(name("w"), &wide)};
  FAILS(TKV_INVALID_ARGUMENT, "push 'w'", tkv_store_push(store, wrong, 2, &failure));
  FAILS(TKV_INVALID_ARGUMENT, "pull 'w'", tkv_store_pull(store, wrong, 2, &failure));
  tkv_item mixed[] = {one(name("a"), &good), one(number(3), &good)};
  REFUSES(tkv_store_init(store, mixed, 2, &failure));
  size_t keys = 0;
  OK(tkv_store_size(store, &keys, &failure));
  EXPECT(keys == 1 && w_holds(store, 1) && holds(good, 9));
  tkv_array_release(good);
  tkv_array_release(wide);
  tkv_store_release(store);
}

typedef tkv_code (*verb)(tkv_store*, const tkv_item*, size_t, tkv_error**);
static void null_in_an_item_is_refused_and_changes_nothing(void) {
  const verb verbs[] = {tkv_store_init, tkv_store_push, tkv_store_pull};
  tkv_store* store = store_with_w(1);
  tkv_array* array = full(2, 3, 9);
  tkv_array* const hole[] = {array, NULL};
  tkv_item no_arrays = item(name("w"), NULL, 1), with_hole = item(name("w"), hole, 2);
  tkv_item none = item(name("w"), &array, 0), good = one(name("w"), &array);
  tkv_item bad_text = one(name("\xff\xfe"), &array);
  for (size_t i = 0; i < COUNT(verbs); ++i) {
    REFUSES(verbs[i](store, NULL, 1, &failure));
    REFUSES(verbs[i](NULL, &good, 1, &failure));
    REFUSES(verbs[i](store, &no_arrays, 1, &failure));
    REFUSES(verbs[i](store, &with_hole, 1, &failure));
    REFUSES(verbs[i](store, &none, 1, &failure));
    REFUSES(verbs[i](store, &bad_text, 1, &failure));
  }
  REFUSES(tkv_store_pushpull(NULL, &good, 1, &good, 1, &failure));
  REFUSES(tkv_store_pushpull(store, NULL, 1, &good, 1, &failure));
  REFUSES(tkv_store_pushpull(store, &good, 1, NULL, 1, &failure));
  REFUSES(tkv_store_pushpull(store, &with_hole, 1, &good, 1, &failure));
  REFUSES(tkv_store_broadcast(NULL, &good, 1, &good, 1, &failure));
  REFUSES(tkv_store_broadcast(store, NULL, 1, &good, 1, &failure));
  REFUSES(tkv_store_broadcast(store, &good, 1, &no_arrays, 1, &failure));
  EXPECT(w_holds(store, 1) && holds(array, 9));
  tkv_array_release(array);
  tkv_store_release(store);
}

static void a_mode_that_there_is_not_is_refused(void) {
  tkv_store* store = local();
  tkv_array* array = full(2, 3, 9);
  tkv_item w = one(name("w"), &array);
  w.mode = "often";
  REFUSES(tkv_store_init(store, &w, 1, &failure));
  tkv_array_release(array);
  tkv_store_release(store);
}

static void a_deleted_key_is_made_anew(void) {
  tkv_store* store = store_with_w(1);
  const tkv_key w = name("w");
  int32_t contains = -1;
  OK(tkv_store_delete(store, &w, &failure));
  OK(tkv_store_contains(store, &w, &contains, &failure));
  EXPECT(contains == 0);
  FAILS(TKV_NOT_FOUND, "w", tkv_store_delete(store, &w, &failure));
  REFUSES(tkv_store_delete(store, NULL, &failure));
  REFUSES(tkv_store_delete(NULL, &w, &failure));
  tkv_array* array = full(1, 1, 2);
  tkv_item again = one(w, &array);
  OK(tkv_store_init(store, &again, 1, &failure));
  OK(tkv_store_contains(store, &w, &contains, &failure));
  EXPECT(contains == 1);
  tkv_array_release(array);
  tkv_store_release(store);
}

/* ---- what a store is */

static void a_store_says_what_it_has(void) {
  tkv_store* store = store_with_w(1);
  const tkv_key w = name("w");
  size_t keys = 0;
  uint64_t round = 77;
  OK(tkv_store_size(store, &keys, &failure));
  OK(tkv_store_round(store, &w, &round, &failure));
  EXPECT(keys == 1 && round == 0);
  EXPECT(tkv_store_rank(store) == 0 && tkv_store_num_workers(store) == 1);
  EXPECT(tkv_store_has_rejoined(store) == 0 && tkv_store_is_distributed(store) == 0);
  EXPECT(tkv_store_rank(NULL) == -1 && tkv_store_num_workers(NULL) == -1);
  EXPECT(tkv_store_has_rejoined(NULL) == 0 && tkv_store_is_distributed(NULL) == 0);
  OK(tkv_store_barrier(store, &failure));
  tkv_text* json = NULL;
  OK(tkv_store_stats(store, &json, &failure));
  EXPECT(text_has(json, "{"));
  tkv_store_release(store);
}

static void nobody_is_dead_in_a_store_of_one_process(void) {
  tkv_store* store = store_with_w(1);
  int32_t dead = 77;
  OK(tkv_store_num_dead_node(store, 7, &dead, &failure));
  EXPECT(dead == 0);
  FAILS(TKV_INVALID_ARGUMENT, "num_dead_node: 0; a sum of 1, 2 and 4",
        tkv_store_num_dead_node(store, 0, &dead, &failure));
  FAILS(TKV_INVALID_ARGUMENT, "num_dead_node: 8 is server 0, of 0",
        tkv_store_num_dead_node(store, 8, &dead, &failure));
  FAILS(TKV_INVALID_ARGUMENT, "", tkv_store_num_dead_node(store, INT32_MIN, &dead, &failure));
  REFUSES(tkv_store_num_dead_node(store, 7, NULL, &failure));
  REFUSES(tkv_store_num_dead_node(NULL, 7, &dead, &failure));
  OK(tkv_store_close(store, 0, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "closed", tkv_store_num_dead_node(store, 7, &dead, &failure));
  tkv_store_release(store);
}

static void a_key_says_what_it_is(void) {
  tkv_store* store = store_with_w(1);
  const tkv_key w = name("w"), v = name("v");
  tkv_key_info info = TKV_INIT(tkv_key_info);
  OK(tkv_store_describe(store, &w, &info, &failure));
  EXPECT(info.size == sizeof info && info.rank == 2);
  EXPECT(info.shape[0] == 2 && info.shape[1] == 3 && info.dtype == TKV_F32);
  EXPECT(info.context.device == TKV_CPU && info.by_rows == 0);
  FAILS(TKV_NOT_FOUND, "v", tkv_store_describe(store, &v, &info, &failure));
  REFUSES(tkv_store_describe(store, NULL, &info, &failure));
  REFUSES(tkv_store_describe(store, &w, NULL, &failure));
  REFUSES(tkv_store_describe(NULL, &w, &info, &failure));
  tkv_store_release(store);
}

static void keys_come_in_the_order_of_init(void) {
  tkv_store* store = store_with_w(1);
  tkv_array* array = full(1, 1, 0);
  tkv_item more[] = {one(name("z"), &array), one(name("a"), &array)};
  OK(tkv_store_init(store, more, 2, &failure));
  tkv_keys* keys = NULL;
  OK(tkv_store_keys(store, &keys, &failure));
  tkv_store_release(store); /* the list is the caller's */
  const char* const wanted[] = {"w", "z", "a"};
  if (EXPECT(tkv_keys_size(keys) == COUNT(wanted))) {
    for (size_t i = 0; i < COUNT(wanted); ++i) {
      EXPECT(strcmp(tkv_keys_data(keys)[i].text, wanted[i]) == 0);
    }
  }
  tkv_keys_release(keys);
  EXPECT(tkv_keys_size(NULL) == 0 && tkv_keys_data(NULL) == NULL);
  tkv_keys_release(NULL);
  tkv_array_release(array);
}

static void integer_keys_come_back_as_integers(void) {
  tkv_store* store = local();
  tkv_array* array = full(1, 1, 0);
  tkv_item seven = one(number(-7), &array);
  OK(tkv_store_init(store, &seven, 1, &failure));
  tkv_keys* keys = NULL;
  OK(tkv_store_keys(store, &keys, &failure));
  if (EXPECT(tkv_keys_size(keys) == 1)) {
    EXPECT(tkv_keys_data(keys)[0].text == NULL && tkv_keys_data(keys)[0].number == -7);
  }
  tkv_keys_release(keys);
  tkv_array_release(array);
  tkv_store_release(store);
}

static void questions_with_null_are_refused(void) {
  tkv_store* store = store_with_w(1);
  const tkv_key w = name("w");
  tkv_text* text = NULL;
  tkv_keys* keys = NULL;
  size_t size = 0;
  uint64_t round = 0;
  int32_t contains = 0;
  REFUSES(tkv_store_type(NULL, &text, &failure));
  REFUSES(tkv_store_type(store, NULL, &failure));
  REFUSES(tkv_store_stats(NULL, &text, &failure));
  REFUSES(tkv_store_stats(store, NULL, &failure));
  REFUSES(tkv_store_status(NULL, &text, &failure));
  REFUSES(tkv_store_url(NULL, &text, &failure));
  REFUSES(tkv_store_url(store, NULL, &failure));
  REFUSES(tkv_store_connect("tkv://h:1/j", 0, NULL, NULL, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "one process", tkv_store_status(store, &text, &failure));
  REFUSES(tkv_store_size(NULL, &size, &failure));
  REFUSES(tkv_store_size(store, NULL, &failure));
  REFUSES(tkv_store_keys(NULL, &keys, &failure));
  REFUSES(tkv_store_keys(store, NULL, &failure));
  REFUSES(tkv_store_round(NULL, &w, &round, &failure));
  REFUSES(tkv_store_round(store, NULL, &round, &failure));
  REFUSES(tkv_store_round(store, &w, NULL, &failure));
  REFUSES(tkv_store_contains(NULL, &w, &contains, &failure));
  REFUSES(tkv_store_contains(store, NULL, &contains, &failure));
  REFUSES(tkv_store_contains(store, &w, NULL, &failure));
  REFUSES(tkv_store_barrier(NULL, &failure));
  REFUSES(tkv_store_set_optimizer(NULL, NULL, &failure));
  REFUSES(tkv_store_set_optimizer(store, NULL, &failure));
  EXPECT(text == NULL && keys == NULL);
  tkv_store_release(store);
}

/* ---- compression */

static void compression_is_for_stores_that_send(void) {
  tkv_store *store = local(), *device = NULL;
  OK(tkv_store_create("device", NULL, &device, &failure));
  FAILS(TKV_FAILED_PRECONDITION, "",
        tkv_store_set_compression(store, "2bit", 0.5, 0, NULL, &failure));
  OK(tkv_store_set_compression(device, "2bit", 0.5, 0, NULL, &failure));
  OK(tkv_store_set_compression(device, "none", 0, 0, "w*", &failure));
  REFUSES(tkv_store_set_compression(device, "3bit", 0.5, 0, NULL, &failure));
  REFUSES(tkv_store_set_compression(device, NULL, 0.5, 0, NULL, &failure));
  REFUSES(tkv_store_set_compression(NULL, "2bit", 0.5, 0, NULL, &failure));
  tkv_store_release(store);
  tkv_store_release(device);
}

static const test tests[] = {
    TEST(types_have_names_in_any_case),
    TEST(types_that_there_are_not_are_refused),
    TEST(options_have_the_names_of_all_languages),
    TEST(a_retained_store_is_open_after_a_release),
    TEST(a_closed_store_refuses_all_but_close),
    TEST(a_push_of_several_arrays_is_their_sum),
    TEST(a_pull_writes_every_output),
    TEST(a_pull_into_memory_that_elements_share_writes_nothing),
    TEST(lists_of_integer_keys_go_in_one_call),
    TEST(pushpull_and_broadcast_write_their_outputs),
    TEST(a_list_is_checked_before_anything_changes),
    TEST(null_in_an_item_is_refused_and_changes_nothing),
    TEST(a_mode_that_there_is_not_is_refused),
    TEST(a_deleted_key_is_made_anew),
    TEST(a_store_says_what_it_has),
    TEST(nobody_is_dead_in_a_store_of_one_process),
    TEST(a_key_says_what_it_is),
    TEST(keys_come_in_the_order_of_init),
    TEST(integer_keys_come_back_as_integers),
    TEST(questions_with_null_are_refused),
    TEST(compression_is_for_stores_that_send),
};
const suite store_suite = {"Stores", tests, COUNT(tests)};
