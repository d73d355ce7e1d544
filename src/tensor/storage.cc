#include "tkv/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "base/format.h"
#include "base/round_up.h"

namespace tkv {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

// Large blocks are mapped directly: they start on a huge page, read as zeros, and go back to the
// system when freed.
void* MapHuge(size_t bytes) {
  const size_t span = RoundUp(bytes, kHugePage) + kHugePage;
  void* base = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char* const start = static_cast<char*>(base);
  char* const data =
      start + (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
  char* const end = data + RoundUp(bytes, kHugePage);
  if (data > start) munmap(start, static_cast<size_t>(data - start));
  if (start + span > end) munmap(end, static_cast<size_t>(start + span - end));
  madvise(data, static_cast<size_t>(end - data), MADV_HUGEPAGE);
  return data;
}

}  // namespace

Storage::Storage(void* data, size_t bytes, bool owned, bool read_only,
                 std::shared_ptr<const void> owner)
    : data_(data), bytes_(bytes), owned_(owned), read_only_(read_only), owner_(std::move(owner)) {}

std::shared_ptr<Storage> Storage::Allocate(size_t bytes) {
  void* data = nullptr;
  if (bytes >= kHugePage) {
    data = bytes > (size_t{1} << 62) ? nullptr : MapHuge(bytes);
  } else {
    data = std::aligned_alloc(kAlignment, RoundUp(std::max<size_t>(bytes, 1), kAlignment));
  }
  if (data == nullptr) {
    throw Fail(Code::kResourceExhausted, "allocate: the system has no {} bytes of memory", bytes);
  }
  return std::shared_ptr<Storage>(new Storage(data, bytes, true, false, nullptr));
}

std::shared_ptr<Storage> Storage::Adopt(void* data, size_t bytes, bool read_only,
                                        std::shared_ptr<const void> owner) {
  std::shared_ptr<Storage> storage(new Storage(data, bytes, false, read_only, std::move(owner)));
  storage->foreign_ = true;
  return storage;
}

Storage::~Storage() {
  if (!owned_) return;
  if (bytes_ >= kHugePage) {
    munmap(data_, RoundUp(bytes_, kHugePage));
  } else {
    std::free(data_);
  }
}

void Storage::MarkForeign(std::chrono::nanoseconds patience) {
  WaitReadable(patience);
  foreign_.store(true, std::memory_order_release);
}

void Storage::AddReader(std::shared_ptr<Pending> reader) {
  std::lock_guard lock(mutex_);
  // Finished readers are forgotten here, so the list is bounded by the operations under way.
  std::erase_if(readers_, [](const auto& old) { return old->done(); });
  readers_.push_back(std::move(reader));
  has_pending_.store(true, std::memory_order_release);
}

void Storage::SetWriter(std::shared_ptr<Pending> writer) {
  std::lock_guard lock(mutex_);
  writer_ = std::move(writer);
  has_pending_.store(true, std::memory_order_release);
}

void Storage::WaitReadable(std::chrono::nanoseconds patience) {
  if (!has_pending_.load(std::memory_order_acquire)) return;
  std::shared_ptr<Pending> writer;
  {
    std::lock_guard lock(mutex_);
    writer = writer_;
  }
  if (writer != nullptr) writer->Wait(patience);
}

void Storage::WaitWritable(std::chrono::nanoseconds patience) {
  if (!has_pending_.load(std::memory_order_acquire)) return;
  WaitReadable(patience);
  std::vector<std::shared_ptr<Pending>> readers;
  {
    std::lock_guard lock(mutex_);
    readers = readers_;
  }
  for (const auto& reader : readers) reader->Wait(patience);
  std::lock_guard lock(mutex_);
  std::erase_if(readers_, [](const auto& old) { return old->done(); });
  if (writer_ != nullptr && writer_->done()) writer_.reset();
  if (readers_.empty() && writer_ == nullptr) has_pending_.store(false, std::memory_order_release);
}

}  // namespace tkv
