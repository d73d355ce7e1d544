/* Optimizers and programs. */

#include "check.h"

static const char kProgram[] =
    "program halves\nparam rate 0.5\nstep = mul sum rate\nw = sub value step\nvalue <- w\n";

static tkv_optimizer* sgd(double rate) {
  const tkv_param params[] = {{"learning_rate", rate}};
  tkv_optimizer_options options = TKV_INIT(tkv_optimizer_options);
  options.params = params;
  options.param_count = COUNT(params);
  tkv_optimizer* optimizer = NULL;
  OK(tkv_optimizer_create("sgd", &options, &optimizer, &failure));
  return optimizer;
}

/* Pushes 2 to "w" of value 1, and compares the new value. */
static int steps_to(tkv_optimizer* optimizer, double wanted) {
  tkv_store* store = store_with_w(1);
  tkv_array *grad = full(2, 3, 2), *out = full(2, 3, -1);
  tkv_item push = one(name("w"), &grad), pull = one(name("w"), &out);
  OK(tkv_store_set_optimizer(store, optimizer, &failure));
  OK(tkv_store_push(store, &push, 1, &failure));
  OK(tkv_store_pull(store, &pull, 1, &failure));
  int good = holds(out, wanted);
  tkv_array_release(grad);
  tkv_array_release(out);
  tkv_store_release(store);
  return good;
}

static void a_built_in_has_hyperparameters_by_name(void) {
  tkv_optimizer* optimizer = sgd(0.5);
  double rate = 0;
  OK(tkv_optimizer_param(optimizer, "learning_rate", &rate, &failure));
  EXPECT(rate == 0.5);
  EXPECT(steps_to(optimizer, 0));
  OK(tkv_optimizer_set_param(optimizer, "learning_rate", 0.25, &failure));
  EXPECT(steps_to(optimizer, 0.5));
  tkv_optimizer_release(optimizer);
}

static void a_multiplier_counts_for_its_key(void) {
  tkv_optimizer* optimizer = sgd(0.5);
  const tkv_key w = name("w"), other = name("other");
  OK(tkv_optimizer_set_multiplier(optimizer, "learning_rate", &other, 0, &failure));
  EXPECT(steps_to(optimizer, 0));
  OK(tkv_optimizer_set_multiplier(optimizer, "learning_rate", &w, 2, &failure));
  EXPECT(steps_to(optimizer, -1));
  tkv_optimizer_release(optimizer);
}

static void a_program_is_an_optimizer(void) {
  tkv_optimizer* optimizer = NULL;
  OK(tkv_optimizer_from_program(kProgram, NULL, &optimizer, &failure));
  EXPECT(steps_to(optimizer, 0));
  tkv_optimizer_release(optimizer);
}

static void a_retained_optimizer_outlives_a_release(void) {
  tkv_optimizer* optimizer = sgd(0.5);
  EXPECT(tkv_optimizer_retain(optimizer) == optimizer);
  tkv_optimizer_release(optimizer);
  EXPECT(steps_to(optimizer, 0));
  tkv_optimizer_release(optimizer);
}

static void a_store_keeps_its_optimizer(void) {
  tkv_store* store = store_with_w(1);
  tkv_optimizer* optimizer = sgd(0.5);
  OK(tkv_store_set_optimizer(store, optimizer, &failure));
  tkv_optimizer_release(optimizer);
  tkv_array* grad = full(2, 3, 2);
  tkv_item push = one(name("w"), &grad), pull = push;
  OK(tkv_store_push(store, &push, 1, &failure));
  OK(tkv_store_pull(store, &pull, 1, &failure));
  EXPECT(holds(grad, 0));
  tkv_array_release(grad);
  tkv_store_release(store);
}

static void what_is_no_optimizer_is_refused(void) {
  const tkv_param unknown[] = {{"speed", 1}}, unnamed[] = {{NULL, 1}};
  tkv_optimizer_options options = TKV_INIT(tkv_optimizer_options);
  tkv_optimizer* optimizer = NULL;
  EXPECT(tkv_optimizer_create("sgdd", NULL, &optimizer, NULL) != TKV_OK);
  REFUSES(tkv_optimizer_create(NULL, NULL, &optimizer, &failure));
  REFUSES(tkv_optimizer_create("sgd", NULL, NULL, &failure));
  options.param_count = 1;
  REFUSES(tkv_optimizer_create("sgd", &options, &optimizer, &failure));
  options.params = unnamed;
  REFUSES(tkv_optimizer_create("sgd", &options, &optimizer, &failure));
  options.params = unknown;
  FAILS(TKV_INVALID_ARGUMENT, "speed", tkv_optimizer_create("sgd", &options, &optimizer, &failure));
  REFUSES(
      tkv_optimizer_from_program("program p\nw = plus value sum\n", NULL, &optimizer, &failure));
  REFUSES(tkv_optimizer_from_program(NULL, NULL, &optimizer, &failure));
  REFUSES(tkv_optimizer_from_program(kProgram, NULL, NULL, &failure));
  REFUSES(tkv_optimizer_from_program(kProgram, &options, &optimizer, &failure));
  EXPECT(optimizer == NULL);
}

static void hyperparameters_that_are_none_are_refused_and_change_nothing(void) {
  tkv_optimizer* optimizer = sgd(0.5);
  const tkv_key w = name("w");
  double value = -7;
  REFUSES(tkv_optimizer_param(optimizer, "speed", &value, &failure));
  REFUSES(tkv_optimizer_param(optimizer, NULL, &value, &failure));
  REFUSES(tkv_optimizer_param(optimizer, "learning_rate", NULL, &failure));
  REFUSES(tkv_optimizer_param(NULL, "learning_rate", &value, &failure));
  REFUSES(tkv_optimizer_set_param(optimizer, "speed", 1, &failure));
  REFUSES(tkv_optimizer_set_param(optimizer, NULL, 1, &failure));
  REFUSES(tkv_optimizer_set_param(NULL, "learning_rate", 1, &failure));
  REFUSES(tkv_optimizer_set_multiplier(optimizer, "speed", &w, 1, &failure));
  REFUSES(tkv_optimizer_set_multiplier(optimizer, NULL, &w, 1, &failure));
  REFUSES(tkv_optimizer_set_multiplier(optimizer, "learning_rate", NULL, 1, &failure));
  REFUSES(tkv_optimizer_set_multiplier(NULL, "learning_rate", &w, 1, &failure));
  EXPECT(value == -7 && steps_to(optimizer, 0));
  EXPECT(tkv_optimizer_retain(NULL) == NULL);
  tkv_optimizer_release(NULL);
  tkv_optimizer_release(optimizer);
}

static const test tests[] = {
    TEST(a_built_in_has_hyperparameters_by_name),
    TEST(a_multiplier_counts_for_its_key),
    TEST(a_program_is_an_optimizer),
    TEST(a_retained_optimizer_outlives_a_release),
    TEST(a_store_keeps_its_optimizer),
    TEST(what_is_no_optimizer_is_refused),
    TEST(hyperparameters_that_are_none_are_refused_and_change_nothing),
};
const suite optimizer_suite = {"Optimizers", tests, COUNT(tests)};
