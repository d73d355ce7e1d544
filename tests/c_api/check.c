/* See check.h. */

#include "check.h"

#include <errno.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- expectations */

_Thread_local tkv_error* failure;
static atomic_int failed; /* expectations of the test that runs */
static char first_failure[256];
static char nowhere; /* no error has this address */

int expect(int holds, const char* file, int line, const char* text) {
  if (holds) return 1;
  fprintf(stderr, "%s:%d: expected %s\n", file, line, text);
  if (atomic_fetch_add(&failed, 1) == 0) {
    snprintf(first_failure, sizeof first_failure, "line %d: %.200s", line, text);
  }
  return 0;
}

tkv_code fresh_failure(void) {
  failure = (tkv_error*)(void*)&nowhere;
  return TKV_OK;
}

int expect_ok(tkv_code code, const char* file, int line, const char* text) {
  int holds = code == TKV_OK && failure == NULL;
  if (!expect(holds, file, line, text) && failure != (tkv_error*)(void*)&nowhere) {
    fprintf(stderr, "  code %d: %s\n", (int)code, tkv_error_message(failure));
    tkv_error_release(failure);
  }
  failure = NULL;
  return holds;
}

int expect_failure(tkv_code code, tkv_code wanted, const char* part, const char* file, int line,
                   const char* text) {
  int is_set = failure != NULL && failure != (tkv_error*)(void*)&nowhere;
  int holds = code == wanted && is_set && tkv_error_code(failure) == wanted &&
              tkv_error_message(failure)[0] != '\0' &&
              strstr(tkv_error_message(failure), part) != NULL;
  if (!expect(holds, file, line, text)) {
    fprintf(stderr, "  code %d, not %d: %s\n", (int)code, (int)wanted,
            is_set ? tkv_error_message(failure) : "no error was given");
  }
  if (is_set) tkv_error_release(failure);
  failure = NULL;
  return holds;
}

/* ---- runs */

/* A string of JSON; what stands in names and expectations needs no more. */
static void write_text(FILE* file, const char* text) {
  fputc('"', file);
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') fputc('\\', file);
    fputc(*text, file);
  }
  fputc('"', file);
}

static int run_test(const test* test, FILE* results) {
  atomic_store(&failed, 0);
  test->run();
  int has_failed = atomic_load(&failed) != 0;
  if (has_failed) fprintf(stderr, "[  FAILED  ] %s\n", test->name);
  if (results == NULL) return has_failed;
  fputs("{\"result\": \"COMPLETED\", \"name\": ", results);
  write_text(results, test->name);
  if (has_failed) {
    fputs(", \"failures\": [{\"failure\": ", results);
    write_text(results, first_failure);
    fputs("}]", results);
  }
  fputs("}", results);
  return has_failed;
}

static int run_suite(const suite* suite, FILE* results) {
  int failures = 0;
  if (results != NULL) fprintf(results, "{\"name\": \"%s\", \"testsuite\": [\n", suite->name);
  for (size_t i = 0; i < suite->count; ++i) {
    if (results != NULL && i > 0) fputs(",\n", results);
    failures += run_test(&suite->tests[i], results);
  }
  if (results != NULL) fputs("]}", results);
  return failures;
}

/* Results get their name when all of them are there: of a program that crashes there are none. */
typedef struct output {
  const char* path; /* null: nobody wants them */
  char unfinished[512];
  FILE* file;
} output;

/* For the file that an argument names, in a folder that may be missing yet. */
static output open_results(int argc, char** argv) {
  static const char flag[] = "--gtest_output=json:";
  output output = {0};
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], flag, sizeof flag - 1) == 0) output.path = argv[i] + sizeof flag - 1;
  }
  if (output.path == NULL) return output;
  const char* slash = strrchr(output.path, '/');
  if (slash != NULL) {
    char folder[512];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - output.path), output.path);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) perror(folder);
  }
  snprintf(output.unfinished, sizeof output.unfinished, "%s.unfinished", output.path);
  output.file = fopen(output.unfinished, "w");
  if (output.file == NULL) perror(output.unfinished);
  return output;
}

static int close_results(const output* output) {
  if (output->file == NULL) return output->path == NULL;
  return fclose(output->file) == 0 && rename(output->unfinished, output->path) == 0;
}

static char scratch[] = "/tmp/tkv-abi-XXXXXX";
static int has_scratch;
static int remove_one(const char* path, const struct stat* status, int type, struct FTW* walk) {
  (void)status, (void)type, (void)walk;
  return remove(path);
}

int run_suites(const suite* const* suites, size_t count, int argc, char** argv) {
  const output output = open_results(argc, argv);
  FILE* const results = output.file;
  size_t tests = 0;
  int failures = 0;
  if (results != NULL) fputs("{\"testsuites\": [\n", results);
  for (size_t i = 0; i < count; ++i) {
    if (results != NULL && i > 0) fputs(",\n", results);
    failures += run_suite(suites[i], results);
    tests += suites[i]->count;
  }
  if (results != NULL) fputs("]}\n", results);
  failures += !close_results(&output);
  if (has_scratch) nftw(scratch, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  printf("%zu tests, %d failed\n", tests, failures);
  return failures != 0;
}

/* ---- what many tests need */

const tkv_context cpu = {TKV_CPU, 0};

tkv_key name(const char* text) { return (tkv_key){.text = text}; }
tkv_key number(int64_t value) { return (tkv_key){.number = value}; }
tkv_item item(tkv_key key, tkv_array* const* arrays, size_t count) {
  return (tkv_item){.key = key, .arrays = arrays, .array_count = count};
}
tkv_item one(tkv_key key, tkv_array* const* array) { return item(key, array, 1); }

tkv_array* full(int64_t rows, int64_t columns, double value) {
  const int64_t shape[] = {rows, columns};
  tkv_array* array = NULL;
  OK(tkv_array_full(shape, 2, TKV_F32, cpu, value, &array, &failure));
  return array;
}

tkv_array* ids(const int64_t* values, size_t count) {
  const int64_t shape[] = {(int64_t)count};
  tkv_array* array = NULL;
  OK(tkv_array_from_bytes(values, count * sizeof *values, shape, 1, TKV_I64, cpu, &array,
                          &failure));
  return array;
}

int holds(tkv_array* array, double value) {
  float elements[64];
  size_t bytes = tkv_array_bytes(array);
  if (bytes == 0 || bytes > sizeof elements || tkv_array_dtype(array) != TKV_F32) return 0;
  if (!OK(tkv_array_read(array, elements, bytes, &failure))) return 0;
  for (size_t i = 0; i < bytes / sizeof *elements; ++i) {
    if ((double)elements[i] != value) {
      fprintf(stderr, "  element %zu is %g, not %g\n", i, (double)elements[i], value);
      return 0;
    }
  }
  return 1;
}

int text_has(tkv_text* text, const char* part) {
  int has = text != NULL && strstr(tkv_text_data(text), part) != NULL &&
            strlen(tkv_text_data(text)) == tkv_text_size(text);
  if (!has) fprintf(stderr, "  no '%s' in '%s'\n", part, tkv_text_data(text));
  tkv_text_release(text);
  return has;
}

tkv_store* local(void) {
  tkv_store* store = NULL;
  OK(tkv_store_create("local", NULL, &store, &failure));
  return store;
}

tkv_store* store_with_w(double value) {
  tkv_store* store = local();
  tkv_array* array = full(2, 3, value);
  tkv_item w = one(name("w"), &array);
  OK(tkv_store_init(store, &w, 1, &failure));
  tkv_array_release(array);
  return store;
}

tkv_code push_w(tkv_store* store, double value, tkv_error** error) {
  tkv_array* array = full(2, 3, value);
  tkv_item w = one(name("w"), &array);
  tkv_code code = tkv_store_push(store, &w, 1, error);
  tkv_array_release(array);
  return code;
}

int w_holds(tkv_store* store, double value) {
  tkv_array* out = full(2, 3, -99);
  tkv_item w = one(name("w"), &out);
  int good = OK(tkv_store_pull(store, &w, 1, &failure)) && holds(out, value);
  tkv_array_release(out);
  return good;
}

const char* folder(void) {
  if (!has_scratch) has_scratch = EXPECT(mkdtemp(scratch) != NULL);
  return scratch;
}
