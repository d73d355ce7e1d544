/* Errors, texts, and what the library says of itself. */

#include <string.h>

#include "check.h"

static void an_error_has_a_copy_of_its_message(void) {
  char message[] = "push 'w': this is wrong";
  tkv_error* error = tkv_error_create(TKV_NOT_FOUND, message);
  message[0] = 'X';
  EXPECT(tkv_error_code(error) == TKV_NOT_FOUND);
  EXPECT(strcmp(tkv_error_message(error), "push 'w': this is wrong") == 0);
  tkv_error_release(error);
}

static void a_retained_error_outlives_a_release(void) {
  tkv_error* error = tkv_error_create(TKV_ABORTED, "stays");
  EXPECT(tkv_error_retain(error) == error);
  tkv_error_release(error);
  EXPECT(strcmp(tkv_error_message(error), "stays") == 0);
  tkv_error_release(error);
}

static void an_error_of_no_code_is_internal(void) {
  const int codes[] = {TKV_OK, 2, 7, 17, -1, 1 << 30};
  for (size_t i = 0; i < COUNT(codes); ++i) {
    tkv_error* error = tkv_error_create((tkv_code)codes[i], NULL);
    EXPECT(tkv_error_code(error) == TKV_INTERNAL);
    EXPECT(strcmp(tkv_error_message(error), "") == 0);
    tkv_error_release(error);
  }
}

static void null_is_no_error_and_no_text(void) {
  EXPECT(tkv_error_code(NULL) == TKV_OK);
  EXPECT(strcmp(tkv_error_message(NULL), "") == 0);
  EXPECT(tkv_error_retain(NULL) == NULL);
  tkv_error_release(NULL);
  EXPECT(strcmp(tkv_text_data(NULL), "") == 0);
  EXPECT(tkv_text_size(NULL) == 0);
  tkv_text_release(NULL);
}

static void each_code_has_a_name_and_no_other_number_has(void) {
  const tkv_code codes[] = {TKV_CANCELLED,           TKV_INVALID_ARGUMENT, TKV_DEADLINE_EXCEEDED,
                            TKV_NOT_FOUND,           TKV_ALREADY_EXISTS,   TKV_RESOURCE_EXHAUSTED,
                            TKV_FAILED_PRECONDITION, TKV_ABORTED,          TKV_OUT_OF_RANGE,
                            TKV_UNIMPLEMENTED,       TKV_INTERNAL,         TKV_UNAVAILABLE,
                            TKV_DATA_LOSS,           TKV_UNAUTHENTICATED};
  size_t named = 0;
  for (int number = 1; number <= 20; ++number) named += tkv_code_name((tkv_code)number)[0] != '\0';
  EXPECT(named == COUNT(codes));
  for (size_t i = 0; i < COUNT(codes); ++i) EXPECT(tkv_code_name(codes[i])[0] != '\0');
  EXPECT(strcmp(tkv_code_name(TKV_INVALID_ARGUMENT), "InvalidArgument") == 0);
  EXPECT(strcmp(tkv_code_name((tkv_code)-7), "") == 0);
}

static void who_wants_no_error_object_gets_the_code(void) {
  tkv_store* store = NULL;
  EXPECT(tkv_store_create("no such store", NULL, &store, NULL) == TKV_INVALID_ARGUMENT);
  EXPECT(store == NULL);
}

static void the_build_says_its_version_and_options(void) {
  EXPECT(strchr(tkv_version(), '.') != NULL);
  tkv_text* text = NULL;
  OK(tkv_config(&text, &failure));
  EXPECT(text_has(text, tkv_version()));
  REFUSES(tkv_config(NULL, &failure));
}

static void a_process_that_nobody_has_launched_has_no_role(void) {
  tkv_text* role = NULL;
  OK(tkv_process_role(&role, &failure));
  EXPECT(role != NULL && tkv_text_size(role) == 0);
  tkv_text_release(role);
  REFUSES(tkv_process_role(NULL, &failure));
}

static void a_server_that_nobody_has_launched_says_so(void) {
  FAILS(TKV_FAILED_PRECONDITION, "", tkv_server_run(NULL, &failure));
}

static const test tests[] = {
    TEST(an_error_has_a_copy_of_its_message),
    TEST(a_retained_error_outlives_a_release),
    TEST(an_error_of_no_code_is_internal),
    TEST(null_is_no_error_and_no_text),
    TEST(each_code_has_a_name_and_no_other_number_has),
    TEST(who_wants_no_error_object_gets_the_code),
    TEST(the_build_says_its_version_and_options),
    TEST(a_process_that_nobody_has_launched_has_no_role),
    TEST(a_server_that_nobody_has_launched_says_so),
};
const suite error_suite = {"Errors", tests, COUNT(tests)};
