// The processes of `tkv bench`: those on the other side, on this machine or on another, and jobs of
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
  // A host that ssh reaches.
  //   throws  kInvalidArgument, kUnavailable, kDeadlineExceeded  no ssh, or no way there
  explicit OtherSide(const std::string& host);

  bool is_far() const { return !host_.empty(); }
  // Of this machine, as a process there reaches it: "127.0.0.1".
  const std::string& own_name() const { return own_name_; }
  const Watchdog& watchdog() const { return watchdog_; }
  // Runs tkv there with these words.  It has this process's variables TKV_*, and on another host the
  // token, too.
  //   throws  as Spawn; kUnavailable  no tensorkv of this version there
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
  // Sets this process's variables TKV_* of a job, which its next store reads.
  //   throws  as Service::Start, OtherSide::Start and KVStore::Create
  //   interrupt  of its store, as in StoreOptions
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
