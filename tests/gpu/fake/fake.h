// What tests tell the pretended driver, beside the environment in which it starts:
//
//   FAKE_DEVICES  how many GPUs there are (1)
//   FAKE_MIB      memory of each, in MiB (64)
//   FAKE_PEERS    0: none reaches another one's memory (1)
//   FAKE_SEED     of the order in which streams go on (1)
//   FAKE_VERSION  of the driver, as cuDriverGetVersion has it (12090)
//   FAKE_INIT     what cuInit returns (0)
//
// A test finds the functions in the driver that the program has loaded.

#pragma once

#include <dlfcn.h>

#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {
void fake_seed(uint64_t seed);
// The k-th call from now on returns `result` and does nothing; 0: none.  Names are never counted.
void fake_fail(int k, int result);
int fake_calls();       // so far
int fake_failures();    // so many calls have failed because of fake_fail
int fake_launches();    // so far
int fake_violations();  // so far: races, and what else no program may do
void fake_lose(int device, int result);
// Leaves out the k-th wait of a stream for an event from now on; 0: none.
void fake_leave_out(int k);
// The stream, not one of the defaults, is captured into a graph as long as it is not 0.
void fake_capture(void* stream, int captures);
// Streams stand still as long as it is not 0.
void fake_stop(int stops);
}
#pragma GCC visibility pop

namespace tkv::test {

// One of the functions above, where the program has the pretended driver.
template <typename Function>
Function* Fake(const char* name) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace tkv::test

// `FAKE(fake_seed)(7)`.
#define FAKE(function) (::tkv::test::Fake<decltype(function)>(#function))
