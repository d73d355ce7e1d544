#include "relay.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

namespace tkv::cli {
namespace {

constexpr std::array<Stream, 2> kStreams = {Stream::kOut, Stream::kErr};

// Returns the streams in the order in which they are read.  Messages of ssh come before the
// greeting of its agent.
std::array<Stream, 2> StreamsOf(const Child& child) {
  if (child.seat().is_greeted) return kStreams;
  return {Stream::kErr, Stream::kOut};
}

// Returns true if the launcher itself reads lines of the process.
bool HasLinesForUs(const Seat& seat) { return !seat.is_greeted || seat.is_restorer; }

}  // namespace

void Relay::AddFilesTo(std::vector<pollfd>* files, std::vector<Source>* sources) const {
  for (size_t i = 0; i < children_.size(); ++i) {
    if (children_[i]->is_held()) continue;
    for (const Stream stream : StreamsOf(*children_[i])) {
      if (children_[i]->file(stream) < 0) continue;
      files->push_back({children_[i]->file(stream), POLLIN, 0});
      sources->push_back({i, stream});
    }
  }
}

bool Relay::ReadOnce(Source source) const {
  bool is_more = true;
  PassOnOrLose(source, [&] { is_more = children_[source.index]->Read(source.stream); });
  return is_more;
}

void Relay::ReadAll(size_t index) const {
  constexpr int kReadsMax = 64;
  for (const Stream stream : StreamsOf(*children_[index])) {
    for (int i = 0; i < kReadsMax && ReadOnce({index, stream}); ++i) {
    }
  }
  children_[index]->EndLines();
  for (const Stream stream : kStreams) PassOnOrLose({index, stream}, [] {});
}

void Relay::PassOnUnfinishedLines() const {
  const auto now = std::chrono::steady_clock::now();
  for (size_t i = 0; i < children_.size(); ++i) {
    if (children_[i]->is_held()) children_[i]->Renew(now);
    for (const Stream stream : kStreams) {
      if (now >= children_[i]->due(stream)) PassOnOrLose({i, stream}, [] {});
    }
  }
}

Lines::Time Relay::due() const {
  Lines::Time first = Lines::kNever;
  for (const auto& child : children_) {
    if (!IsLive(*child)) continue;
    for (const Stream stream : kStreams) first = std::min(first, child->due(stream));
  }
  return first;
}

// Returns true if unfinished lines of the process are passed on.
bool Relay::IsLive(const Child& child) const {
  return output_.is_live() && !HasLinesForUs(child.seat());
}

// Gets text of a process and passes it on.  Without memory for the text, its first line is lost.
// The others are passed on later.
template <typename Get>
void Relay::PassOnOrLose(Source source, Get get) const {
  Child* const child = children_[source.index].get();
  try {
    get();
    PassOn(source);
  } catch (const std::bad_alloc&) {
    if (HasLinesForUs(child->seat())) throw;  // the job depends on each of them
    const bool is_noted = child->has_lost_output;
    child->LoseLines();
    if (!is_noted) NoteLostLines(child->seat());
  }
}

void Relay::PassOn(Source source) const {
  Child* const child = children_[source.index].get();
  const Seat& seat = child->seat();
  std::string text = child->Take(source.stream, IsLive(*child));
  if (HasLinesForUs(seat)) text = hooks_.take_lines_for_launcher(source.index, text);
  if (text.empty()) return;
  output_.PassOn(source.index, seat.name(), source.stream,
                 hooks_.logs_info_alone(seat) ? WithoutInfo(text) : text, child->waiting);
  if (!child->Log(source.stream, text)) {
    hooks_.note("the log of " + seat.name() + " ends here: " + std::strerror(errno));
  }
}

void Relay::NoteLostLines(const Seat& seat) const {
  try {
    hooks_.note("the launcher has no memory for output of " + seat.name() + "; some of it is lost");
  } catch (const std::bad_alloc&) {
    JobOutput::NoteLackOfMemory();
  }
}

}  // namespace tkv::cli
