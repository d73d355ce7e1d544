// The status of a job, combined from the reports of its head and its servers.

#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "job/worker.h"
#include "tkv/status.h"
#include "wire/listed.h"

namespace tkv {

struct ServerListings {
  Epoch epoch;
  bool head_is_open = false;
  // All keys of each server.
  std::vector<Listed> servers;
  // The reason why a server has not answered; empty if it has.
  std::vector<std::string> errors;
};

// Returns the keys of all stores, which it fetches from all servers in parallel.
//   store   the caller's; its close cancels the requests
//   blocks  at most the patience, and some seconds
//   throws  what the interrupt throws
ServerListings ListServers(const std::shared_ptr<Worker>& worker, const std::string& verb,
                           uint32_t store, std::chrono::nanoseconds patience,
                           const std::function<void()>& interrupt);

// Returns the existing keys, by store and name.
std::vector<KeyStatus> ListedKeys(const ServerListings& listings);
// Returns the whole status except job and url.
JobStatus StatusOf(const ServerListings& listings);

}  // namespace tkv
