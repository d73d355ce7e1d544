// The options of a store.  A row of the table in src/runtime/option_table.cc gives each of them its
// name, environment variable, unit, range and description.

#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "tkv/api.h"

namespace tkv {

// What all processes of a job share while they find each other: torch's TCPStore, or any other.
class TKV_API Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual void Set(const std::string& key, const std::string& value) = 0;
  //   blocks  until somebody has set it
  //   throws  kDeadlineExceeded  nobody has, in so long
  virtual std::string Get(const std::string& key, std::chrono::milliseconds longest) = 0;
};

class Transport;  // transport/factory.h

// How the processes of a job talk, and what they may use.
struct NetworkOptions {
  // "auto" by shared memory and Unix sockets on one host, by TCP between hosts; "unix" the same
  // without shared memory; "tcp" by TCP alone.
  std::string transport = "auto";
  // Carries the job instead of the transport of that name; for transports that are not built in.
  std::shared_ptr<const Transport> carrier;
  bool insecure_network = false;  // TCP without a token: whoever reaches a port takes part
  // Where TCP is encrypted, by keys derived from the token of the job: "auto" between hosts, "on"
  // on one host, too, "off" nowhere.
  std::string tls = "auto";
  // What leaves by TCP carries a check of its values, beside that of its headers.
  bool check_values = false;
  // Who is silent for so long is dead; the same in all processes of a job.
  std::chrono::milliseconds silence{5'000};
  // Rehearsed failures: see docs/failures.md.
  std::string failpoints;
  // A folder on a disk for rows of keys whose memory is bounded; empty: there are no such keys.
  std::string rows_dir;
};

struct StoreOptions : NetworkOptions {
  int threads = 0;  // cores for large operations; 0: all that the process may use
  std::chrono::milliseconds patience{600'000};  // longest wait for another thread or worker

  // ---- of a distributed store
  // The job, where no launcher says which: "tkv://HOST:PORT/JOB", as KVStore::url has it.
  std::string url;
  // Its secret, in a file that only this user can read, or as it is; neither: TKV_TOKEN_FILE's.
  std::string token_file;
  std::string token;
  std::string bootstrap;  // "self": a job of one worker, with its servers in this process
  // Servers of that job, or of one whose workers host them; 0: one, or one in each worker.
  int servers = 0;
  // Another way for processes to find each other: `num_workers` of them, each with its own rank.
  // They host the servers, and rank 0 the head, so that no other process is needed.
  std::shared_ptr<Rendezvous> rendezvous;
  int rank = -1;  // with `url`: -1: any that is free
  int num_workers = 0;
  std::chrono::milliseconds server_patience{30'000};  // longest wait for a server or the head
  int staleness = 0;  // rounds that a worker may be ahead of the slowest one
  // What a round does without a worker that has died: "fail", "continue" or "wait".  Empty: what the
  // job does, or "fail" where this process makes the job.
  std::string on_death;
  bool deterministic = false;              // sums in the order of ranks: equal bits in every run
  size_t window_bytes = size_t{64} << 20;  // of foreign arrays that wait as copies
  // A folder that the store saves snapshots to by itself, and how often: "100" (rounds) or "30s".
  // Both or none.
  std::string snapshots;
  std::string snapshot_every;
  // Called about every 50 ms by a thread that waits; what it throws ends the wait and reaches the
  // caller.  For signals.
  std::function<void()> interrupt;
  // Told what an operator wants to know; null: nothing is said.  Any thread calls it.  A line whose call
  // throws is lost.
  std::function<void(int level, const std::string& text)> log;  // 0 debug to 3 error
  // What OptionsFromEnvironment makes of `log`: "off", "error", "warning", "info" or "debug".
  std::string log_level = "off";
};

}  // namespace tkv
