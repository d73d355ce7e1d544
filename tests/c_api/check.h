/* Tests in C.  A test is a function; what it expects and does not find is said and counted, and the test goes on: the
 * functions of tkv.h take whatever an earlier one has left.  Its name says the rule. */

#ifndef TESTS_C_API_CHECK_H_
#define TESTS_C_API_CHECK_H_

#include <stddef.h>
#include <stdint.h>

#include "tkv/tkv.h"

typedef struct test {
  const char* name;
  void (*run)(void);
} test;
typedef struct suite {
  const char* name;
  const test* tests;
  size_t count;
} suite;
#define TEST(function) {#function, function}
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Runs all of them and, where an argument --gtest_output=json:FILE says so, writes what summaries read of GoogleTest. */
int run_suites(const suite* const* suites, size_t count, int argc, char** argv);

/* ---- expectations, on any thread */

/* The error of the last call.  OK, FAILS and REFUSES first set it to an address that no error has,
 * so that they notice a call that does not set it. */
extern _Thread_local tkv_error* failure;

int expect(int holds, const char* file, int line, const char* text);
tkv_code fresh_failure(void);
int expect_ok(tkv_code code, const char* file, int line, const char* text);
int expect_failure(tkv_code code, tkv_code wanted, const char* part, const char* file, int line,
                   const char* text);

#define EXPECT(condition) expect((condition) != 0, __FILE__, __LINE__, #condition)
#define OK(call) expect_ok((fresh_failure(), (call)), __FILE__, __LINE__, #call)
/* Expects that the call fails with the code `wanted` and a message that contains `part`. */
#define FAILS(wanted, part, call) \
  expect_failure((fresh_failure(), (call)), wanted, part, __FILE__, __LINE__, #call)
#define REFUSES(call) FAILS(TKV_INVALID_ARGUMENT, "", call)

/* ---- what many tests need */

extern const tkv_context cpu;
tkv_key name(const char* text);
tkv_key number(int64_t value);
tkv_item item(tkv_key key, tkv_array* const* arrays, size_t count);
tkv_item one(tkv_key key, tkv_array* const* array); /* with one array */

tkv_array* full(int64_t rows, int64_t columns, double value); /* of float32 */
tkv_array* ids(const int64_t* values, size_t count);          /* of int64 */
int holds(tkv_array* array, double value);                    /* every element, of float32 */
int text_has(tkv_text* text, const char* part);               /* and releases it */
tkv_store* local(void);
/* A local store with the key "w" of shape (2, 3), all `value`. */
tkv_store* store_with_w(double value);
tkv_code push_w(tkv_store* store, double value, tkv_error** error);
int w_holds(tkv_store* store, double value);
/* Removes it with what is in it at the end of the test program. */
const char* folder(void);

#endif /* TESTS_C_API_CHECK_H_ */
