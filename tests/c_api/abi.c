/* The C interface, called from C11 as users call it.  tools/tidy.py sees that every function of tkv.h is called here. */

#include "check.h"

extern const suite error_suite, array_suite, optimizer_suite, store_suite, callback_suite,
    ticket_suite, row_suite, disk_suite, struct_suite, thread_suite;

int main(int argc, char** argv) {
  const suite* const suites[] = {&error_suite,    &array_suite,  &optimizer_suite, &store_suite,
                                 &callback_suite, &ticket_suite, &row_suite,       &disk_suite,
                                 &struct_suite,   &thread_suite};
  return run_suites(suites, COUNT(suites), argc, argv);
}
