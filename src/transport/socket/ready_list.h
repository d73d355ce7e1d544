// The events that the reactor of an endpoint has seen, in order.

#pragma once

#include <boost/system/error_code.hpp>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace tkv {

// An event that the reactor has seen, for the thread that polls.
struct Readiness {
  enum class Kind : uint8_t { kAccept, kRead, kWrite, kDialed };
  Kind kind;
  uint64_t number;  // of the connection or the acceptor
  boost::system::error_code error;
  uint64_t attempt = 0;  // kDialed: the attempt
};

// A queue of events and of calls of Wake.  Each wait reserves room for its event, so that the event
// needs no memory when it arrives.  Thread-safe.
class ReadyList {
 public:
  // Runs `wait`, which makes the reactor call Arrive or fails.
  //   throws  std::bad_alloc, and what `wait` throws
  template <typename Wait>
  void Expect(Wait wait) {
    AddExpected();
    try {
      wait();
    } catch (...) {
      RemoveExpected();
      throw;
    }
  }
  void Arrive(const Readiness& item) noexcept;
  //   throws  std::bad_alloc
  void Add(const Readiness& item);
  std::optional<Readiness> Take();
  // Notes a call of Wake.  Returns true if it is the first one since TakeWake.
  bool NoteWake();
  // Forgets the calls of Wake, and returns the number of events.
  size_t TakeWake();
  bool IsIdle();

 private:
  void AddExpected();
  void RemoveExpected();
  void Reserve();

  std::mutex mutex_;
  std::vector<Readiness> items_;
  size_t next_ = 0;  // the first event that has not been taken
  size_t expected_ = 0;
  bool woken_ = false;
};

}  // namespace tkv
