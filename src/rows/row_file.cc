#include "rows/row_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/process.h"
#include "base/start_thread.h"
#include "base/without_write_signals.h"

namespace tkv {
namespace {

constexpr size_t kPlaceMin = size_t{16} << 10;

// Returns the space that a block takes in the file: a power of two, so that a freed space fits
// later blocks.  The unused rest of a space occupies no disk space.
size_t PlaceBytes(size_t bytes) { return std::max(kPlaceMin, std::bit_ceil(bytes)); }

int OpenUnnamed(const std::string& directory) {
  const int file = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string path = directory + "/tensorkv-rows-XXXXXX";  // for a file system without O_TMPFILE
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

}  // namespace

class RowFile::File {
 public:
  explicit File(std::string directory) : directory_(std::move(directory)) {
    fd_ = OpenUnnamed(directory_);
    if (fd_ < 0) {
      const int error = errno;
      throw Error(Code::kFailedPrecondition, WhatOf("kept", error), error);
    }
    posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);
  }
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Reserves space for a block and queues the block for the writer.  Returns false if too many
  // bytes are waiting.
  //   piece  of this file
  bool Add(const std::shared_ptr<Piece>& piece, const Block& block);
  void Read(uint64_t at, size_t bytes, void* out) const;
  void Prefetch(uint64_t at, size_t bytes) const noexcept {
    posix_fadvise(fd_, static_cast<off_t>(at), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
  }
  void Release(uint64_t at, size_t bytes) noexcept;
  void Run();
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
  }
  void Flush(std::chrono::nanoseconds patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [&] { return pending_.empty(); });
  }
  std::string failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  uint64_t bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Pending {
    std::weak_ptr<Piece> piece;
    Block block;
  };

  std::string WhatOf(const char* verb, int error) const {
    return Format("rows_dir '{}': rows cannot be {} there: {}", directory_, verb,
                  std::strerror(error));
  }
  int WriteAt(uint64_t at, const Block& block) const noexcept;
  void NoteFailure(int error) noexcept;
  void GiveBack(std::unique_lock<std::mutex>* lock);

  const std::string directory_;
  int fd_ = -1;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Pending> pending_;  // the first block is being written
  size_t pending_bytes_ = 0;
  bool is_stopped_ = false;
  std::string failure_;
  uint64_t end_ = 0;
  uint64_t bytes_ = 0;
  size_t pieces_ = 0;
  struct Place {
    uint64_t at;
    size_t bytes;
  };
  std::vector<Place> released_;                   // has capacity for all pieces that are alive
  std::map<size_t, std::vector<uint64_t>> free_;  // free spaces, by their size in bytes
};

class RowFile::Piece final : public Extent {
 public:
  explicit Piece(std::shared_ptr<File> file) : file_(std::move(file)) {}
  ~Piece() override {
    if (bytes_ > 0) file_->Release(at_, bytes_);
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  void Read(size_t at, size_t bytes, void* out) const override {
    file_->Read(at_ + at, bytes, out);
  }
  void Prefetch(size_t at, size_t bytes) const noexcept override {
    file_->Prefetch(at_ + at, bytes);
  }

 private:
  friend class RowFile::File;
  const std::shared_ptr<File> file_;
  uint64_t at_ = 0;
  size_t bytes_ = 0;
};

bool RowFile::File::Add(const std::shared_ptr<Piece>& piece, const Block& block) {
  {
    const std::lock_guard lock(mutex_);
    if (pending_bytes_ > 0 && pending_bytes_ + block.size > kPending) return false;
    const size_t place = PlaceBytes(block.size);
    std::vector<uint64_t>& free = free_[place];
    released_.reserve(std::bit_ceil(pieces_ + released_.size() + 1));
    pending_.push_back({piece, block});
    // The writer punches holes into released spaces only when it is idle, so a released space may
    // be reused before.
    const bool again =
        free.empty() && !released_.empty() && PlaceBytes(released_.back().bytes) == place;
    if (again) {
      piece->at_ = released_.back().at;
      released_.pop_back();
    } else if (free.empty()) {
      piece->at_ = end_;
      end_ += place;
    } else {
      piece->at_ = free.back();
      free.pop_back();
    }
    piece->bytes_ = block.size;
    ++pieces_;
    bytes_ += block.size;
    pending_bytes_ += block.size;
  }
  changed_.notify_all();
  return true;
}

void RowFile::File::Read(uint64_t at, size_t bytes, void* out) const {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(fd_, to, bytes, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const int error = got < 0 ? errno : ENODATA;
      throw Error(Code::kUnavailable, WhatOf("read", error), error);
    }
    to += got;
    at += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

void RowFile::File::Release(uint64_t at, size_t bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    --pieces_;
    bytes_ -= bytes;
    released_.push_back({at, bytes});  // Add has reserved the capacity
  }
  changed_.notify_all();
}

// Punches a hole where a released block was, so that unused blocks occupy no disk space.
void RowFile::File::GiveBack(std::unique_lock<std::mutex>* lock) {
  const Place place = released_.back();
  released_.pop_back();
  const size_t bytes = PlaceBytes(place.bytes);
  lock->unlock();
  // A file system without holes keeps the bytes until the next block overwrites them.
  static_cast<void>(fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              static_cast<off_t>(place.at), static_cast<off_t>(bytes)));
  lock->lock();
  try {
    free_[bytes].push_back(place.at);
  } catch (const std::exception& error) {
    static_cast<void>(error);  // no memory: the file grows instead
  }
}

int RowFile::File::WriteAt(uint64_t at, const Block& block) const noexcept {
  for (size_t done = 0; done < block.size;) {
    const WithoutWriteSignals guard;
    const ssize_t put =
        pwrite(fd_, block.data + done, block.size - done, static_cast<off_t>(at + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return put < 0 ? errno : ENOSPC;
    done += static_cast<size_t>(put);
  }
  return 0;
}

// Notes the result of a write.  Without memory for its message, an older message stays.
void RowFile::File::NoteFailure(int error) noexcept {
  if (error == 0) return failure_.clear();
  try {
    failure_ = WhatOf("written", error);
  } catch (const std::bad_alloc&) {
    if (failure_.empty()) failure_ = "no memory";  // in the string itself
  }
}

void RowFile::File::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_stopped_ || !pending_.empty() || !released_.empty(); });
    if (is_stopped_) return;
    if (pending_.empty()) {
      GiveBack(&lock);
      continue;
    }
    Pending next = std::move(pending_.front());
    lock.unlock();
    int error = 0;
    // A block whose holders have all released it is not written.
    if (const std::shared_ptr<Piece> piece = next.piece.lock()) {
      error = WriteAt(piece->at_, next.block);
      piece->SetState(error == 0 ? Extent::State::kWritten : Extent::State::kFailed);
    }
    const size_t bytes = next.block.size;
    next = {};
    lock.lock();
    NoteFailure(error);
    pending_.pop_front();
    pending_bytes_ -= bytes;
    changed_.notify_all();
  }
}

RowFile::RowFile(std::string directory)
    : birth_(ForkGeneration()), file_(std::make_shared<File>(std::move(directory))) {
  writer_ = StartThread("write rows with", [file = file_] { file->Run(); });
}

RowFile::~RowFile() {
  // A child of fork() lacks the writer thread, and may have inherited a lock that the writer held.
  if (ForkGeneration() != birth_) {
    writer_.detach();
    return;
  }
  file_->Stop();
  writer_.join();
}

std::shared_ptr<RowDisk::Extent> RowFile::Write(const Block& block) {
  const auto piece = std::make_shared<Piece>(file_);
  return file_->Add(piece, block) ? piece : nullptr;
}

void RowFile::Flush(std::chrono::nanoseconds patience) { file_->Flush(patience); }
std::string RowFile::failure() const { return file_->failure(); }
uint64_t RowFile::bytes() const noexcept { return file_->bytes(); }

}  // namespace tkv
