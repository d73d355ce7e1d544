// Passes events of the library's own threads to Java: log lines, and ends of calls.  The threads
// are not attached to the virtual machine.  Events therefore wait in one queue for a Java thread,
// each with the number of its listener.
//
// Thread-safe.

#pragma once

#include <jni.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "tkv/tkv.h"

namespace adapter {

inline constexpr jint kLast = -1;  // the level of a listener's last event

// An event for a listener.  Its last event is allocated first and is the context of the callbacks.
// The end can thus be reported even without free memory.
struct Event {
  jlong listener = 0;
  jint level = kLast;  // of a log line: 0 debug to 3 error
  std::string text = {};
  Event* last = nullptr;  // of a log line: its listener's last event
  Event* next = nullptr;
  // Only in a last event, guarded by the queue's mutex: the number of waiting lines, and of lines
  // lost since the last line that was queued.
  size_t waiting = 0;
  uint64_t lost = 0;
};

class EventQueue {
 public:
  void PutLast(Event* last) {
    const std::lock_guard lock(mutex_);
    Append(last);
  }

  // Queues a line for the listener of `last`.  A line without room is counted as lost.  The next
  // queued line mentions the number.
  void PutLine(Event* last, jint level, const char* text) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      if (last->waiting == kLinesMax) throw std::bad_alloc();
      std::string line(text);
      if (last->lost > 0)
        line += " (" + std::to_string(last->lost) + " lines before this were lost)";
      Append(new Event{last->listener, level, std::move(line), last});
      ++last->waiting;
      last->lost = 0;
    } catch (const std::bad_alloc&) {
      ++last->lost;
    }
  }

  // Removes the oldest event and returns it; the caller owns it.  Returns null after `patience`.
  Event* Take(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [this] { return first_ != nullptr; })) return nullptr;
    Event* const event = first_;
    first_ = event->next;
    if (first_ == nullptr) end_ = &first_;
    if (event->level != kLast) --event->last->waiting;  // the last event follows all of its lines
    return event;
  }

 private:
  static constexpr size_t kLinesMax = 1024;  // per listener

  void Append(Event* event) {
    *end_ = event;
    end_ = &event->next;
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by the mutex.
  Event* first_ = nullptr;
  Event** end_ = &first_;
};

// Never destroyed, because a Java thread may still wait here when the process ends.
inline EventQueue& events = *new EventQueue;

inline void Log(void* last, int32_t level, const char* text) {
  events.PutLine(static_cast<Event*>(last), level, text);
}
inline void End(void* last) { events.PutLast(static_cast<Event*>(last)); }

}  // namespace adapter

// ---- native methods, under their names in Java

inline tkv_log log_function() { return adapter::Log; }
inline tkv_free end_function() { return adapter::End; }

// Creates the context of a listener.  If the library refuses it, Java calls event_end instead of
// the library.
inline void* event_last(jlong listener) { return new (std::nothrow) adapter::Event{listener}; }
inline void event_end(void* last) { adapter::End(last); }

inline void* event_take(jlong patience_ms) {
  return adapter::events.Take(std::chrono::milliseconds(patience_ms));
}
inline jlong event_listener(void* event) { return static_cast<adapter::Event*>(event)->listener; }
inline jint event_level(void* event) { return static_cast<adapter::Event*>(event)->level; }
inline const char* event_text(void* event) {
  return static_cast<adapter::Event*>(event)->text.c_str();
}
// Returns the number of lost lines in a last event, which no longer changes.
inline jlong event_lost(void* event) {
  return static_cast<jlong>(static_cast<adapter::Event*>(event)->lost);
}
inline void event_release(void* event) { delete static_cast<adapter::Event*>(event); }
