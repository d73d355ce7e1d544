// The controls of the fake driver for tests, in addition to the environment variables that it reads
// at its start:
//
//   FAKE_DEVICES  the number of GPUs (1)
//   FAKE_MIB      memory of each GPU, in MiB (64)
//   FAKE_PEERS    0: no GPU can access another one's memory (1)
//   FAKE_SEED     the seed of the order in which streams run (1)
//   FAKE_VERSION  the version that cuDriverGetVersion reports (12090)
//   FAKE_INIT     the result of cuInit (0)
//
// A test looks these functions up in the driver that the program has loaded.

#pragma once

#include <dlfcn.h>

#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {
void fake_seed(uint64_t seed);
// The k-th call from now on returns `result` and does nothing; 0: no call fails.  Look-ups of error
// names are not counted.
void fake_fail(int k, int result);
int fake_calls();       // so far
int fake_failures();    // calls that failed because of fake_fail
int fake_launches();    // so far
int fake_violations();  // so far: races and other forbidden uses
void fake_lose(int device, int result);
// Skips the k-th wait of a stream for an event from now on; 0: none.
void fake_leave_out(int k);
// Captures the stream into a graph while `captures` is not 0.  The stream must not be a default
// stream.
void fake_capture(void* stream, int captures);
// Stops all streams while `stops` is not 0.
void fake_stop(int stops);
}
#pragma GCC visibility pop

namespace tkv::test {

// Looks up a function above by name.  Returns null if the program has not loaded the fake driver.
template <typename Function>
Function* Fake(const char* name) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace tkv::test

// Calls look like `FAKE(fake_seed)(7)`.
#define FAKE(function) (::tkv::test::Fake<decltype(function)>(#function))
