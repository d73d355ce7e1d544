// What the library tells on threads of its own, which Java does not know: lines of logs, and that calls have
// ended.  Events wait in one queue for a thread of Java's, each for the listener of its number.
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

// A listener has its last event from the beginning: it is the context of the callbacks, so that no end is
// lost for want of memory.
struct Event {
  jlong listener = 0;
  jint level = kLast;  // of a line: 0 debug to 3 error
  std::string text = {};
  Event* last = nullptr;  // of a line: its listener's
  Event* next = nullptr;
  // Of a last event, guarded by the queue's mutex: lines that wait, and those that have found no room since the
  // last one that has.
  size_t waiting = 0;
  uint64_t lost = 0;
};

class EventQueue {
 public:
  void PutLast(Event* last) {
    const std::lock_guard lock(mutex_);
    Append(last);
  }

  // A line for the listener whose last event this is.  One that finds no room is counted, and the next says so.
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

  // The oldest, which is the caller's then; null where none has come in so long.
  Event* Take(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [this] { return first_ != nullptr; })) return nullptr;
    Event* const event = first_;
    first_ = event->next;
    if (first_ == nullptr) end_ = &first_;
    if (event->level != kLast) --event->last->waiting;  // the last one is behind its lines
    return event;
  }

 private:
  static constexpr size_t kLinesMax = 1024;  // of one listener

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

// Never destroyed: when the process ends, a thread of Java's may still wait here.
inline EventQueue& events = *new EventQueue;

inline void Log(void* last, int32_t level, const char* text) {
  events.PutLine(static_cast<Event*>(last), level, text);
}
inline void End(void* last) { events.PutLast(static_cast<Event*>(last)); }

}  // namespace adapter

// ---- native methods, under their names in Java

inline tkv_log log_function() { return adapter::Log; }
inline tkv_free end_function() { return adapter::End; }

// The context of a listener.  Where the library does not take it, event_end comes in place of the library's end.
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
// Of a last event, which nobody changes any more: lines that the listener has not been told of.
inline jlong event_lost(void* event) {
  return static_cast<jlong>(static_cast<adapter::Event*>(event)->lost);
}
inline void event_release(void* event) { delete static_cast<adapter::Event*>(event); }
