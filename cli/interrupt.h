// Lets SIGINT and SIGTERM end a program that waits inside the library.

#pragma once

#include <functional>

namespace tkv::cli {

// Catches SIGINT and SIGTERM from now on, so that they do not end the process.  The returned
// function is a StoreOptions::interrupt: it throws kCancelled after a signal.
std::function<void()> InterruptBySignal();
// Returns the caught signal, or 0 if there was none.
int SignalThatCame();

}  // namespace tkv::cli
