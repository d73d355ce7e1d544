// The options of a store.  A row of the table in src/options/option_table.cc gives each of them its
// name, environment variable, unit, range and description.

#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "tkv/api.h"

namespace tkv {

// A key-value service that all processes of a job share while they find each other, such as torch's
// TCPStore.
class TKV_API Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual void Set(const std::string& key, const std::string& value) = 0;
  // Returns the value of `key`.
  //   blocks  until a process has set it
  //   throws  kDeadlineExceeded  no process has set it within `longest`
  virtual std::string Get(const std::string& key, std::chrono::milliseconds longest) = 0;
};

class Transport;  // transport/factory.h

// How the processes of a job communicate, and which resources they may use.
struct NetworkOptions {
  // "auto": shared memory and Unix sockets on one host, TCP between hosts; "unix": the same without
  // shared memory; "tcp": only TCP.
  std::string transport = "auto";
  // Replaces the transport of that name; for transports that are not built in.
  std::shared_ptr<const Transport> carrier;
  bool insecure_network = false;  // TCP without a token: any process that reaches a port can join
  // When TCP is encrypted, by keys derived from the job's token: "auto": between hosts; "on": on
  // one host, too; "off": never.
  std::string tls = "auto";
  // Adds a checksum of the values to messages sent by TCP, beside that of their headers.
  bool check_values = false;
  // The time without a message after which a process is declared dead; the same in the whole job.
  std::chrono::milliseconds silence{5'000};
  // Failures to inject: see docs/failures.md.
  std::string failpoints;
  // A folder on a disk for rows of keys whose memory is bounded; empty: such keys are not possible.
  std::string rows_dir;
};

struct StoreOptions : NetworkOptions {
  int threads = 0;  // cores for large operations; 0: all that this process may use
  std::chrono::milliseconds patience{600'000};  // longest wait for another thread or worker

  // ---- of a distributed store
  // The URL of the job, as KVStore::url returns it ("tkv://HOST:PORT/JOB"), if no launcher names
  // it.
  std::string url;
  // The job's secret: a file that only this user can read, or the text itself.  Neither: the file
  // that TKV_TOKEN_FILE names.
  std::string token_file;
  std::string token;
  std::string bootstrap;  // "self": a job of one worker, with its servers in this process
  // Number of servers of such a job, or of one whose workers host them.  0: one, or one in each
  // worker.
  int servers = 0;
  // Another way for processes to find each other: `num_workers` of them, each with its own rank.
  // They host the servers, and rank 0 the head, so that no other process is needed.
  std::shared_ptr<Rendezvous> rendezvous;
  int rank = -1;  // with `url`: -1: any that is free
  int num_workers = 0;
  std::chrono::milliseconds server_patience{30'000};  // longest wait for a server or the head
  int staleness = 0;  // rounds that a worker may be ahead of the slowest one
  // How a round continues without a worker that has died: "fail", "continue" or "wait".  Empty: the
  // job's setting, or "fail" if this process creates the job.
  std::string on_death;
  bool deterministic = false;              // adds in the order of ranks: equal bits in every run
  size_t window_bytes = size_t{64} << 20;  // most copied foreign data that waits to be sent
  // A folder for automatic snapshots, and their interval: "100" (rounds) or "30s".  Both or none.
  std::string snapshots;
  std::string snapshot_every;
  // Called about every 50 ms by a waiting thread, for example to handle signals.  An exception from
  // it ends the wait and reaches the caller.
  std::function<void()> interrupt;
  // Receives log lines; null: no log.  Any thread calls it.  If it throws, the line is lost.
  std::function<void(int level, const std::string& text)> log;  // 0 debug to 3 error
  // Lowest level that OptionsFromEnvironment's `log` writes: "off", "error", "warning", "info",
  // "debug".
  std::string log_level = "off";
};

}  // namespace tkv
