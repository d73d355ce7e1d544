#include "child.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "agent.h"
#include "system.h"

namespace tkv::cli {
namespace {

constexpr size_t kLineBytesMax = size_t{1} << 18;  // a longer line is passed on in pieces
constexpr int kOrderBytesMax = 1 << 20;

}  // namespace

Child::~Child() {
  if (is_running_) Kill();
  if (log_ != nullptr) std::fclose(log_);
  for (const int file : {process_.input, process_.output}) {
    if (file >= 0) close(file);
  }
}

void Child::Start(SpawnOptions options) {
  options.has_input = seat_.is_far();
  const Spawned process = Spawn(std::move(options));
  fcntl(process.output, F_SETFL, O_NONBLOCK);
  if (process.input >= 0) {
    fcntl(process.input, F_SETFL, O_NONBLOCK);
    fcntl(process.input, F_SETPIPE_SZ, kOrderBytesMax);
  }
  const Spawned old = std::exchange(process_, process);
  for (const int file : {old.input, old.output}) {
    if (file >= 0) close(file);
  }
  is_running_ = true;
  before.clear();
  started_ = std::chrono::steady_clock::now();
}

bool Child::HasEnded(int* status) {
  if (!is_running_ || waitpid(pid(), status, WNOHANG) != pid()) return false;
  is_running_ = false;
  Kill();  // the processes that the child started and that still run
  return true;
}

std::vector<std::string> Child::TakeLines(bool* is_more) {
  *is_more = false;
  std::vector<std::string> lines;
  if (process_.output < 0) return lines;
  char bytes[65536];
  const ssize_t got = read(process_.output, bytes, sizeof(bytes));
  if (got < 0) return lines;
  *is_more = got > 0;
  line_.append(bytes, static_cast<size_t>(got));
  size_t begin = 0;
  for (size_t end = 0; (end = line_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(line_.substr(begin, end + 1 - begin));
  }
  line_.erase(0, begin);
  const bool is_last = got == 0 && !line_.empty();
  if (is_last || line_.size() > kLineBytesMax) lines.push_back(std::exchange(line_, {}) + "\n");
  if (got == 0) close(std::exchange(process_.output, -1));
  return lines;
}

bool Child::Tell(const std::string& items) const {
  return write(process_.input, items.data(), items.size()) == static_cast<ssize_t>(items.size());
}

void Child::Signal(int signal) const {
  if (seat_.is_far()) Tell(AgentItem("signal", std::to_string(signal)));
  const bool agent_does_it = seat_.is_far() && seat_.is_greeted && signal != SIGKILL;
  if (!agent_does_it) kill(-pid(), signal);  // without a connection the agent ends its process
}

void Child::Kill() const { kill(-pid(), SIGKILL); }

void Child::OpenLog(const std::string& folder, bool append) {
  const std::string path =
      folder + "/" + Name(seat_.role) + "-" + std::to_string(seat_.rank) + ".log";
  log_ = std::fopen(path.c_str(), append ? "ae" : "we");
  if (log_ == nullptr) Die(path);
}

bool Child::Log(const std::string& text) {
  if (log_ == nullptr) return true;
  std::fwrite(text.data(), 1, text.size(), log_);
  if (std::fflush(log_) == 0) return true;
  std::fclose(std::exchange(log_, nullptr));
  return false;
}

}  // namespace tkv::cli
