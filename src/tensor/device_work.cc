#include "tensor/device_work.h"

#include <utility>

namespace tkv {

DeviceWork::DeviceWork(Stream* stream, std::span<const NDArray> reads,
                       std::span<const NDArray> writes)
    : DeviceWork(EnqueueLock(), std::make_shared<Event>(&stream->device()), stream, reads, writes) {
}

DeviceWork::DeviceWork(const EnqueueLock& /*lock*/, std::shared_ptr<Event> done, Stream* stream,
                       std::span<const NDArray> reads, std::span<const NDArray> writes)
    : stream_(*stream), done_(std::move(done)) {
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

DeviceWork::~DeviceWork() { done_->Abandon(); }

}  // namespace tkv
