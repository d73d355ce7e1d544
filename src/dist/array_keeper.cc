#include "dist/array_keeper.h"

#include <algorithm>
#include <memory>
#include <new>

#include "base/duration.h"

namespace tkv {
namespace {

// Returns how long a push waits for servers to accept sources, before it copies them.
// The wait may last several times as long as the copy.  Sources that are soon accepted are then not
// copied, and no caller waits long for a few bytes.
std::chrono::nanoseconds WorthWaiting(size_t bytes) {
  constexpr double kNanosecondsPerByte = 1;
  constexpr std::chrono::nanoseconds kLeast = std::chrono::microseconds(500);
  constexpr std::chrono::nanoseconds kMost = std::chrono::milliseconds(50);
  const double nanoseconds = static_cast<double>(bytes) * kNanosecondsPerByte;
  if (nanoseconds >= static_cast<double>(kMost.count())) return kMost;
  return std::max(kLeast, std::chrono::nanoseconds(static_cast<int64_t>(nanoseconds)));
}

// Returns an object that makes writers of arrays wait until the call has read them; null if memory
// is lacking.
std::shared_ptr<Pending> ReaderOf(const CallPtr& call) {
  try {
    return std::make_shared<AcceptedPart>(call);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// Marks the array as read by the call.  Returns true if its writers will wait.
bool IsKeptFree(const NDArray& array, const std::shared_ptr<Pending>& reader) {
  try {
    return reader != nullptr && array.storage()->AddReader(reader);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

// Marks the arrays of this library as in use, and returns the bytes of the other arrays; nothing if
// there is none.
std::optional<size_t> ArrayKeeper::MarkOwnArrays(const CallPtr& call,
                                                 const std::vector<PushSource>& sources) {
  std::optional<size_t> bytes;
  const std::shared_ptr<Pending> reader = ReaderOf(call);
  for (const PushSource& source : sources) {
    if (source.is_own || IsKeptFree(source.array, reader)) continue;
    bytes = bytes.value_or(0) + source.array.bytes();
  }
  return bytes;
}

void ArrayKeeper::DetachSources(const CallPtr& call, const std::vector<PushSource>& sources) {
  std::optional<size_t> bytes;
  try {
    bytes = MarkOwnArrays(call, sources);
  } catch (const std::bad_alloc&) {  // no memory for the marks: the push counts, so it goes on
    return Copy(call, 0);
  }
  if (!bytes) return;
  const size_t foreign_bytes = *bytes;
  const bool fits = ForgetAcceptedCopies() + foreign_bytes <= core_.options.window_bytes;
  try {
    core_.calls.Timed(WaitCause::kAccepted, [&] {
      call->WaitAccepted(fits ? WorthWaiting(foreign_bytes) : Saturated(core_.options.patience));
    });
  } catch (const Error&) {
    Copy(call, foreign_bytes);
  } catch (const std::bad_alloc&) {
    // No memory for the error that the time is over.
    Copy(call, foreign_bytes);
  } catch (...) {  // interrupted: the push continues
    Copy(call, foreign_bytes);
    throw;
  }
}

void ArrayKeeper::MarkArrays(const CallPtr& call, const std::vector<PushSource>& sources,
                             const std::vector<NDArray>& outputs) {
  try {
    const auto writer = std::make_shared<WrittenPart>(call);
    for (const NDArray& output : outputs) output.storage()->AddWriter(writer);
    DetachSources(call, sources);
  } catch (...) {
    core_.calls.Abandon(call);
    throw;
  }
}

// Makes the call continue with copies of its sources.  Returns false if there is no memory for
// them.
bool ArrayKeeper::GoesOnWithCopies(const CallPtr& call, size_t bytes) {
  try {
    {
      std::lock_guard lock(mutex_);
      copied_.emplace_back(call, bytes);
    }
    core_.worker->calls().Detach(call);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Makes the call continue with copies of its sources.  Without memory for copies, the caller waits
// until the servers have accepted the sources.  No later change of them is then sent.
void ArrayKeeper::Copy(const CallPtr& call, size_t bytes) {
  if (GoesOnWithCopies(call, bytes)) return;
  try {
    core_.calls.Timed(WaitCause::kAccepted,
                      [&] { call->WaitAccepted(core_.calls.LongestWait(core_.options.patience)); });
  } catch (const std::bad_alloc&) {
    // The push may count, and its caller has an error: nothing may follow.
    core_.worker->calls().BreakForLack();
    throw;
  } catch (...) {
    core_.worker->calls().Abandon(call);
    throw;
  }
}

// Forgets the copies that servers have accepted.  Returns the bytes of the others.
size_t ArrayKeeper::ForgetAcceptedCopies() {
  std::lock_guard lock(mutex_);
  std::erase_if(copied_, [](const auto& copied) { return copied.first->accepted(); });
  size_t bytes = 0;
  for (const auto& copied : copied_) bytes += copied.second;
  return bytes;
}

}  // namespace tkv
