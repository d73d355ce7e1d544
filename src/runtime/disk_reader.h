// A thread that reads a disk, so that nobody who is waited for has to.

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "rows/disk_pages.h"

namespace tkv {

// Reads for the system's page cache: whoever reads the same next finds it there.
class DiskReader {
 public:
  //   done  called on the reader's thread with the ticket of what has been read; does not throw
  explicit DiskReader(std::function<void(uint64_t ticket)> done);
  ~DiskReader();  // what is being read is read to its end, the rest is forgotten
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;

  void Read(uint64_t ticket, std::vector<DiskPages::Where> where);

 private:
  struct Reading {
    uint64_t ticket;
    std::vector<DiskPages::Where> where;
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
