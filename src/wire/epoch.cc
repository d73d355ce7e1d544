// EPOCH: the members of the job, and the server of each slot.

#include <algorithm>

#include "base/byte_io.h"
#include "wire/checked_fields.h"
#include "wire/message.h"

namespace tkv {

const char* Name(Epoch::State state) noexcept {
  switch (state) {
    case Epoch::State::kAwaited:
      return "awaited";
    case Epoch::State::kAlive:
      return "alive";
    case Epoch::State::kDead:
    case Epoch::State::kLost:
      return "dead";
    case Epoch::State::kLeft:
      return "left";
  }
  return "?";
}

Epoch::State Epoch::StateOf(Rank rank) const {
  const bool is_there = rank >= 0 && static_cast<size_t>(rank) < workers.size();
  return is_there ? workers[static_cast<size_t>(rank)].state : State::kAwaited;
}

bool Epoch::IsMember(Rank rank) const {
  if (rank < 0 || static_cast<size_t>(rank) >= workers.size()) return false;
  if (policy != Policy::kContinue) return true;
  const State state = StateOf(rank);
  return state == State::kAlive || state == State::kAwaited;
}

bool Epoch::IsGone(Rank rank) const {
  return IsLast(rank) || (StateOf(rank) == State::kDead && policy != Policy::kWait);
}

bool Epoch::IsLast(Rank rank) const {
  const State state = StateOf(rank);
  return state == State::kLeft || state == State::kLost;
}

uint64_t Epoch::CommittedBy(Rank rank, uint64_t incarnation) const {
  for (const Commit& commit : commits) {
    if (commit.rank == rank && commit.incarnation == incarnation) return commit.generation;
  }
  return 0;
}

std::string Encode(const Epoch& value) {
  ByteWriter writer;
  writer.Number(value.policy);
  for (const auto* members : {&value.workers, &value.servers}) {
    writer.Number(static_cast<uint32_t>(members->size()));
    for (const Epoch::Seat& seat : *members) {
      writer.Number(seat.incarnation);
      writer.Number(seat.state);
      writer.Text(seat.address);
    }
  }
  writer.Number(static_cast<uint32_t>(value.commits.size()));
  for (const Epoch::Commit& commit : value.commits) {
    writer.Number(commit.rank);
    writer.Number(commit.incarnation);
    writer.Number(commit.generation);
  }
  writer.Number(value.placement.number);
  writer.Number(value.placement.servers);
  writer.Number(static_cast<uint32_t>(value.placement.slots.size()));
  for (const uint32_t server : value.placement.slots) writer.Number(server);
  return writer.Take();
}

namespace {

// Reads a placement and checks every server in it, because ServerOf does not check again.
Placement ReadPlacement(ByteReader* reader, size_t servers) {
  Placement placement;
  placement.number = reader->Number<uint64_t>();
  placement.servers = reader->Number<uint32_t>();
  placement.slots.resize(reader->Count(sizeof(uint32_t)));
  for (uint32_t& server : placement.slots) server = reader->Number<uint32_t>();
  const auto is_there = [&](uint32_t server) { return server < placement.servers; };
  const bool is_whole = placement.slots.empty() || placement.slots.size() == kSlots;
  if (servers == 0 || placement.servers != servers || !is_whole ||
      !std::all_of(placement.slots.begin(), placement.slots.end(), is_there)) {
    throw Fail(Code::kInvalidArgument,
               "a placement of {} slots on {} servers, of which {} are there",
               placement.slots.size(), placement.servers, servers);
  }
  return placement;
}

}  // namespace

Epoch DecodeEpoch(uint64_t number, std::string_view bytes) {
  ByteReader reader(bytes);
  Epoch epoch;
  epoch.number = number;
  epoch.policy = ReadEnum(&reader, Epoch::Policy::kContinue, "policy");
  for (auto* members : {&epoch.workers, &epoch.servers}) {
    const uint32_t count = reader.Count(13);
    if (count > static_cast<uint32_t>(kWorkersMax)) {
      throw Fail(Code::kInvalidArgument, "an epoch of {} members", count);
    }
    members->resize(count);
    for (Epoch::Seat& seat : *members) {
      seat.incarnation = reader.Number<uint64_t>();
      seat.state = ReadEnum(&reader, Epoch::State::kLost, "state");
      seat.address = reader.Text(kAddressBytesMax);
    }
  }
  epoch.commits.resize(reader.Count(20));
  for (Epoch::Commit& commit : epoch.commits) {
    commit.rank = ReadRank(&reader);
    commit.incarnation = reader.Number<uint64_t>();
    commit.generation = reader.Number<uint64_t>();
  }
  epoch.placement = ReadPlacement(&reader, epoch.servers.size());
  reader.End();
  return epoch;
}

}  // namespace tkv
