// Looking into a running job from outside: tkv status, keys and get.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "json.h"
#include "tkv/kvstore.h"

namespace tkv::cli {

struct LookOptions {
  std::string url;         // empty: that of the environment, or of the only job of this machine
  std::string token_file;  // empty: TKV_TOKEN_FILE
  int patience_seconds = 5;
};

struct StatusOptions : LookOptions {
  bool probes = false;  // one line, and an exit status for orchestrators
  int metrics_port = -1;
  std::string bind = "127.0.0.1";
};

// Which key of a job is meant.
struct KeyOptions : LookOptions {
  std::string key;
  uint32_t store = 0;
};

struct GetOptions : KeyOptions {
  std::string file;
};

// An observer of the job.  A signal ends its waits.
//   throws  as KVStore::Connect
std::unique_ptr<KVStore> Observe(const LookOptions& options, uint32_t store = 0);
// Runs what looks at a job; the exit status, which is 128 + N after signal N.
int Looking(const std::function<int()>& run);

// The key that was typed: a whole number is one, unless the store has names.  `verb` begins the error.
//   throws  kNotFound  there is none, with the nearest name
KeyStatus FindKey(const JobStatus& status, const KeyOptions& options, const std::string& verb);
// As it is typed, too: without quotes.
std::string KeyText(const Key& key);
// "3 alive, 1 dead"
std::string Counted(const std::vector<std::string>& states);
std::string BytesText(double bytes);  // "1.5 MiB"
// Control characters of names as \xNN: none reaches a terminal.
std::string Printable(std::string_view text);

int RunStatus(const StatusOptions& options, Form form);
int RunKeys(const LookOptions& options, Form form);
int RunGet(const GetOptions& options, Form form);

}  // namespace tkv::cli
