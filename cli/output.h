// What the processes of a job say, on its way to the launcher's stdout and stderr.
//
// A thread of its own writes, so that a terminal or pipe that takes nothing holds up no other work
// of the launcher.  Texts come out in the order in which they were put, whichever file they are
// for.

#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

namespace tkv::cli {

class Output {
 public:
  // Bytes of one process that wait to be written.
  using Waiting = std::shared_ptr<std::atomic<size_t>>;

  Output();
  ~Output();  // waits for what is unwritten, at most a second
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Never blocks.  `waiting`, where there is one, is larger by the size of the text until it is
  // written.
  void Put(int file, std::string text, const Waiting& waiting = nullptr);
  // Can be read when something has been written since Written was called last.
  int file() const;
  void Written() const;
  // True when nothing waits any more.
  //   blocks  at most so long
  bool WaitUntilWritten(std::chrono::milliseconds longest);
  // The errno of the first text that could not be written, once; else 0.
  int TakeFailure();

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's too, which may outlive this object
};

}  // namespace tkv::cli
