/* Structs that begin with their size: those of other versions are taken where they say nothing that is not known. */

#include <stdlib.h>
#include <string.h>

#include "check.h"

/* How a struct is used: what it holds, and a call that is given one, which gives the struct of another version back as it
 * was. */
typedef struct sized {
  const char* name;
  size_t bytes;
  void (*fill)(void* given);
  tkv_code (*use)(void* given, tkv_error** error);
} sized;

/* ---- what is given */

static void fill_operands(void* given) { ((tkv_operands*)given)->number = 1; }
static tkv_code use_operands(void* given, tkv_error** error) {
  tkv_array *a = full(2, 3, 1), *result = NULL;
  ((tkv_operands*)given)->a = a;
  tkv_code code = tkv_array_compute(TKV_ADD, given, &result, error);
  tkv_array_release(result);
  tkv_array_release(a);
  return code;
}

static void fill_optimizer(void* given) { ((tkv_optimizer_options*)given)->multi_precision = 1; }
static tkv_code use_optimizer(void* given, tkv_error** error) {
  tkv_optimizer* optimizer = NULL;
  tkv_code code = tkv_optimizer_create("sgd", given, &optimizer, error);
  tkv_optimizer_release(optimizer);
  return code;
}

static void fill_store(void* given) { ((tkv_store_options*)given)->ignores_environment = 1; }
static tkv_code use_store(void* given, tkv_error** error) {
  tkv_store* store = NULL;
  tkv_code code = tkv_store_create("local", given, &store, error);
  tkv_store_release(store);
  return code;
}

static const int64_t kRow[] = {3};
static void fill_table(void* given) {
  tkv_table_options* options = given;
  options->row_shape = kRow;
  options->row_rank = 1;
}
static tkv_code use_table(void* given, tkv_error** error) {
  tkv_store* store = local();
  const tkv_key t = name("t");
  tkv_code code = tkv_store_init_table(store, &t, given, error);
  tkv_store_release(store);
  return code;
}

static tkv_store* store_with_table(void) {
  tkv_store* store = local();
  const tkv_key t = name("t");
  tkv_table_options options = TKV_INIT(tkv_table_options);
  fill_table(&options);
  OK(tkv_store_init_table(store, &t, &options, &failure));
  return store;
}
static void fill_nothing(void* given) { (void)given; }
static tkv_code use_filter(void* given, tkv_error** error) {
  tkv_store* store = store_with_table();
  const tkv_key t = name("t");
  tkv_array *ids = NULL, *values = NULL;
  uint64_t version = 0;
  tkv_code code = tkv_store_export_rows(store, &t, given, &ids, &values, &version, error);
  tkv_array_release(ids);
  tkv_array_release(values);
  tkv_store_release(store);
  return code;
}

/* ---- what is written */

static tkv_code use_stats(void* given, tkv_error** error) {
  tkv_store* store = store_with_table();
  const tkv_key t = name("t");
  tkv_code code = tkv_store_table_stats(store, &t, given, error);
  tkv_store_release(store);
  return code;
}
static tkv_code use_info(void* given, tkv_error** error) {
  tkv_store* store = store_with_w(1);
  const tkv_key w = name("w");
  tkv_code code = tkv_store_describe(store, &w, given, error);
  tkv_store_release(store);
  return code;
}

static const sized structs[] = {
    {"tkv_operands", sizeof(tkv_operands), fill_operands, use_operands},
    {"tkv_optimizer_options", sizeof(tkv_optimizer_options), fill_optimizer, use_optimizer},
    {"tkv_store_options", sizeof(tkv_store_options), fill_store, use_store},
    {"tkv_table_options", sizeof(tkv_table_options), fill_table, use_table},
    {"tkv_rows_filter", sizeof(tkv_rows_filter), fill_nothing, use_filter},
    {"tkv_table_stats", sizeof(tkv_table_stats), fill_nothing, use_stats},
    {"tkv_key_info", sizeof(tkv_key_info), fill_nothing, use_info},
};

enum { kLater = 64 }; /* bytes of fields that a later version has */

/* A struct of so many bytes, all zero but for what `fill` sets. */
static void* make(const sized* sized, size_t size) {
  void* given = calloc(1, sized->bytes + kLater);
  if (!EXPECT(given != NULL)) return NULL;
  sized->fill(given);
  memcpy(given, &size, sizeof size);
  return given;
}

static void every_struct_is_taken_as_it_is(void) {
  for (size_t i = 0; i < COUNT(structs); ++i) {
    void* given = make(&structs[i], structs[i].bytes);
    OK(structs[i].use(given, &failure));
    free(given);
  }
}

static void a_later_struct_is_taken_where_it_says_nothing_new(void) {
  for (size_t i = 0; i < COUNT(structs); ++i) {
    unsigned char* given = make(&structs[i], structs[i].bytes + kLater);
    OK(structs[i].use(given, &failure));
    size_t size = 0;
    memcpy(&size, given, sizeof size);
    EXPECT(size == structs[i].bytes + kLater);
    for (size_t byte = 0; byte < kLater; ++byte) EXPECT(given[structs[i].bytes + byte] == 0);
    free(given);
  }
}

static void a_later_struct_is_refused_where_it_says_something_new(void) {
  for (size_t i = 0; i < COUNT(structs); ++i) {
    unsigned char* given = make(&structs[i], structs[i].bytes + kLater);
    if (given == NULL) return;
    given[structs[i].bytes + kLater - 1] = 1;
    REFUSES(structs[i].use(given, &failure));
    free(given);
  }
}

static void a_size_that_nobody_has_set_is_refused(void) {
  const size_t sizes[] = {0, 1, sizeof(size_t) - 1, SIZE_MAX, SIZE_MAX / 2, 1 << 30};
  for (size_t i = 0; i < COUNT(structs); ++i) {
    for (size_t j = 0; j < COUNT(sizes); ++j) {
      void* given = make(&structs[i], sizes[j]);
      FAILS(TKV_INVALID_ARGUMENT, "size", structs[i].use(given, &failure));
      free(given);
    }
  }
}

static void a_size_that_cuts_the_struct_is_refused(void) {
  for (size_t i = 0; i < COUNT(structs); ++i) {
    for (size_t size = sizeof(size_t); size < structs[i].bytes; ++size) {
      void* given = make(&structs[i], size);
      FAILS(TKV_INVALID_ARGUMENT, "size", structs[i].use(given, &failure));
      free(given);
    }
  }
}

static const test tests[] = {
    TEST(every_struct_is_taken_as_it_is),
    TEST(a_later_struct_is_taken_where_it_says_nothing_new),
    TEST(a_later_struct_is_refused_where_it_says_something_new),
    TEST(a_size_that_nobody_has_set_is_refused),
    TEST(a_size_that_cuts_the_struct_is_refused),
};
const suite struct_suite = {"Structs", tests, COUNT(tests)};
