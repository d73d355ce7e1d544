#include "child.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "agent.h"
#include "system.h"

namespace tkv::cli {
namespace {

constexpr int kOrderBytesMax = 1 << 20;

}  // namespace

Child::~Child() {
  if (is_running_) Kill();
  if (log_ != nullptr) std::fclose(log_);
  for (const int file : {process_.input, streams_[0].file, streams_[1].file}) {
    if (file >= 0) close(file);
  }
}

void Child::Start(SpawnOptions options, bool can_type) {
  if (seat_.is_far() || can_type) options.input = Stdin::kPipe;
  options.separates_error = true;
  const Spawned process = Spawn(std::move(options));
  for (const int file : {process.output, process.error}) fcntl(file, F_SETFL, O_NONBLOCK);
  if (process.input >= 0) fcntl(process.input, F_SETFL, O_NONBLOCK);
  if (seat_.is_far()) fcntl(process.input, F_SETPIPE_SZ, kOrderBytesMax);
  const Spawned old = std::exchange(process_, process);
  for (const int file : {old.input, streams_[0].file, streams_[1].file}) {
    if (file >= 0) close(file);
  }
  streams_ = {Source{process.output, {}}, Source{process.error, {}}};
  is_running_ = true;
  end_ = {};
  can_type_ = can_type;
  before.clear();
  started_ = std::chrono::steady_clock::now();
}

bool Child::HasEnded(int* status) {
  if (!is_running_) return false;
  const std::optional<int> ended = end_.Poll(pid());
  if (!ended) return false;
  *status = *ended;
  is_running_ = false;
  return true;
}

bool Child::is_held() const {
  size_t bytes = *waiting;
  for (const Source& stream : streams_) bytes += stream.lines.size();
  return bytes >= kHeldBytesMax || (has_lost_output && *waiting >= kUnwrittenBytesWithoutMemory);
}

bool Child::Read(Stream which) {
  Source& stream = Of(which);
  if (stream.file < 0) return false;
  char bytes[65536];
  const size_t most = has_lost_output ? Lines::kShortBytesMax : sizeof(bytes);
  const ssize_t got = read(stream.file, bytes, most);
  if (got < 0) return false;
  stream.lines.Add({bytes, static_cast<size_t>(got)}, std::chrono::steady_clock::now());
  if (got > 0) return true;
  close(std::exchange(stream.file, -1));
  stream.lines.End();
  return false;
}

void Child::EndLines() {
  for (Source& stream : streams_) stream.lines.End();
}

std::string Child::Take(Stream stream, bool is_live) {
  return Of(stream).lines.Take(is_live, std::chrono::steady_clock::now());
}

Lines::Time Child::due(Stream stream) const {
  return streams_[static_cast<size_t>(stream)].lines.due();
}

void Child::Renew(Lines::Time now) {
  for (Source& stream : streams_) stream.lines.Renew(now);
}

void Child::LoseLines() noexcept {
  has_lost_output = true;
  for (Source& stream : streams_) stream.lines.LoseLine();
}

bool Child::Tell(const std::string& items) const {
  return write(process_.input, items.data(), items.size()) == static_cast<ssize_t>(items.size());
}

void Child::Type(const std::string& text) {
  if (seat_.is_far()) {
    std::string typed = text;
    std::erase(typed, '\0');  // which ends an item
    Tell(AgentItem("type", typed));
  }
  const bool is_taken = seat_.is_far() || Tell(text);
  if (!text.empty() && is_taken) return;
  can_type_ = false;
  if (!seat_.is_far()) close(std::exchange(process_.input, -1));
}

void Child::Signal(int signal) const {
  if (seat_.is_far()) Tell(AgentItem("signal", std::to_string(signal)));
  const bool agent_does_it = seat_.is_far() && seat_.is_greeted && signal != SIGKILL;
  if (!agent_does_it)
    SignalGroup(pid(), signal);  // without a connection the agent ends its process
}

void Child::Kill() const { kill(-pid(), SIGKILL); }

void Child::OpenLog(const std::string& folder, bool append) {
  const std::string path =
      folder + "/" + Name(seat_.role) + "-" + std::to_string(seat_.rank) + ".log";
  log_ = std::fopen(path.c_str(), append ? "ae" : "we");
  if (log_ == nullptr) Die(path);
}

bool Child::Log(Stream stream, std::string_view text) {
  if (log_ == nullptr) return true;
  const std::string shown = log_page_.Shown(static_cast<int>(stream), "", text);
  std::fwrite(shown.data(), 1, shown.size(), log_);
  if (std::fflush(log_) == 0) return true;
  std::fclose(std::exchange(log_, nullptr));
  return false;
}

}  // namespace tkv::cli
