// A worker that pushes once: for the time from the start of a job to its first push.

#include <chrono>
#include <cstdio>

#include "tkv/config.h"
#include "tkv/kvstore.h"

int main() {
  const auto store = tkv::KVStore::Create("dist_sync", tkv::OptionsFromEnvironment());
  const tkv::NDArray value = tkv::NDArray::Zeros({16});
  const tkv::NDArray* const values[] = {&value};
  const tkv::PushItem push{"w", values};
  store->Init("w", value);
  store->PushAsync({&push, 1})->Wait(std::chrono::seconds(10));
  std::puts("accepted");
  std::fflush(stdout);
  store->Close();
  return 0;
}
