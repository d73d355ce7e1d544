// A program that waits inside the library, and ends when it is told to.

#pragma once

#include <functional>

namespace tkv::cli {

// From now on SIGINT and SIGTERM do not end the process: what this returns, a StoreOptions::interrupt,
// throws kCancelled once one has come.
std::function<void()> InterruptBySignal();
// The signal that has come; 0: none.
int SignalThatCame();

}  // namespace tkv::cli
