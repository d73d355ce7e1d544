#include "tensor/device_work.h"

#include <utility>

namespace tkv {
namespace {

bool IsWaitedForByHost(const Storage& storage) {
  return storage.foreign() && !storage.has_owner_stream();
}

EnqueueLock LockAfterOthers(std::span<const NDArray> reads, std::span<const NDArray> writes) {
  WaitForOthers(reads, writes);
  return {};
}

}  // namespace

void WaitForOthers(std::span<const NDArray> reads, std::span<const NDArray> writes) {
  for (const NDArray& array : reads) {
    if (IsWaitedForByHost(*array.storage())) array.storage()->WaitReadable();
  }
  for (const NDArray& array : writes) {
    if (IsWaitedForByHost(*array.storage())) array.storage()->WaitWritable();
  }
}

DeviceWork::DeviceWork(Stream* stream, std::span<const NDArray> reads,
                       std::span<const NDArray> writes)
    : DeviceWork(LockAfterOthers(reads, writes), std::make_shared<Event>(&stream->device()), stream,
                 reads, writes) {}

DeviceWork::DeviceWork(const EnqueueLock& /*lock*/, std::shared_ptr<Event> done, Stream* stream,
                       std::span<const NDArray> reads, std::span<const NDArray> writes)
    : stream_(*stream), reads_(reads), writes_(writes), done_(std::move(done)) {
  for (const NDArray& array : reads) array.storage()->OrderReadable(stream);
  for (const NDArray& array : writes) array.storage()->OrderWritable(stream);
  try {
    for (const NDArray& array : reads) array.storage()->AddReader(done_);
    for (const NDArray& array : writes) array.storage()->AddWriter(done_);
  } catch (...) {
    done_->Abandon();
    throw;
  }
}

void DeviceWork::Recorded() noexcept {
  bool all_wait = true;
  for (const auto& arrays : {reads_, writes_}) {
    for (const NDArray& array : arrays) {
      all_wait = array.storage()->LetOthersWait(done_.get()) && all_wait;
    }
  }
  if (all_wait || done_->EndsWithin(kHazardPatience, {})) return;
  stream_.device().Lose("end work on memory of others", cuda::Result::kLaunchTimeout);
}

DeviceWork::~DeviceWork() { done_->Abandon(); }

}  // namespace tkv
