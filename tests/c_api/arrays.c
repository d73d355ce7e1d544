/* Arrays: what they are made of, what they say, views and arithmetic. */

#include <string.h>

#include "check.h"
#include "tkv/dlpack/dlpack.h"

static const int64_t kShape[] = {2, 3};

static void count_free(void* context) { ++*(int*)context; }

static void an_array_says_what_it_is(void) {
  tkv_array* array = full(2, 3, 7);
  EXPECT(tkv_array_rank(array) == 2);
  EXPECT(tkv_array_shape(array)[0] == 2 && tkv_array_shape(array)[1] == 3);
  EXPECT(tkv_array_size(array) == 6);
  EXPECT(tkv_array_bytes(array) == 24);
  EXPECT(tkv_array_dtype(array) == TKV_F32);
  EXPECT(tkv_array_context(array).device == TKV_CPU && tkv_array_context(array).index == 0);
  EXPECT(tkv_array_is_contiguous(array) == 1);
  EXPECT(tkv_array_is_read_only(array) == 0);
  int64_t strides[2] = {-1, -1};
  OK(tkv_array_strides(array, strides, &failure));
  EXPECT(strides[0] == 3 && strides[1] == 1);
  EXPECT(holds(array, 7));
  tkv_array_release(array);
}

static void a_retained_array_outlives_a_release(void) {
  tkv_array* array = full(2, 3, 7);
  EXPECT(tkv_array_retain(array) == array);
  tkv_array_release(array);
  EXPECT(holds(array, 7));
  tkv_array_release(array);
}

static void null_is_no_array(void) {
  EXPECT(tkv_array_rank(NULL) == -1);
  EXPECT(tkv_array_shape(NULL) == NULL);
  EXPECT(tkv_array_size(NULL) <= 0);
  EXPECT(tkv_array_bytes(NULL) == 0);
  EXPECT(tkv_array_is_contiguous(NULL) == 0);
  EXPECT(tkv_array_is_read_only(NULL) == 0);
  (void)tkv_array_dtype(NULL);
  (void)tkv_array_context(NULL);
  EXPECT(tkv_array_retain(NULL) == NULL);
  tkv_array_release(NULL);
}

static void every_dtype_has_a_size_and_a_name(void) {
  const size_t sizes[] = {4, 8, 2, 2, 1, 1, 2, 4, 8, 1, 1, 1, 2, 4, 8, 8};
  for (int dtype = 0; dtype < (int)COUNT(sizes); ++dtype) {
    EXPECT(tkv_dtype_size((tkv_dtype)dtype) == sizes[dtype]);
    EXPECT(tkv_dtype_name((tkv_dtype)dtype)[0] != '\0');
    tkv_array* array = NULL;
    OK(tkv_array_empty(kShape, 2, (tkv_dtype)dtype, cpu, &array, &failure));
    EXPECT(tkv_array_bytes(array) == 6 * sizes[dtype]);
    tkv_array_release(array);
  }
  EXPECT(strcmp(tkv_dtype_name(TKV_F32), "float32") == 0);
  const int none[] = {-1, 16, 255, 256, 1 << 30};
  for (size_t i = 0; i < COUNT(none); ++i) {
    EXPECT(tkv_dtype_size((tkv_dtype)none[i]) == 0);
    EXPECT(strcmp(tkv_dtype_name((tkv_dtype)none[i]), "") == 0);
    tkv_array* array = NULL;
    REFUSES(tkv_array_empty(kShape, 2, (tkv_dtype)none[i], cpu, &array, &failure));
    EXPECT(array == NULL);
  }
}

static void shapes_that_are_none_are_refused(void) {
  const int64_t negative[] = {2, -3};
  const int64_t huge[] = {INT64_C(1) << 40, INT64_C(1) << 40};
  int64_t many[40];
  for (size_t i = 0; i < COUNT(many); ++i) many[i] = 1;
  tkv_array* array = NULL;
  REFUSES(tkv_array_full(negative, 2, TKV_F32, cpu, 0, &array, &failure));
  REFUSES(tkv_array_full(many, 40, TKV_F32, cpu, 0, &array, &failure));
  REFUSES(tkv_array_full(kShape, -1, TKV_F32, cpu, 0, &array, &failure));
  REFUSES(tkv_array_full(NULL, 2, TKV_F32, cpu, 0, &array, &failure));
  REFUSES(tkv_array_full(kShape, 2, TKV_F32, cpu, 0, NULL, &failure));
  REFUSES(tkv_array_empty(NULL, 2, TKV_F32, cpu, &array, &failure));
  REFUSES(tkv_array_empty(kShape, 2, TKV_F32, cpu, NULL, &failure));
  EXPECT(tkv_array_empty(huge, 2, TKV_F32, cpu, &array, NULL) != TKV_OK);
  EXPECT(array == NULL);
}

static void an_array_of_rank_0_has_one_element(void) {
  tkv_array* array = NULL;
  OK(tkv_array_full(NULL, 0, TKV_F32, cpu, 5, &array, &failure));
  EXPECT(tkv_array_rank(array) == 0 && tkv_array_size(array) == 1 && holds(array, 5));
  tkv_array_release(array);
}

static void contexts_that_are_not_here_are_refused(void) {
  const tkv_context none = {(tkv_device)9, 0};
  const tkv_context negative = {TKV_CPU, -1};
  tkv_array* array = NULL;
  REFUSES(tkv_array_full(kShape, 2, TKV_F32, none, 0, &array, &failure));
  REFUSES(tkv_array_full(kShape, 2, TKV_F32, negative, 0, &array, &failure));
  EXPECT(array == NULL);
}

static void bytes_are_copied_in_and_out(void) {
  float elements[6] = {0, 1, 2, 3, 4, 5};
  tkv_array* array = NULL;
  OK(tkv_array_from_bytes(elements, sizeof elements, kShape, 2, TKV_F32, cpu, &array, &failure));
  elements[0] = 9;
  float read[6];
  OK(tkv_array_read(array, read, sizeof read, &failure));
  EXPECT(read[0] == 0 && read[5] == 5);
  OK(tkv_array_write(array, elements, sizeof elements, &failure));
  OK(tkv_array_read(array, read, sizeof read, &failure));
  EXPECT(read[0] == 9);
  tkv_array_release(array);
}

static void bytes_of_another_count_are_refused_and_change_nothing(void) {
  const float elements[7] = {1, 1, 1, 1, 1, 1, 1};
  float read[7];
  tkv_array* array = full(2, 3, 4);
  tkv_array* made = NULL;
  REFUSES(tkv_array_from_bytes(elements, 20, kShape, 2, TKV_F32, cpu, &made, &failure));
  REFUSES(tkv_array_from_bytes(NULL, 24, kShape, 2, TKV_F32, cpu, &made, &failure));
  REFUSES(tkv_array_from_bytes(elements, 24, NULL, 2, TKV_F32, cpu, &made, &failure));
  REFUSES(tkv_array_from_bytes(elements, 24, kShape, 2, TKV_F32, cpu, NULL, &failure));
  EXPECT(made == NULL);
  REFUSES(tkv_array_write(array, elements, 28, &failure));
  REFUSES(tkv_array_write(array, NULL, 24, &failure));
  REFUSES(tkv_array_write(NULL, elements, 24, &failure));
  OK(tkv_wait_all(1000, &failure));
  REFUSES(tkv_wait_all(-1, &failure));
  REFUSES(tkv_array_read(array, read, 28, &failure));
  REFUSES(tkv_array_read(array, NULL, 24, &failure));
  REFUSES(tkv_array_read(NULL, read, 24, &failure));
  REFUSES(tkv_array_strides(array, NULL, &failure));
  int64_t strides[2];
  REFUSES(tkv_array_strides(NULL, strides, &failure));
  EXPECT(holds(array, 4));
  tkv_array_release(array);
}

static void wrapped_memory_is_the_callers_and_freed_once(void) {
  float elements[6] = {1, 1, 1, 1, 1, 1};
  int freed = 0;
  tkv_array* array = NULL;
  OK(tkv_array_wrap(elements, kShape, NULL, 2, TKV_F32, cpu, 0, &freed, count_free, &array,
                    &failure));
  OK(tkv_array_fill(array, 3, &failure));
  EXPECT(elements[0] == 3 && elements[5] == 3);
  tkv_array* view = NULL;
  OK(tkv_array_at(array, 1, &view, &failure));
  tkv_array_release(array);
  EXPECT(freed == 0);
  EXPECT(holds(view, 3));
  tkv_array_release(view);
  EXPECT(freed == 1);
}

static void wrapped_memory_may_have_strides_of_any_sign(void) {
  float elements[6] = {0, 1, 2, 3, 4, 5};
  const int64_t strides[] = {1, -2}; /* a column of three, backwards */
  tkv_array* array = NULL;
  OK(tkv_array_wrap(elements + 4, kShape, strides, 2, TKV_F32, cpu, 0, NULL, NULL, &array,
                    &failure));
  EXPECT(tkv_array_is_contiguous(array) == 0);
  int64_t said[2] = {0, 0};
  OK(tkv_array_strides(array, said, &failure));
  EXPECT(said[0] == 1 && said[1] == -2);
  float read[6];
  OK(tkv_array_read(array, read, sizeof read, &failure));
  const float wanted[] = {4, 2, 0, 5, 3, 1};
  EXPECT(memcmp(read, wanted, sizeof read) == 0);
  OK(tkv_array_write(array, elements, sizeof elements, &failure));
  EXPECT(elements[4] == 0 && elements[0] == 2 && elements[1] == 5);
  tkv_array_release(array);
}

static void what_is_not_wrapped_is_not_freed(void) {
  float elements[6] = {0};
  int freed = 0;
  tkv_array* array = NULL;
  REFUSES(
      tkv_array_wrap(NULL, kShape, NULL, 2, TKV_F32, cpu, 0, &freed, count_free, &array, &failure));
  REFUSES(tkv_array_wrap(elements, NULL, NULL, 2, TKV_F32, cpu, 0, &freed, count_free, &array,
                         &failure));
  REFUSES(tkv_array_wrap(elements, kShape, NULL, 2, TKV_F32, cpu, 0, &freed, count_free, NULL,
                         &failure));
  REFUSES(tkv_array_wrap(elements, kShape, NULL, -2, TKV_F32, cpu, 0, &freed, count_free, &array,
                         &failure));
  REFUSES(tkv_array_wrap(elements, kShape, NULL, 2, (tkv_dtype)77, cpu, 0, &freed, count_free,
                         &array, &failure));
  EXPECT(array == NULL && freed == 0);
}

static void read_only_memory_is_not_written(void) {
  float elements[6] = {1, 1, 1, 1, 1, 1};
  tkv_array* array = NULL;
  OK(tkv_array_wrap(elements, kShape, NULL, 2, TKV_F32, cpu, 1, NULL, NULL, &array, &failure));
  EXPECT(tkv_array_is_read_only(array) == 1);
  void* data = NULL;
  REFUSES(tkv_array_fill(array, 3, &failure));
  REFUSES(tkv_array_write(array, elements, sizeof elements, &failure));
  REFUSES(tkv_array_data(array, 1, 0, &data, &failure));
  EXPECT(data == NULL);
  OK(tkv_array_data(array, 0, 0, &data, &failure));
  EXPECT(data == elements && holds(array, 1));
  tkv_array_release(array);
}

static void memory_that_elements_share_is_read_and_not_written(void) {
  float elements[3] = {1, 2, 3};
  const int64_t strides[] = {0, 1};
  tkv_array* array = NULL;
  OK(tkv_array_wrap(elements, kShape, strides, 2, TKV_F32, cpu, 0, NULL, NULL, &array, &failure));
  tkv_array* other = full(2, 3, 7);
  float read[6];
  OK(tkv_array_read(array, read, sizeof read, &failure));
  EXPECT(read[2] == 3 && read[3] == 1);
  REFUSES(tkv_array_fill(array, 3, &failure));
  REFUSES(tkv_array_write(array, read, sizeof read, &failure));
  REFUSES(tkv_array_copy_from(array, other, &failure));
  tkv_operands operands = TKV_INIT(tkv_operands);
  operands.a = other;
  operands.number = 1;
  operands.out = array;
  REFUSES(tkv_array_compute(TKV_ADD, &operands, NULL, &failure));
  void* data = NULL;
  REFUSES(tkv_array_data(array, 1, 0, &data, &failure));
  EXPECT(data == NULL && elements[0] == 1 && elements[2] == 3);
  tkv_array_release(other);
  tkv_array_release(array);
}

static void data_is_the_memory_itself(void) {
  tkv_array* array = full(2, 3, 1);
  void* data = NULL;
  OK(tkv_array_data(array, 1, 1000, &data, &failure));
  if (EXPECT(data != NULL)) {
    for (int i = 0; i < 6; ++i) ((float*)data)[i] = 8;
  }
  EXPECT(holds(array, 8));
  REFUSES(tkv_array_data(array, 1, 1000, NULL, &failure));
  REFUSES(tkv_array_data(NULL, 1, 1000, &data, &failure));
  tkv_array_release(array);
}

static void an_array_passes_dlpack_and_back(void) {
  tkv_array* array = full(2, 3, 6);
  void* managed = NULL;
  OK(tkv_array_to_dlpack(array, &managed, &failure));
  if (EXPECT(managed != NULL)) {
    const DLManagedTensorVersioned* tensor = managed;
    EXPECT(tensor->version.major == 1 && tensor->dl_tensor.ndim == 2);
    EXPECT(tensor->dl_tensor.shape[1] == 3 && tensor->dl_tensor.dtype.bits == 32);
  }
  tkv_array* back = NULL;
  OK(tkv_array_from_dlpack(managed, &back, &failure));
  tkv_array_release(array);
  EXPECT(holds(back, 6));
  tkv_array_release(back);
  REFUSES(tkv_array_to_dlpack(NULL, &managed, &failure));
  REFUSES(tkv_array_from_dlpack(NULL, &back, &failure));
}

static void a_tensor_that_is_refused_is_the_callers_still(void) {
  tkv_array* array = full(2, 3, 6);
  void* managed = NULL;
  OK(tkv_array_to_dlpack(array, &managed, &failure));
  REFUSES(tkv_array_to_dlpack(array, NULL, &failure));
  REFUSES(tkv_array_from_dlpack(managed, NULL, &failure));
  DLManagedTensorVersioned* tensor = managed;
  if (EXPECT(tensor != NULL)) {
    tensor->dl_tensor.dtype.lanes = 4;
    tkv_array* taken = NULL;
    REFUSES(tkv_array_from_dlpack(tensor, &taken, &failure));
    EXPECT(taken == NULL);
    tensor->deleter(tensor);
  }
  tkv_array_release(array);
}

static void views_share_memory(void) {
  tkv_array* array = full(4, 3, 0);
  tkv_array *rows = NULL, *row = NULL, *flat = NULL, *other = NULL;
  OK(tkv_array_slice(array, 1, 3, &rows, &failure));
  OK(tkv_array_at(array, 3, &row, &failure));
  const int64_t length[] = {12};
  OK(tkv_array_reshape(array, length, 1, &flat, &failure));
  const tkv_context second = {TKV_CPU, 1};
  OK(tkv_array_with_context(array, second, &other, &failure));
  EXPECT(tkv_array_rank(rows) == 2 && tkv_array_shape(rows)[0] == 2);
  EXPECT(tkv_array_rank(row) == 1 && tkv_array_size(row) == 3);
  EXPECT(tkv_array_context(other).index == 1);
  OK(tkv_array_fill(flat, 2, &failure));
  EXPECT(holds(array, 2) && holds(rows, 2) && holds(row, 2) && holds(other, 2));
  tkv_array_release(array);
  EXPECT(holds(row, 2));
  tkv_array_release(rows);
  tkv_array_release(row);
  tkv_array_release(flat);
  tkv_array_release(other);
}

static void views_beyond_the_array_are_refused(void) {
  tkv_array* array = full(4, 3, 0);
  tkv_array* view = NULL;
  const int64_t wrong[] = {13};
  const tkv_context none = {(tkv_device)0, 0};
  FAILS(TKV_OUT_OF_RANGE, "", tkv_array_slice(array, 2, 5, &view, &failure));
  FAILS(TKV_OUT_OF_RANGE, "", tkv_array_at(array, 4, &view, &failure));
  REFUSES(tkv_array_reshape(array, wrong, 1, &view, &failure));
  REFUSES(tkv_array_reshape(array, NULL, 1, &view, &failure));
  REFUSES(tkv_array_with_context(array, none, &view, &failure));
  EXPECT(view == NULL);
  REFUSES(tkv_array_slice(NULL, 0, 1, &view, &failure));
  REFUSES(tkv_array_at(NULL, 0, &view, &failure));
  REFUSES(tkv_array_reshape(NULL, wrong, 1, &view, &failure));
  REFUSES(tkv_array_with_context(NULL, cpu, &view, &failure));
  REFUSES(tkv_array_slice(array, 0, 1, NULL, &failure));
  REFUSES(tkv_array_at(array, 0, NULL, &failure));
  REFUSES(tkv_array_reshape(array, wrong, 1, NULL, &failure));
  REFUSES(tkv_array_with_context(array, cpu, NULL, &failure));
  tkv_array_release(array);
}

static void copies_share_nothing(void) {
  tkv_array* array = full(2, 3, 1);
  tkv_array* copy = NULL;
  OK(tkv_array_copy(array, &copy, &failure));
  OK(tkv_array_fill(array, 5, &failure));
  EXPECT(holds(copy, 1));
  OK(tkv_array_copy_from(copy, array, &failure));
  EXPECT(holds(copy, 5));
  tkv_array* wide = full(3, 3, 0);
  REFUSES(tkv_array_copy_from(copy, wide, &failure));
  EXPECT(holds(copy, 5));
  REFUSES(tkv_array_copy_from(NULL, array, &failure));
  REFUSES(tkv_array_copy_from(array, NULL, &failure));
  REFUSES(tkv_array_copy(NULL, &copy, &failure));
  REFUSES(tkv_array_copy(array, NULL, &failure));
  REFUSES(tkv_array_fill(NULL, 0, &failure));
  tkv_array_release(wide);
  tkv_array_release(copy);
  tkv_array_release(array);
}

static void floats_become_other_floats(void) {
  tkv_array* array = full(2, 3, 1.5);
  tkv_array *half = NULL, *back = NULL;
  OK(tkv_array_convert(array, TKV_F16, &half, &failure));
  EXPECT(tkv_array_dtype(half) == TKV_F16 && tkv_array_bytes(half) == 12);
  OK(tkv_array_convert(half, TKV_F32, &back, &failure));
  EXPECT(holds(back, 1.5));
  tkv_array* none = NULL;
  REFUSES(tkv_array_convert(array, TKV_I32, &none, &failure));
  REFUSES(tkv_array_convert(array, (tkv_dtype)99, &none, &failure));
  REFUSES(tkv_array_convert(NULL, TKV_F16, &none, &failure));
  REFUSES(tkv_array_convert(array, TKV_F16, NULL, &failure));
  EXPECT(none == NULL);
  tkv_array_release(back);
  tkv_array_release(half);
  tkv_array_release(array);
}

/* Computes `op` of 6 and 2 with arrays, and compares the result. */
static int computes(tkv_op op, double wanted) {
  tkv_operands operands = TKV_INIT(tkv_operands);
  operands.a = full(2, 3, 6);
  operands.b = full(2, 3, 2);
  tkv_array* result = NULL;
  int good = OK(tkv_array_compute(op, &operands, &result, &failure)) && holds(result, wanted);
  tkv_array_release(result);
  tkv_array_release(operands.a);
  tkv_array_release(operands.b);
  return good;
}

static void every_operation_computes(void) {
  EXPECT(computes(TKV_ADD, 8));
  EXPECT(computes(TKV_SUB, 4));
  EXPECT(computes(TKV_MUL, 12));
  EXPECT(computes(TKV_DIV, 3));
  EXPECT(computes(TKV_MIN, 2));
  EXPECT(computes(TKV_MAX, 6));
  EXPECT(computes(TKV_LESS, 0));
  EXPECT(computes(TKV_LESS_EQUAL, 0));
  EXPECT(computes(TKV_GREATER, 1));
  EXPECT(computes(TKV_GREATER_EQUAL, 1));
  EXPECT(computes(TKV_EQUAL, 0));
  EXPECT(computes(TKV_NOT_EQUAL, 1));
}

static void a_number_stands_on_either_side(void) {
  tkv_operands operands = TKV_INIT(tkv_operands);
  operands.a = full(2, 3, 6);
  operands.number = 12;
  tkv_array *left = NULL, *right = NULL;
  OK(tkv_array_compute(TKV_SUB, &operands, &left, &failure));
  operands.reversed = 1;
  OK(tkv_array_compute(TKV_SUB, &operands, &right, &failure));
  EXPECT(holds(left, -6) && holds(right, 6));
  tkv_array_release(left);
  tkv_array_release(right);
  tkv_array_release(operands.a);
}

static void an_output_is_written_in_place(void) {
  tkv_operands operands = TKV_INIT(tkv_operands);
  tkv_array* two = full(2, 3, 2);
  operands.a = operands.out = full(2, 3, 6);
  operands.b = two;
  OK(tkv_array_compute(TKV_ADD, &operands, NULL, &failure));
  EXPECT(holds(operands.a, 8));
  operands.b = NULL;
  operands.reversed = 1;
  operands.number = 10;
  OK(tkv_array_compute(TKV_SUB, &operands, NULL, &failure));
  EXPECT(holds(operands.a, 2));
  tkv_array_release(two);
  tkv_array_release(operands.a);
}

static void operands_that_do_not_fit_are_refused(void) {
  tkv_operands operands = TKV_INIT(tkv_operands);
  tkv_array* result = NULL;
  REFUSES(tkv_array_compute(TKV_ADD, NULL, &result, &failure));
  REFUSES(tkv_array_compute(TKV_ADD, &operands, &result, &failure));
  operands.a = full(2, 3, 6);
  REFUSES(tkv_array_compute((tkv_op)12, &operands, &result, &failure));
  REFUSES(tkv_array_compute((tkv_op)-1, &operands, &result, &failure));
  REFUSES(tkv_array_compute(TKV_ADD, &operands, NULL, &failure));
  tkv_array* wide = full(3, 3, 1);
  operands.b = wide;
  REFUSES(tkv_array_compute(TKV_ADD, &operands, &result, &failure));
  EXPECT(result == NULL && holds(operands.a, 6));
  tkv_array_release(wide);
  tkv_array_release(operands.a);
}

static const test tests[] = {
    TEST(an_array_says_what_it_is),
    TEST(a_retained_array_outlives_a_release),
    TEST(null_is_no_array),
    TEST(every_dtype_has_a_size_and_a_name),
    TEST(shapes_that_are_none_are_refused),
    TEST(an_array_of_rank_0_has_one_element),
    TEST(contexts_that_are_not_here_are_refused),
    TEST(bytes_are_copied_in_and_out),
    TEST(bytes_of_another_count_are_refused_and_change_nothing),
    TEST(wrapped_memory_is_the_callers_and_freed_once),
    TEST(wrapped_memory_may_have_strides_of_any_sign),
    TEST(what_is_not_wrapped_is_not_freed),
    TEST(read_only_memory_is_not_written),
    TEST(memory_that_elements_share_is_read_and_not_written),
    TEST(data_is_the_memory_itself),
    TEST(an_array_passes_dlpack_and_back),
    TEST(a_tensor_that_is_refused_is_the_callers_still),
    TEST(views_share_memory),
    TEST(views_beyond_the_array_are_refused),
    TEST(copies_share_nothing),
    TEST(floats_become_other_floats),
    TEST(every_operation_computes),
    TEST(a_number_stands_on_either_side),
    TEST(an_output_is_written_in_place),
    TEST(operands_that_do_not_fit_are_refused),
};
const suite array_suite = {"Arrays", tests, COUNT(tests)};
