#include "wire/message.h"

#include <array>

#include "base/byte_io.h"
#include "base/format.h"
#include "wire/effects.h"

namespace tkv {

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
    case Type::kRelease:
      return "RELEASE";
    case Type::kTrace:
      return "TRACE";
    case Type::kList:
      return "LIST";
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
    case Type::kTraced:
      return "TRACED";
    case Type::kListed:
      return "LISTED";
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
                                 "1bit",  "runs", "top-k", "rows", "f32"};
  const auto number = static_cast<size_t>(encoding);
  return number < kNames.size() ? kNames[number] : Format("{}", number);
}

bool IsReply(Type type) noexcept { return type >= Type::kWelcome && type <= Type::kListed; }

bool IsMutating(Type type) noexcept {
  switch (type) {
    case Type::kPush:
    case Type::kInit:
    case Type::kControl:
    case Type::kWithdraw:
    case Type::kAbstain:
    case Type::kDelete:
    case Type::kClose:
    case Type::kRestore:
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

namespace {

Code CodeOf(uint64_t number) {
  constexpr auto kLast = static_cast<uint64_t>(Code::kUnauthenticated);
  const bool known =
      number <= kLast && std::string_view(Name(static_cast<Code>(number))) != "Unknown";
  return known ? static_cast<Code>(number) : Code::kInternal;
}

}  // namespace

Error ErrorOf(const Message& message) { return {CodeOf(message.number), message.extra}; }

std::string EncodeFailure(const Error& failure) {
  ByteWriter writer;
  writer.Number(static_cast<uint32_t>(failure.code()));
  writer.Text(std::string_view(failure.what()).substr(0, kFailureBytesMax));
  return writer.Take();
}

Error DecodeFailure(std::string_view bytes) {
  ByteReader reader(bytes);
  const Code code = CodeOf(reader.Number<uint32_t>());
  std::string text(reader.Text(kFailureBytesMax));
  reader.End();
  return {code, text};
}

std::string ToString(const Peer& peer) {
  return peer.kind == Peer::Kind::kHead ? "the head" : Format("server {}", peer.index);
}

}  // namespace tkv
