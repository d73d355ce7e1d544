// Processes of `tkv bench`: processes on the other side (this machine or another), and jobs made of
// this process and a server there.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "companion.h"
#include "hosts.h"
#include "system.h"
#include "tkv/job.h"
#include "tkv/kvstore.h"
#include "watchdog.h"

namespace tkv::cli {

class OtherSide {
 public:
  OtherSide() = default;  // this machine
  // Connects to a host by ssh.
  //   throws  kInvalidArgument, kUnavailable, kDeadlineExceeded  ssh is missing, or the host cannot
  //           be reached
  explicit OtherSide(const std::string& host);

  bool is_far() const { return !host_.empty(); }
  // Returns the address by which a process there reaches this machine; on this machine "127.0.0.1".
  const std::string& own_name() const { return own_name_; }
  const Watchdog& watchdog() const { return watchdog_; }
  // Runs tkv there with these arguments.  The process inherits this process's TKV_* variables.  On
  // another host it also receives the token.
  //   throws  as Spawn; kUnavailable  the host has no tensorkv of this version
  std::unique_ptr<Companion> Start(const std::vector<std::string>& words,
                                   const std::string& token = {}) const;

 private:
  std::unique_ptr<Companion> StartThere(const std::vector<std::string>& words,
                                        const std::string& token) const;

  const Watchdog watchdog_;
  const Ssh ssh_ = SshFromEnvironment();
  std::string host_;
  std::string own_name_ = "127.0.0.1";
};

class BenchJob {
 public:
  // Starts a job with one server on `side` and connects this process's store to it.  Sets this
  // process's TKV_* variables, which the store reads.
  //   throws  as Service::Start, OtherSide::Start and KVStore::Create
  //   interrupt  the store's StoreOptions::interrupt
  BenchJob(const std::string& transport, const OtherSide& side, std::function<void()> interrupt);
  ~BenchJob();
  BenchJob(const BenchJob&) = delete;
  BenchJob& operator=(const BenchJob&) = delete;

  KVStore* store() const { return store_.get(); }

 private:
  std::optional<TokenFile> token_file_;
  std::unique_ptr<Service> head_;
  std::unique_ptr<Companion> server_;
  std::unique_ptr<KVStore> store_;
};

}  // namespace tkv::cli
