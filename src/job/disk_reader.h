// A thread that reads from a disk, so that no thread of a server blocks on it.

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "rows/row_disk.h"

namespace tkv {

// Reads blocks into the system's page cache, so that the next read of them is fast.
class DiskReader {
 public:
  // Starts the thread.
  //   done  called on the reader's thread with the ticket of a reading that has ended; does not
  //         throw
  explicit DiskReader(std::function<void(uint64_t ticket)> done);
  // Finishes the reading under way and forgets the others.
  ~DiskReader();
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;

  void Read(uint64_t ticket, std::vector<DiskRange> ranges);

 private:
  struct Reading {
    uint64_t ticket;
    std::vector<DiskRange> ranges;
  };
  void Run();

  const std::function<void(uint64_t)> done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Reading> readings_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace tkv
