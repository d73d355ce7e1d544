// A reference-counted block of memory and the operations that are still using it.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace tkv {

// An operation under way that reads or writes a Storage.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual bool done() const noexcept = 0;
  //   blocks  until done, at most `patience`
  //   throws  kDeadlineExceeded, or the operation's own error
  virtual void Wait(std::chrono::nanoseconds patience) = 0;
};

// Thread-safe.  The bytes themselves are not guarded: the hazards below order the operations of
// this library.
class Storage final {
 public:
  // 64-byte aligned, uninitialised memory; huge pages are advised from 2 MiB on.
  //   throws  kResourceExhausted  the system has no such memory
  static std::shared_ptr<Storage> Allocate(size_t bytes);

  // Memory of somebody else.  `owner` is released with the storage, on whichever thread drops it
  // last.
  static std::shared_ptr<Storage> Adopt(void* data, size_t bytes, bool read_only,
                                        std::shared_ptr<const void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }
  bool read_only() const noexcept { return read_only_; }

  // Exported to somebody who does not know the hazards (DLPack, buffer): waits for the writer, and
  // from then on every operation on it completes before it returns.
  void MarkForeign(std::chrono::nanoseconds patience);
  bool foreign() const noexcept { return foreign_.load(std::memory_order_acquire); }

  // Hazards: reading waits for the pending writer, writing also for the pending readers.
  void AddReader(std::shared_ptr<Pending> reader);
  void SetWriter(std::shared_ptr<Pending> writer);
  void WaitReadable(std::chrono::nanoseconds patience);
  void WaitWritable(std::chrono::nanoseconds patience);

 private:
  Storage(void* data, size_t bytes, bool owned, bool read_only, std::shared_ptr<const void> owner);

  void* data_;
  size_t bytes_;
  bool owned_;
  bool read_only_;
  std::shared_ptr<const void> owner_;
  std::atomic<bool> foreign_{false};
  std::atomic<bool> has_pending_{false};  // a hint, so that an idle storage costs no lock
  std::mutex mutex_;
  std::shared_ptr<Pending> writer_;
  std::vector<std::shared_ptr<Pending>> readers_;
};

}  // namespace tkv
