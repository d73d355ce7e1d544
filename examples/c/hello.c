/* Two workers push gradients for one key; the store sums them and runs SGD. */

#include <stdio.h>
#include <stdlib.h>

#include "tkv/tkv.h"

static void must(tkv_code code, tkv_error** error) {
  if (code == TKV_OK) return;
  fprintf(stderr, "%s: %s\n", tkv_code_name(code), tkv_error_message(*error));
  exit(1);
}

int main(void) {
  const int64_t shape[] = {2, 3};
  const tkv_context cpu = {TKV_CPU, 0};
  const tkv_key w = {"w", 0};
  tkv_error* error = NULL;
  tkv_store* store = NULL;
  must(tkv_store_create("local", NULL, &store, &error), &error);

  tkv_array *weight = NULL, *grads[2] = {NULL, NULL};
  must(tkv_array_full(shape, 2, TKV_F32, cpu, 0, &weight, &error), &error);
  const tkv_item value = {.key = w, .arrays = &weight, .array_count = 1};
  must(tkv_store_init(store, &value, 1, &error), &error);

  const tkv_param rate = {"learning_rate", 0.5};
  tkv_optimizer_options options = TKV_INIT(tkv_optimizer_options);
  options.params = &rate;
  options.param_count = 1;
  tkv_optimizer* sgd = NULL;
  must(tkv_optimizer_create("sgd", &options, &sgd, &error), &error);
  must(tkv_store_set_optimizer(store, sgd, &error), &error);

  for (int worker = 0; worker < 2; ++worker) {
    must(tkv_array_full(shape, 2, TKV_F32, cpu, worker + 1, &grads[worker], &error), &error);
  }
  const tkv_item push = {.key = w, .arrays = grads, .array_count = 2};
  must(tkv_store_push(store, &push, 1, &error), &error);
  must(tkv_store_pull(store, &value, 1, &error), &error);
  float read[6];
  must(tkv_array_read(weight, read, sizeof read, &error), &error);
  printf("w[0] = %g\n", (double)read[0]); /* -0.5 * (1 + 2) */

  const tkv_key unknown = {"v", 0};
  const tkv_item wrong = {.key = unknown, .arrays = grads, .array_count = 1};
  const tkv_code code = tkv_store_push(store, &wrong, 1, &error);
  printf("%s: %s\n", tkv_code_name(code), tkv_error_message(error));

  tkv_error_release(error);
  tkv_array_release(weight);
  tkv_array_release(grads[0]);
  tkv_array_release(grads[1]);
  tkv_optimizer_release(sgd);
  tkv_store_release(store);
  return 0;
}
