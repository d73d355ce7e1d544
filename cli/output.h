// The output of a job's processes, on its way to the launcher's stdout and stderr.
//
// A separate thread writes, so that a blocked terminal or pipe never blocks the launcher.  Texts
// are written in the order of the calls of Put, for both files together.

#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

namespace tkv::cli {

class Output {
 public:
  // The number of bytes of one process that are not written yet.
  using Waiting = std::shared_ptr<std::atomic<size_t>>;

  Output();
  ~Output();  // waits for unwritten texts, at most a second
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Queues a text; never blocks.  Adds the size of the text to `waiting`, if given, and subtracts
  // it after the write.
  void Put(int file, std::string text, const Waiting& waiting = nullptr);
  // Returns a file that is readable if texts were written since the last call of Written.
  int file() const;
  void Written() const;
  // Returns true if all texts are written.
  //   blocks  at most `longest`
  bool WaitUntilWritten(std::chrono::milliseconds longest);
  // Returns the errno of the first failed write, once; else 0.
  int TakeFailure();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace tkv::cli
