#include "wire/frame.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tkv {
namespace {

// The limits of one message type.
struct Rule {
  bool known = false;
  uint8_t flags = 0;       // permitted bits
  uint32_t extra_max = 0;  // bytes
  bool may_have_body = false;
  bool may_be_encoded = false;
};

constexpr uint32_t kTextMax = 64 << 10;
constexpr uint32_t kSpecMax = (64 << 10) + (4 << 10);
constexpr uint32_t kStateMax = kSpecMax + 64 + sizeof(PushStep);
constexpr uint32_t kMetaMax = kSpecMax + 2048;
constexpr uint32_t kEpochMax = 16 << 20;

constexpr Rule RuleOf(Type type) {
  switch (type) {
    case Type::kHello:
      return {true, 0, 2048, false};
    case Type::kInit:
      return {true, kOverwrite, kMetaMax, true};
    case Type::kDescribe:
      return {true, kNoWait | kWithRule | kMayMake, 2048, false};
    case Type::kStatus:
      return {true, kInStep, 0, false};
    case Type::kPush:
      return {
          true,
          kBarrierKey | kHasScalars | kOfBirth | kFails | kBegins | kInStep | kUnlessDone | kDone,
          2048, true, true};
    case Type::kPull:
      return {true, kNoBody | kOfBirth | kCut | kOfCut | kAnyway, sizeof(RowRange), true};
    case Type::kCancel:
      return {true, 0, 0, false};
    case Type::kControl:
      return {true, kOnlyListed, kSpecMax, true};
    case Type::kCommit:
      return {true, 0, 0, false};
    case Type::kWithdraw:
      return {true, 0, 0, false};
    case Type::kAbstain:
      return {true, kOfBirth, 0, false};
    case Type::kDelete:
      return {true, kOfBirth, 0, false};
    case Type::kEpoch:
      return {true, 0, kEpochMax, false};
    case Type::kGoodbye:
      return {true, 0, 0, false};
    case Type::kPing:
      return {true, 0, 0, false};
    case Type::kClose:
      return {true, 0, 0, false};
    case Type::kRelease:
      return {true, 0, 0, false};
    case Type::kTrace:
      return {true, kRecord | kForget, 0, false};
    case Type::kList:
      return {true, 0, 0, false};
    case Type::kRestore:
      return {true, kMore | kOnlyRows | kOnlyValue | kInStep, kStateMax, true};
    case Type::kWelcome:
      return {true, 0, 256, false};
    case Type::kOk:
      return {true, 0, kTextMax, false};
    case Type::kExists:
      return {true, 0, kMetaMax, false};
    case Type::kMeta:
      return {true, 0, kMetaMax, false};
    case Type::kStatusReply:
      return {true, 0, kTextMax, false};
    case Type::kAccepted:
      return {true, 0, 0, false};
    case Type::kValue:
      return {true, kNoBody, kStateMax, true};
    case Type::kPong:
      return {true, 0, 0, false};
    case Type::kError:
      return {true, 0, kTextMax, false};
    case Type::kTraced:
      return {true, 0, kTracedBytesMax, false};
    case Type::kListed:
      return {true, 0, kListedBytesMax, false};
    default:
      return {};
  }
}

size_t SizeOf(const Message& message) {
  return sizeof(FrameEntry) + message.extra.size() + message.body.size;
}

void DecodeEntry(const FrameEntry& entry, Message* decoded) {
  const auto type = static_cast<Type>(entry.type);
  const Rule rule = RuleOf(type);
  if (!rule.known) {
    const char* name = Name(type);
    throw Fail(Code::kInvalidArgument, "{} {} is not in this version",
               name[0] == '?' ? "message type" : name, entry.type);
  }
  const char* const name = Name(type);
  if ((entry.flags & ~rule.flags) != 0) {
    throw Fail(Code::kInvalidArgument, "{} with flags {}", name, entry.flags);
  }
  if (entry.dtype > static_cast<uint8_t>(kLastDType)) {
    throw Fail(Code::kInvalidArgument, "{} with dtype {}", name, entry.dtype);
  }
  // An unknown encoding is no error here: the operation refuses it, so that the session stays open.
  if (!rule.may_be_encoded && (entry.encoding != 0 || entry.param != 0)) {
    throw Fail(Code::kInvalidArgument, "{} with encoding {}, {}", name, entry.encoding,
               entry.param);
  }
  if (entry.extra_bytes > rule.extra_max) {
    throw Fail(Code::kInvalidArgument, "{} with {} bytes of metadata, at most {} are allowed", name,
               entry.extra_bytes, rule.extra_max);
  }
  if (entry.body_bytes != 0 && !rule.may_have_body) {
    throw Fail(Code::kInvalidArgument, "{} with a body of {} bytes", name, entry.body_bytes);
  }
  Message& message = *decoded;
  message.type = type;
  message.flags = entry.flags;
  message.dtype = static_cast<DType>(entry.dtype);
  message.encoding = static_cast<Encoding>(entry.encoding);
  message.param = entry.param;
  message.chunk = entry.chunk;
  message.key = {entry.key_low, entry.key_high};
  message.number = entry.number;
  message.seq = entry.seq;
  message.need = entry.need;
  message.body.size = entry.body_bytes;
}

}  // namespace

bool FrameBuilder::Fits(const Message& message) const {
  if (count_ == 0) return true;
  const size_t bytes = entries_.size() - sizeof(FrameHeader) + extras_.size() + body_bytes_;
  return SizeOf(message) < kCoalesceBelowBytes && bytes < kCoalesceBelowBytes * 15 &&
         bytes + SizeOf(message) <= kFrameBytesMax;
}

void FrameBuilder::Add(Message&& message) {
  if (count_ == 0) entries_.resize(sizeof(FrameHeader));
  const FrameEntry entry{static_cast<uint8_t>(message.type),
                         message.flags,
                         static_cast<uint8_t>(message.dtype),
                         static_cast<uint8_t>(message.encoding),
                         message.chunk,
                         message.key.low,
                         message.key.high,
                         message.number,
                         message.seq,
                         message.need,
                         message.body.size,
                         static_cast<uint32_t>(message.extra.size()),
                         message.param};
  entries_.append(reinterpret_cast<const char*>(&entry), sizeof(entry));
  extras_ += message.extra;
  body_bytes_ += message.body.size;
  if (message.body.size > 0) bodies_.push_back(std::move(message.body));
  ++count_;
}

Frame FrameBuilder::Finish(uint64_t epoch, uint64_t low) {
  FrameHeader header;
  header.epoch = epoch;
  header.low = low;
  header.entry_count = static_cast<uint32_t>(count_);
  header.meta_bytes = static_cast<uint32_t>(count_ * sizeof(FrameEntry) + extras_.size());
  header.body_bytes = body_bytes_;
  Frame frame;
  frame.head.reserve(sizeof(header) + header.meta_bytes);
  frame.head = entries_;
  frame.head += extras_;
  std::memcpy(frame.head.data(), &header, sizeof(header));
  Seal(&frame.head);
  frame.body_bytes = body_bytes_;
  frame.bodies.assign(std::make_move_iterator(bodies_.begin()),
                      std::make_move_iterator(bodies_.end()));
  entries_.clear();
  if (extras_.capacity() < kCoalesceBelowBytes) {
    extras_.clear();
  } else {
    extras_ = std::string();  // the head has a builder per process, and an EPOCH is large
  }
  bodies_.clear();
  count_ = body_bytes_ = 0;
  return frame;
}

void DecodeMessages(const FrameHeader& header, std::span<const std::byte> head,
                    std::vector<Message>* messages) {
  if (head.size() != sizeof(FrameHeader) + header.meta_bytes) {
    throw Fail(Code::kInvalidArgument, "frame: a head of {} bytes, the header says {}", head.size(),
               sizeof(FrameHeader) + header.meta_bytes);
  }
  if (CheckOfHead(head) != header.check)
    throw Fail(Code::kDataLoss, "frame: the check does not match");
  const std::byte* entries = head.data() + sizeof(FrameHeader);
  size_t extra_at = sizeof(FrameHeader) + header.entry_count * sizeof(FrameEntry);
  uint64_t body_left = header.body_bytes;
  messages->reserve(messages->size() + header.entry_count);
  for (uint32_t i = 0; i < header.entry_count; ++i) {
    FrameEntry entry;
    std::memcpy(&entry, entries + i * sizeof(entry), sizeof(entry));
    Message& message = messages->emplace_back();
    DecodeEntry(entry, &message);
    if (entry.extra_bytes > head.size() - extra_at || entry.body_bytes > body_left) {
      throw Fail(Code::kInvalidArgument, "frame: {} is longer than its frame", Name(message.type));
    }
    if (entry.extra_bytes > 0) {
      message.extra.assign(reinterpret_cast<const char*>(head.data()) + extra_at,
                           entry.extra_bytes);
    }
    extra_at += entry.extra_bytes;
    body_left -= entry.body_bytes;
  }
  if (extra_at != head.size() || body_left != 0) {
    throw Fail(Code::kInvalidArgument, "frame: {} bytes belong to no operation",
               head.size() - extra_at + body_left);
  }
}

}  // namespace tkv
