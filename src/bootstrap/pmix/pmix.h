// The group of processes that an MPI launcher has started, through PMIx: ranks, and small values
// that the processes share.  The library is loaded on first use; nothing is linked.
//   source  PMIx standard, versions 3 and 4

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace tkv {

class PmixGroup {
 public:
  // Joins the group of this process's launcher.
  //   throws  kUnavailable    the library or the launcher is not there
  //           kUnimplemented  this build does not have it
  static std::unique_ptr<PmixGroup> Join();
  // Returns true if the library can be loaded; otherwise `why` has the reason.
  static bool IsThere(std::string* why);
  virtual ~PmixGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Publishes a value, which the others see after the next Exchange.
  virtual void Put(const std::string& key, const std::string& value) = 0;
  // Publishes all values that were put.
  //   blocks  until all processes of the group are here
  //   throws  kDeadlineExceeded, and what the interrupt throws
  virtual void Exchange(std::chrono::milliseconds longest,
                        const std::function<void()>& interrupt) = 0;
  // Returns a value of that process.
  //   throws  kNotFound  that process has put no such key
  virtual std::string Get(int rank, const std::string& key) = 0;
};

}  // namespace tkv
