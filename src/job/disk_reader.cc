#include "job/disk_reader.h"

#include <algorithm>
#include <exception>

#include "base/start_thread.h"

namespace tkv {

DiskReader::DiskReader(std::function<void(uint64_t)> done)
    : done_(std::move(done)), thread_(StartThread("read rows with", [this] { Run(); })) {}

DiskReader::~DiskReader() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DiskReader::Read(uint64_t ticket, std::vector<DiskRange> ranges) {
  {
    const std::lock_guard lock(mutex_);
    readings_.push_back({ticket, std::move(ranges)});
  }
  changed_.notify_all();
}

void DiskReader::Run() {
  constexpr size_t kAhead = 256;  // reads that the disk has at a time
  std::vector<std::byte> scratch;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_stopped_ || !readings_.empty(); });
    if (is_stopped_) return;
    const Reading reading = std::move(readings_.front());
    readings_.pop_front();
    lock.unlock();
    const auto& ranges = reading.ranges;
    try {
      for (size_t i = 0; i < ranges.size() + kAhead; ++i) {
        if (i < ranges.size()) ranges[i].extent->Prefetch(ranges[i].offset, ranges[i].bytes);
        if (i < kAhead) continue;
        const DiskRange& one = ranges[i - kAhead];
        scratch.resize(std::max(scratch.size(), one.bytes));
        one.extent->Read(one.offset, one.bytes, scratch.data());
      }
    } catch (const std::exception& error) {
      // The next read of the same block reports the error.
      static_cast<void>(error);
    }
    done_(reading.ticket);
    lock.lock();
  }
}

}  // namespace tkv
