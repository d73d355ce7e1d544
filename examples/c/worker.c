/* Trains in a job of several processes: least squares, each worker with samples of its own.
 *
 *   tkv launch -n 2 -s 2 ./worker
 *
 * The servers sum the gradients of a step and run SGD; each worker ends with the same weights.  Started with the role of a
 * server, as a launcher of your own may do, it serves. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tkv/tkv.h"

enum { kFeatures = 4, kSamples = 64, kSteps = 200 };
static const double kTruth[kFeatures] = {1, -2, 3, 0.5};
static const tkv_context kCpu = {TKV_CPU, 0};

static void must(tkv_code code, tkv_error** error) {
  if (code == TKV_OK) return;
  fprintf(stderr, "%s: %s\n", tkv_code_name(code), tkv_error_message(*error));
  exit(1); /* for the others of the job this worker is dead */
}

/* ---- the data */

typedef struct sample {
  double x[kFeatures];
  double y;
} sample;

/* Returns a pseudo-random number from -1 to 1. */
static double next_random(uint64_t* state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(*state >> 40) / (double)(1 << 23) - 1;
}

static void make_samples(int32_t rank, sample* samples) {
  uint64_t state = (uint64_t)rank + 1;
  for (int i = 0; i < kSamples; ++i) {
    samples[i].y = 0;
    for (int j = 0; j < kFeatures; ++j) {
      samples[i].x[j] = next_random(&state);
      samples[i].y += kTruth[j] * samples[i].x[j];
    }
  }
}

/* Computes the gradient of the mean squared error over this worker's samples. */
static void find_gradient(const sample* samples, const float* weights, float* grad) {
  memset(grad, 0, kFeatures * sizeof *grad);
  for (int i = 0; i < kSamples; ++i) {
    double error = -samples[i].y;
    for (int j = 0; j < kFeatures; ++j) error += (double)weights[j] * samples[i].x[j];
    for (int j = 0; j < kFeatures; ++j)
      grad[j] += (float)(2 * error * samples[i].x[j] / (double)kSamples);
  }
}

/* ---- the job */

/* Wraps the floats without a copy: the library reads and writes them in place. */
static tkv_array* wrap(float* floats) {
  const int64_t shape[] = {kFeatures};
  tkv_array* array = NULL;
  tkv_error* error = NULL;
  must(tkv_array_wrap(floats, shape, NULL, 1, TKV_F32, kCpu, 0, NULL, NULL, &array, &error),
       &error);
  return array;
}

/* Sets SGD with the mean over the workers.  Rank 0 defines it for all. */
static void set_optimizer(tkv_store* store) {
  const tkv_param params[] = {{"learning_rate", 0.5},
                              {"rescale_grad", 1.0 / tkv_store_num_workers(store)}};
  tkv_optimizer_options options = TKV_INIT(tkv_optimizer_options);
  options.params = params;
  options.param_count = 2;
  tkv_optimizer* sgd = NULL;
  tkv_error* error = NULL;
  must(tkv_optimizer_create("sgd", &options, &sgd, &error), &error);
  must(tkv_store_set_optimizer(store, sgd, &error), &error);
  tkv_optimizer_release(sgd);
}

static void train(tkv_store* store) {
  float weights[kFeatures] = {0}, grad[kFeatures];
  sample samples[kSamples];
  make_samples(tkv_store_rank(store), samples);
  tkv_array *weight_array = wrap(weights), *grad_array = wrap(grad);
  const tkv_item value = {.key = {"w", 0}, .arrays = &weight_array, .array_count = 1};
  const tkv_item push = {.key = {"w", 0}, .arrays = &grad_array, .array_count = 1};
  tkv_error* error = NULL;
  must(tkv_store_init(store, &value, 1, &error), &error); /* rank 0 makes it, the others find it */
  set_optimizer(store);
  for (int step = 0; step < kSteps; ++step) {
    find_gradient(samples, weights, grad);
    must(tkv_store_pushpull(store, &push, 1, &value, 1, &error), &error);
  }
  printf("worker %d of %d: w = %.4f %.4f %.4f %.4f\n", (int)tkv_store_rank(store),
         (int)tkv_store_num_workers(store), (double)weights[0], (double)weights[1],
         (double)weights[2], (double)weights[3]);
  tkv_array_release(weight_array);
  tkv_array_release(grad_array);
}

int main(void) {
  tkv_error* error = NULL;
  tkv_text* role = NULL;
  must(tkv_process_role(&role, &error), &error);
  const int serves = strcmp(tkv_text_data(role), "server") == 0;
  tkv_text_release(role);
  if (serves) {
    must(tkv_server_run(NULL, &error), &error);
    return 0;
  }
  tkv_store* store = NULL;
  must(tkv_store_create("dist_sync", NULL, &store, &error), &error);
  train(store);
  must(tkv_store_close(store, 0, &error), &error);
  tkv_store_release(store);
  return 0;
}
