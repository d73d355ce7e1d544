// Inspects a running job from outside: tkv status, keys and get.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "json.h"
#include "tkv/kvstore.h"

namespace tkv::cli {

struct LookOptions {
  // A URL, or the name of a job of this machine.  Empty: from the environment, or the only job.
  std::string url;
  std::string token_file;  // empty: TKV_TOKEN_FILE
  int patience_seconds = 5;
};

struct StatusOptions : LookOptions {
  bool probes = false;             // print one line, and return an exit status for orchestrators
  double stuck_after_seconds = 0;  // a round that waits longer is wrong; 0: none is
  int metrics_port = -1;
  std::string bind = "127.0.0.1";
};

// The key that a command is about.
struct KeyOptions : LookOptions {
  std::string key;
  uint32_t store = 0;
};

struct GetOptions : KeyOptions {
  std::string file;
};

// Connects to the job as an observer.  A signal ends the store's waits.
//   throws  as KVStore::Connect
std::unique_ptr<KVStore> Observe(const LookOptions& options, uint32_t store = 0);
// Runs a subcommand that inspects a job.  Returns its exit status, or 128 + N after signal N.
int Looking(const std::function<int()>& run);

// Finds the key that the user typed: a name, or the digits of a numeric key. `verb` begins the
// error.
//   throws  kNotFound  no such key; the message has the nearest name
KeyStatus FindKey(const JobStatus& status, const KeyOptions& options, const std::string& verb);
// Returns the key as the user types it: without quotes.
std::string KeyText(const Key& key);
// Returns "40 ms" or "4.9 s".
std::string SecondsText(double seconds);
// "round 31 of 'w' waits 4.9 s for worker 1"
std::string RoundText(const RoundStatus& round);
// "3 alive, 1 dead"
std::string Counted(const std::vector<std::string>& states);
std::string BytesText(double bytes);  // "1.5 MiB"
// Replaces control characters by \xNN, so that none reaches a terminal.
std::string Printable(std::string_view text);

int RunStatus(const StatusOptions& options, Form form);
int RunKeys(const LookOptions& options, Form form);
int RunGet(const GetOptions& options, Form form);

}  // namespace tkv::cli
