// What the head and the servers of a job say of it, put together.

#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "runtime/worker.h"
#include "tkv/status.h"
#include "wire/listed.h"

namespace tkv {

struct ServerListings {
  Epoch epoch;
  bool head_is_open = false;
  std::vector<Listed> servers;      // of each all its keys
  std::vector<std::string> errors;  // of each why it has not answered; empty: it has
};

// Asks every server for its keys, all at once.
//   blocks  at most the patience, and some seconds
//   throws  what the interrupt throws
ServerListings ListServers(const std::shared_ptr<Worker>& worker, const std::string& verb,
                           uint32_t store, std::chrono::nanoseconds patience,
                           const std::function<void()>& interrupt);

// Keys that are there, by store and name.
std::vector<KeyStatus> ListedKeys(const ServerListings& listings);
// All but job and url.
JobStatus StatusOf(const ServerListings& listings);

}  // namespace tkv
