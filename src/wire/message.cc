#include "wire/message.h"

#include <algorithm>

#include "base/byte_io.h"
#include "wire/effects.h"

namespace tkv {
namespace {

constexpr size_t kJobBytesMax = 256;
constexpr size_t kParamsMax = 128;

template <typename T>
T ReadEnum(ByteReader* reader, T last, const char* what) {
  const auto value = reader->Number<uint8_t>();
  if (value > static_cast<uint8_t>(last)) {
    throw Fail(Code::kInvalidArgument, "there is no {} {}", what, value);
  }
  return static_cast<T>(value);
}

bool ReadBool(ByteReader* reader) {
  const auto value = reader->Number<uint8_t>();
  if (value > 1) throw Fail(Code::kInvalidArgument, "{} is not a truth value", value);
  return value == 1;
}

Rank ReadRank(ByteReader* reader) {
  const auto rank = reader->Number<int32_t>();
  if (rank < kNoRank || rank >= kWorkersMax) {
    throw Fail(Code::kInvalidArgument, "there is no rank {}", rank);
  }
  return rank;
}

DType ReadDType(ByteReader* reader) { return ReadEnum(reader, DType::kBool, "dtype"); }

}  // namespace

const char* Name(Type type) noexcept {
  switch (type) {
    case Type::kHello:
      return "HELLO";
    case Type::kInit:
      return "INIT";
    case Type::kDescribe:
      return "DESCRIBE";
    case Type::kStatus:
      return "STATUS";
    case Type::kPush:
      return "PUSH";
    case Type::kPull:
      return "PULL";
    case Type::kCancel:
      return "CANCEL";
    case Type::kControl:
      return "CONTROL";
    case Type::kCommit:
      return "COMMIT";
    case Type::kAbstain:
      return "ABSTAIN";
    case Type::kDelete:
      return "DELETE";
    case Type::kEpoch:
      return "EPOCH";
    case Type::kGoodbye:
      return "GOODBYE";
    case Type::kPing:
      return "PING";
    case Type::kWithdraw:
      return "WITHDRAW";
    case Type::kClose:
      return "CLOSE";
    case Type::kWelcome:
      return "WELCOME";
    case Type::kOk:
      return "OK";
    case Type::kExists:
      return "EXISTS";
    case Type::kMeta:
      return "META";
    case Type::kStatusReply:
      return "STATUS_REPLY";
    case Type::kAccepted:
      return "ACCEPTED";
    case Type::kValue:
      return "VALUE";
    case Type::kPong:
      return "PONG";
    case Type::kError:
      return "ERROR";
    case Type::kStage:
      return "STAGE";
    case Type::kManifest:
      return "MANIFEST";
    case Type::kReplicate:
      return "REPLICATE";
    case Type::kSnapshot:
      return "SNAPSHOT";
    case Type::kRestore:
      return "RESTORE";
    case Type::kRows:
      return "ROWS";
  }
  return "?";
}

std::string NameOf(Encoding encoding) {
  constexpr std::array kNames = {"dense", "f16",  "bf16",  "int8", "2bit",
                                 "1bit",  "runs", "top-k", "rows"};
  const auto number = static_cast<size_t>(encoding);
  return number < kNames.size() ? kNames[number] : Format("{}", number);
}

bool IsReply(Type type) noexcept { return type >= Type::kWelcome && type <= Type::kError; }

bool IsMutating(Type type) noexcept {
  switch (type) {
    case Type::kPush:
    case Type::kInit:
    case Type::kControl:
    case Type::kWithdraw:
    case Type::kAbstain:
    case Type::kDelete:
    case Type::kClose:
      return true;
    default:
      return false;
  }
}

Message Reply(const Message& request, Type type, uint64_t number) {
  Message reply;
  reply.type = type;
  reply.dtype = request.dtype;
  reply.chunk = request.chunk;
  reply.key = request.key;
  reply.number = number;
  reply.seq = request.seq;
  return reply;
}

Message ErrorReply(uint64_t seq, Code code, std::string text) {
  Message reply;
  reply.type = Type::kError;
  reply.number = static_cast<uint64_t>(code);
  reply.seq = seq;
  reply.extra = std::move(text);
  return reply;
}

Error ErrorOf(const Message& message) {
  constexpr auto kLast = static_cast<uint64_t>(Code::kUnauthenticated);
  const bool known = message.number <= kLast &&
                     std::string_view(Name(static_cast<Code>(message.number))) != "Unknown";
  return {known ? static_cast<Code>(message.number) : Code::kInternal, message.extra};
}

std::string ToString(const Peer& peer) {
  return peer.kind == Peer::Kind::kHead ? "the head" : Format("server {}", peer.index);
}

// ---- KeyMeta ------------------------------------------------------------------------------------

uint32_t KeyMeta::chunk_count() const {
  const uint64_t count = (elements() + chunk_elements - 1) / chunk_elements;
  return static_cast<uint32_t>(std::max<uint64_t>(count, 1));  // an empty tensor has one chunk
}

uint64_t KeyMeta::elements_of(uint32_t chunk) const {
  const uint64_t begin = uint64_t{chunk} * chunk_elements;
  return std::min<uint64_t>(chunk_elements, elements() - std::min(begin, elements()));
}

const char* Name(Layout layout) noexcept {
  switch (layout) {
    case Layout::kDense:
      return "dense";
    case Layout::kWhole:
      return "whole";
    case Layout::kRows:
      return "rows";
  }
  return "?";
}

// name, birth, dtype, rank, dims, chunk elements, mode, staleness, deterministic, layout, rows,
// buckets, initializer: kind, a, b, seed
std::string Encode(const KeyMeta& value) {
  ByteWriter writer;
  writer.Text(value.name);
  writer.Number(value.birth);
  writer.Number(value.dtype);
  writer.Number(static_cast<uint8_t>(value.shape.rank()));
  for (const int64_t dim : value.shape) writer.Number(dim);
  writer.Number(value.chunk_elements);
  writer.Number(value.mode);
  writer.Number(value.staleness);
  writer.Number(static_cast<uint8_t>(value.deterministic));
  writer.Number(value.layout);
  writer.Number(value.row_count);
  writer.Number(value.buckets);
  writer.Number(value.initializer.kind);
  writer.Number(value.initializer.a);
  writer.Number(value.initializer.b);
  writer.Number(value.initializer.seed);
  return writer.Take();
}

KeyMeta DecodeKeyMeta(std::string_view bytes) {
  ByteReader reader(bytes);
  KeyMeta meta;
  meta.name = reader.Text(kKeyBytesMax);
  if (!IsCanonicalKey(meta.name)) throw Fail(Code::kInvalidArgument, "not a canonical key");
  meta.birth = reader.Number<uint64_t>();
  meta.dtype = ReadDType(&reader);
  const auto rank = reader.Number<uint8_t>();
  if (rank > Shape::kRankMax) throw Fail(Code::kInvalidArgument, "a shape of rank {}", rank);
  std::array<int64_t, Shape::kRankMax> dims;
  for (uint8_t i = 0; i < rank; ++i) dims[i] = reader.Number<int64_t>();
  meta.shape = Shape(std::span<const int64_t>(dims.data(), rank));
  meta.chunk_elements = reader.Number<uint32_t>();
  if (meta.chunk_elements == 0 || meta.chunk_elements % 1024 != 0) {
    throw Fail(Code::kInvalidArgument, "chunks of {} elements, a multiple of 1024 is needed",
               meta.chunk_elements);
  }
  if (meta.elements() / meta.chunk_elements >= KeyMeta::kChunksMax) {
    throw Fail(Code::kInvalidArgument, "{} elements are too many chunks", meta.elements());
  }
  meta.mode = ReadEnum(&reader, KeyMeta::Mode::kAsync, "mode");
  meta.staleness = reader.Number<uint32_t>();
  if (meta.staleness > KeyMeta::kStalenessMax) {
    throw Fail(Code::kInvalidArgument, "a staleness of {} rounds, at most {} are allowed",
               meta.staleness, KeyMeta::kStalenessMax);
  }
  meta.deterministic = ReadBool(&reader);
  meta.layout = ReadEnum(&reader, Layout::kRows, "layout");
  meta.row_count = reader.Number<uint64_t>();
  meta.buckets = reader.Number<uint32_t>();
  meta.initializer.kind = ReadEnum(&reader, Initializer::Kind::kNormal, "initializer");
  meta.initializer.a = reader.Number<double>();
  meta.initializer.b = reader.Number<double>();
  meta.initializer.seed = reader.Number<uint64_t>();
  const bool has_rows = meta.row_count != 0 || meta.buckets != 0 ||
                        !(meta.initializer == Initializer{});  // also where a number is none
  if (has_rows && meta.layout != Layout::kRows) {
    throw Fail(Code::kInvalidArgument, "rows of a key whose layout is {}", Name(meta.layout));
  }
  reader.End();
  return meta;
}

// ---- the others ---------------------------------------------------------------------------------

namespace {

void Write(const Protocol& value, ByteWriter* writer) {
  writer->Number(value.version);
  writer->Number(value.features);
  writer->Number(value.required);
  writer->Text(value.package);
}

// Ends a HELLO or WELCOME.  One of version 1 has none, and what later versions write behind theirs
// is theirs: such a peer is refused by its version, which the sender of neither has to guess.
Protocol ReadProtocol(ByteReader* reader) {
  Protocol protocol;
  if (reader->left() == 0) {
    protocol.version = 1;
    return protocol;
  }
  protocol.version = reader->Number<uint32_t>();
  if (protocol.version < 2) {
    throw Fail(Code::kInvalidArgument, "protocol {} where later ones say theirs", protocol.version);
  }
  protocol.features = reader->Number<uint64_t>();
  protocol.required = reader->Number<uint64_t>();
  protocol.package = reader->Text(Protocol::kPackageBytesMax);
  if (protocol.version == kProtocolVersion) reader->End();
  return protocol;
}

}  // namespace

std::string Encode(const Hello& value) {
  ByteWriter writer;
  writer.Text(value.job);
  writer.Number(value.role);
  writer.Number(value.rank);
  writer.Number(value.incarnation);
  writer.Number(value.known);
  writer.Text(value.address);
  Write(value.protocol, &writer);
  return writer.Take();
}

Hello DecodeHello(std::string_view bytes) {
  ByteReader reader(bytes);
  Hello hello;
  hello.job = reader.Text(kJobBytesMax);
  hello.role = ReadEnum(&reader, Role::kServer, "role");
  hello.rank = ReadRank(&reader);
  hello.incarnation = reader.Number<uint64_t>();
  hello.known = reader.Number<uint64_t>();
  hello.address = reader.Text(kAddressBytesMax);
  hello.protocol = ReadProtocol(&reader);
  return hello;
}

std::string Encode(const Welcome& value) {
  ByteWriter writer;
  writer.Number(value.server_incarnation);
  writer.Number(static_cast<uint8_t>(value.resumed));
  writer.Number(value.credit_bytes);
  writer.Number(value.rank);
  writer.Number(value.incarnation);
  writer.Number(static_cast<uint8_t>(value.rejoined));
  Write(value.protocol, &writer);
  return writer.Take();
}

Welcome DecodeWelcome(std::string_view bytes) {
  ByteReader reader(bytes);
  Welcome welcome;
  welcome.server_incarnation = reader.Number<uint64_t>();
  welcome.resumed = ReadBool(&reader);
  welcome.credit_bytes = reader.Number<uint64_t>();
  welcome.rank = ReadRank(&reader);
  welcome.incarnation = reader.Number<uint64_t>();
  welcome.rejoined = ReadBool(&reader);
  welcome.protocol = ReadProtocol(&reader);
  return welcome;
}

std::string EncodeScalars(const std::vector<double>& scalars) {
  ByteWriter writer;
  writer.Number(static_cast<uint32_t>(scalars.size()));
  for (const double scalar : scalars) writer.Number(scalar);
  return writer.Take();
}

std::vector<double> DecodeScalars(std::string_view bytes) {
  ByteReader reader(bytes);
  const uint32_t count = reader.Count(sizeof(double));
  if (count > kParamsMax) throw Fail(Code::kInvalidArgument, "{} hyperparameters", count);
  std::vector<double> scalars(count);
  for (double& scalar : scalars) scalar = reader.Number<double>();
  reader.End();
  return scalars;
}

std::string Encode(const UpdateSpec& value) {
  ByteWriter writer;
  writer.Text(value.program);
  writer.Number(static_cast<uint8_t>(value.multi_precision));
  writer.Number(static_cast<uint32_t>(value.params.size()));
  for (const double param : value.params) writer.Number(param);
  writer.Number(static_cast<uint8_t>(value.fresh));
  return writer.Take();
}

UpdateSpec DecodeUpdateSpec(std::string_view bytes) {
  ByteReader reader(bytes);
  UpdateSpec spec;
  spec.program = reader.Text(kProgramBytesMax);
  spec.multi_precision = ReadBool(&reader);
  const uint32_t count = reader.Count(sizeof(double));
  if (count > kParamsMax) throw Fail(Code::kInvalidArgument, "{} hyperparameters", count);
  spec.params.resize(count);
  for (double& param : spec.params) param = reader.Number<double>();
  spec.fresh = ReadBool(&reader);
  reader.End();
  return spec;
}

std::string Encode(const ChunkStatus& value) {
  ByteWriter writer;
  writer.Number(value.version);
  writer.Number(value.last_arrived);
  writer.Number(static_cast<uint32_t>(value.missing.size()));
  for (const Rank rank : value.missing) writer.Number(rank);
  return writer.Take();
}

ChunkStatus DecodeChunkStatus(std::string_view bytes) {
  ByteReader reader(bytes);
  ChunkStatus status;
  status.version = reader.Number<uint64_t>();
  status.last_arrived = reader.Number<uint64_t>();
  const uint32_t count = reader.Count(sizeof(Rank));
  if (count > static_cast<uint32_t>(kWorkersMax)) {
    throw Fail(Code::kInvalidArgument, "{} ranks are missing", count);
  }
  status.missing.resize(count);
  for (Rank& rank : status.missing) rank = ReadRank(&reader);
  reader.End();
  return status;
}

// ---- Epoch --------------------------------------------------------------------------------------

const char* Name(Epoch::State state) noexcept {
  switch (state) {
    case Epoch::State::kAwaited:
      return "not yet joined";
    case Epoch::State::kAlive:
      return "alive";
    case Epoch::State::kDead:
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
  const State state = StateOf(rank);
  return state == State::kLeft || (state == State::kDead && policy != Policy::kWait);
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
    for (const Epoch::Member& member : *members) {
      writer.Number(member.incarnation);
      writer.Number(member.state);
      writer.Text(member.address);
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

// Others look a server up without asking again whether it is there.
Placement ReadPlacement(ByteReader* reader, size_t servers) {
  Placement placement;
  placement.number = reader->Number<uint64_t>();
  placement.servers = reader->Number<uint32_t>();
  placement.slots.resize(reader->Count(sizeof(uint32_t)));
  for (uint32_t& server : placement.slots) server = reader->Number<uint32_t>();
  const auto is_there = [&](uint32_t server) { return server < placement.servers; };
  const bool is_whole = placement.slots.empty() || placement.slots.size() == kSlots;
  if (placement.servers != servers || !is_whole ||
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
    for (Epoch::Member& member : *members) {
      member.incarnation = reader.Number<uint64_t>();
      member.state = ReadEnum(&reader, Epoch::State::kLeft, "state");
      member.address = reader.Text(kAddressBytesMax);
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
