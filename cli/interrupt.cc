#include "interrupt.h"

#include <csignal>

#include "tkv/error.h"

namespace tkv::cli {
namespace {

volatile std::sig_atomic_t signal_that_came = 0;

}  // namespace

std::function<void()> InterruptBySignal() {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::signal(signal, [](int which) { signal_that_came = which; });
  }
  return [] {
    if (signal_that_came != 0) throw Error(Code::kCancelled, "ended by a signal");
  };
}

int SignalThatCame() { return signal_that_came; }

}  // namespace tkv::cli
