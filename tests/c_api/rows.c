/* Keys that are kept row by row. */

#include "check.h"

static const int64_t kRow[] = {3};
static const int64_t kTwo[] = {5, 1000000007};

static tkv_table_options table_options(void) {
  tkv_table_options options = TKV_INIT(tkv_table_options);
  options.row_shape = kRow;
  options.row_rank = 1;
  options.dtype = TKV_F32;
  options.initializer = TKV_ROW_CONSTANT;
  options.initializer_a = 1;
  options.has_notes = 1;
  return options;
}

/* A local store with the table "t", whose rows begin as 1. */
static tkv_store* store_with_table(void) {
  tkv_store* store = local();
  const tkv_key t = name("t");
  const tkv_table_options options = table_options();
  OK(tkv_store_init_table(store, &t, &options, &failure));
  return store;
}

static tkv_rows_item rows_of(tkv_array* ids, tkv_array* values) {
  return (tkv_rows_item){.key = name("t"), .ids = ids, .values = values};
}

static void rows_begin_as_the_table_says_and_take_pushes(void) {
  tkv_store* store = store_with_table();
  tkv_array *two = ids(kTwo, 2), *out = full(2, 3, 0), *value = full(2, 3, 8);
  tkv_rows_item pull = rows_of(two, out), push = rows_of(two, value);
  OK(tkv_store_pull_rows(store, &pull, 1, &failure));
  EXPECT(holds(out, 1));
  OK(tkv_store_push_rows(store, &push, 1, &failure));
  OK(tkv_store_pull_rows(store, &pull, 1, &failure));
  EXPECT(holds(out, 8));
  tkv_array_release(two);
  tkv_array_release(out);
  tkv_array_release(value);
  tkv_store_release(store);
}

static void rows_of_one_key_in_several_items_are_summed(void) {
  tkv_store* store = store_with_table();
  tkv_array *two = ids(kTwo, 2), *a = full(2, 3, 2), *b = full(2, 3, 3);
  tkv_rows_item push[] = {rows_of(two, a), rows_of(two, b)};
  OK(tkv_store_push_rows(store, push, COUNT(push), &failure));
  OK(tkv_store_pull_rows(store, push, 1, &failure));
  EXPECT(holds(a, 5));
  tkv_array_release(two);
  tkv_array_release(a);
  tkv_array_release(b);
  tkv_store_release(store);
}

static void rows_go_behind_their_calls(void) {
  tkv_store* store = store_with_table();
  tkv_array *two = ids(kTwo, 2), *value = full(2, 3, 4), *out = full(2, 3, 0);
  tkv_rows_item push = rows_of(two, value), pull = rows_of(two, out);
  tkv_ticket *pushed = NULL, *pulled = NULL;
  OK(tkv_store_push_rows_async(store, &push, 1, &pushed, &failure));
  OK(tkv_store_pull_rows_async(store, &pull, 1, &pulled, &failure));
  OK(tkv_ticket_wait(pushed, 60000, &failure));
  OK(tkv_ticket_wait(pulled, 60000, &failure));
  EXPECT(holds(out, 4));
  tkv_ticket_release(pushed);
  tkv_ticket_release(pulled);
  tkv_array_release(two);
  tkv_array_release(value);
  tkv_array_release(out);
  tkv_store_release(store);
}

static void a_table_is_exported_and_imported(void) {
  tkv_store *store = store_with_table(), *other = store_with_table();
  const tkv_key t = name("t");
  tkv_array *two = ids(kTwo, 2), *value = full(2, 3, 4);
  tkv_rows_item push = rows_of(two, value);
  OK(tkv_store_push_rows(store, &push, 1, &failure));
  tkv_array *found = NULL, *values = NULL;
  uint64_t version = 0;
  OK(tkv_store_export_rows(store, &t, NULL, &found, &values, &version, &failure));
  int64_t read[2] = {0, 0};
  OK(tkv_array_read(found, read, sizeof read, &failure));
  EXPECT(read[0] == kTwo[0] && read[1] == kTwo[1] && holds(values, 4) && version == 1);
  OK(tkv_store_import_rows(other, &t, found, values, &failure));
  OK(tkv_array_fill(value, 0, &failure));
  OK(tkv_store_pull_rows(other, &push, 1, &failure));
  EXPECT(holds(value, 4));
  tkv_array_release(found);
  tkv_array_release(values);
  tkv_array_release(two);
  tkv_array_release(value);
  tkv_store_release(store);
  tkv_store_release(other);
}

static void a_filter_chooses_rows_by_id_and_by_version(void) {
  tkv_store* store = store_with_table();
  const tkv_key t = name("t");
  tkv_array *two = ids(kTwo, 2), *value = full(2, 3, 4);
  tkv_rows_item push = rows_of(two, value);
  OK(tkv_store_push_rows(store, &push, 1, &failure));
  tkv_rows_filter filter = TKV_INIT(tkv_rows_filter);
  filter.first = 6;
  tkv_array *found = NULL, *values = NULL;
  uint64_t version = 0;
  OK(tkv_store_export_rows(store, &t, &filter, &found, &values, &version, &failure));
  EXPECT(tkv_array_size(found) == 1);
  tkv_array_release(found);
  tkv_array_release(values);
  filter.first = 0;
  filter.is_new = 1;
  filter.since = version;
  OK(tkv_store_export_rows(store, &t, &filter, &found, &values, &version, &failure));
  EXPECT(tkv_array_size(found) == 0);
  tkv_array_release(found);
  tkv_array_release(values);
  tkv_array_release(two);
  tkv_array_release(value);
  tkv_store_release(store);
}

static void a_table_counts_its_rows(void) {
  tkv_store* store = store_with_table();
  const tkv_key t = name("t"), w = name("w");
  tkv_array *two = ids(kTwo, 2), *value = full(2, 3, 4);
  tkv_rows_item push = rows_of(two, value);
  OK(tkv_store_push_rows(store, &push, 1, &failure));
  tkv_table_stats stats = TKV_INIT(tkv_table_stats);
  OK(tkv_store_table_stats(store, &t, &stats, &failure));
  EXPECT(stats.size == sizeof stats && stats.rows == 2 && stats.version == 1);
  EXPECT(stats.evicted == 0 && stats.memory_bytes > 0 && stats.disk_rows == 0);
  FAILS(TKV_NOT_FOUND, "w", tkv_store_table_stats(store, &w, &stats, &failure));
  REFUSES(tkv_store_table_stats(store, &t, NULL, &failure));
  REFUSES(tkv_store_table_stats(store, NULL, &stats, &failure));
  REFUSES(tkv_store_table_stats(NULL, &t, &stats, &failure));
  tkv_key_info info = TKV_INIT(tkv_key_info);
  OK(tkv_store_describe(store, &t, &info, &failure));
  EXPECT(info.by_rows == 1 && info.rank == 1 && info.shape[0] == 3);
  EXPECT(info.row_count == TKV_ROWS_MAX);
  tkv_array_release(two);
  tkv_array_release(value);
  tkv_store_release(store);
}

static void a_table_begins_with_rows_and_an_optimizer_of_its_own(void) {
  tkv_store* store = local();
  const tkv_key t = name("t");
  const tkv_param params[] = {{"learning_rate", 0.5}};
  tkv_optimizer_options sgd = TKV_INIT(tkv_optimizer_options);
  sgd.params = params;
  sgd.param_count = COUNT(params);
  tkv_array *two = ids(kTwo, 2), *value = full(2, 3, 6), *grad = full(2, 3, 2);
  tkv_table_options options = table_options();
  OK(tkv_optimizer_create("sgd", &sgd, &options.optimizer, &failure));
  options.ids = two;
  options.values = value;
  options.row_count = 2000000000;
  OK(tkv_store_init_table(store, &t, &options, &failure));
  tkv_optimizer_release(options.optimizer);
  tkv_rows_item push = rows_of(two, grad);
  OK(tkv_store_push_rows(store, &push, 1, &failure));
  OK(tkv_store_pull_rows(store, &push, 1, &failure));
  EXPECT(holds(grad, 5)); /* 6 - 0.5 * 2 */
  tkv_array_release(two);
  tkv_array_release(value);
  tkv_array_release(grad);
  tkv_store_release(store);
}

static void tables_that_cannot_be_are_refused(void) {
  tkv_store* store = local();
  const tkv_key t = name("t");
  tkv_table_options options = table_options();
  options.row_shape = NULL;
  REFUSES(tkv_store_init_table(store, &t, &options, &failure));
  options = table_options();
  options.row_rank = -1;
  REFUSES(tkv_store_init_table(store, &t, &options, &failure));
  options = table_options();
  options.dtype = (tkv_dtype)200;
  REFUSES(tkv_store_init_table(store, &t, &options, &failure));
  options = table_options();
  options.initializer = (tkv_row_kind)7;
  REFUSES(tkv_store_init_table(store, &t, &options, &failure));
  options = table_options();
  options.score = (tkv_row_score)-1;
  REFUSES(tkv_store_init_table(store, &t, &options, &failure));
  options = table_options();
  options.row_count = TKV_ROWS_MAX + 1;
  REFUSES(tkv_store_init_table(store, &t, &options, &failure));
  options = table_options();
  options.ids = ids(kTwo, 2);
  REFUSES(tkv_store_init_table(store, &t, &options, &failure)); /* ids without values */
  tkv_array_release(options.ids);
  options = table_options();
  REFUSES(tkv_store_init_table(store, &t, NULL, &failure));
  REFUSES(tkv_store_init_table(store, NULL, &options, &failure));
  REFUSES(tkv_store_init_table(NULL, &t, &options, &failure));
  size_t keys = 77;
  OK(tkv_store_size(store, &keys, &failure));
  EXPECT(keys == 0);
  tkv_store_release(store);
}

static void rows_that_do_not_fit_are_refused_and_change_nothing(void) {
  tkv_store* store = store_with_table();
  const tkv_key t = name("t");
  const int64_t negative[] = {-1, 2};
  tkv_array *two = ids(kTwo, 2), *bad = ids(negative, 2);
  tkv_array *value = full(2, 3, 4), *wide = full(2, 4, 4);
  tkv_rows_item good = rows_of(two, value), no_ids = rows_of(NULL, value);
  tkv_rows_item no_values = rows_of(two, NULL), too_wide = rows_of(two, wide);
  tkv_rows_item outside = rows_of(bad, value);
  tkv_ticket* ticket = NULL;
  FAILS(TKV_OUT_OF_RANGE, "", tkv_store_push_rows(store, &outside, 1, &failure));
  FAILS(TKV_OUT_OF_RANGE, "", tkv_store_pull_rows(store, &outside, 1, &failure));
  REFUSES(tkv_store_push_rows(store, &no_ids, 1, &failure));
  REFUSES(tkv_store_push_rows(store, &no_values, 1, &failure));
  REFUSES(tkv_store_push_rows(store, &too_wide, 1, &failure));
  REFUSES(tkv_store_push_rows(store, NULL, 1, &failure));
  REFUSES(tkv_store_push_rows(NULL, &good, 1, &failure));
  REFUSES(tkv_store_pull_rows(store, &no_ids, 1, &failure));
  REFUSES(tkv_store_pull_rows(store, &too_wide, 1, &failure));
  REFUSES(tkv_store_pull_rows(store, NULL, 1, &failure));
  REFUSES(tkv_store_pull_rows(NULL, &good, 1, &failure));
  REFUSES(tkv_store_push_rows_async(store, &too_wide, 1, &ticket, &failure));
  REFUSES(tkv_store_push_rows_async(store, &good, 1, NULL, &failure));
  REFUSES(tkv_store_push_rows_async(NULL, &good, 1, &ticket, &failure));
  REFUSES(tkv_store_pull_rows_async(store, &too_wide, 1, &ticket, &failure));
  REFUSES(tkv_store_pull_rows_async(store, &good, 1, NULL, &failure));
  REFUSES(tkv_store_pull_rows_async(NULL, &good, 1, &ticket, &failure));
  REFUSES(tkv_store_import_rows(store, &t, NULL, value, &failure));
  REFUSES(tkv_store_import_rows(store, &t, two, NULL, &failure));
  REFUSES(tkv_store_import_rows(store, NULL, two, value, &failure));
  REFUSES(tkv_store_import_rows(NULL, &t, two, value, &failure));
  EXPECT(ticket == NULL);
  OK(tkv_store_pull_rows(store, &good, 1, &failure));
  EXPECT(holds(value, 1));
  tkv_array_release(two);
  tkv_array_release(bad);
  tkv_array_release(value);
  tkv_array_release(wide);
  tkv_store_release(store);
}

static void an_export_without_a_place_is_refused(void) {
  tkv_store* store = store_with_table();
  const tkv_key t = name("t");
  tkv_array *found = NULL, *values = NULL;
  uint64_t version = 0;
  REFUSES(tkv_store_export_rows(NULL, &t, NULL, &found, &values, &version, &failure));
  REFUSES(tkv_store_export_rows(store, NULL, NULL, &found, &values, &version, &failure));
  REFUSES(tkv_store_export_rows(store, &t, NULL, NULL, &values, &version, &failure));
  REFUSES(tkv_store_export_rows(store, &t, NULL, &found, NULL, &version, &failure));
  EXPECT(found == NULL && values == NULL);
  tkv_store_release(store);
}

static const test tests[] = {
    TEST(rows_begin_as_the_table_says_and_take_pushes),
    TEST(rows_of_one_key_in_several_items_are_summed),
    TEST(rows_go_behind_their_calls),
    TEST(a_table_is_exported_and_imported),
    TEST(a_filter_chooses_rows_by_id_and_by_version),
    TEST(a_table_counts_its_rows),
    TEST(a_table_begins_with_rows_and_an_optimizer_of_its_own),
    TEST(tables_that_cannot_be_are_refused),
    TEST(rows_that_do_not_fit_are_refused_and_change_nothing),
    TEST(an_export_without_a_place_is_refused),
};
const suite row_suite = {"Rows", tests, COUNT(tests)};
