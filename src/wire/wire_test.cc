#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/byte_io.h"
#include "tests/arrays.h"
#include "tests/payload.h"
#include "wire/frame.h"
#include "wire/value_check.h"

namespace tkv {
namespace {

using test::ReadPayload;

KeyMeta MetaOf(const std::string& name) {
  KeyMeta meta;
  meta.name = name;
  meta.birth = 7;
  meta.dtype = DType::kF32;
  meta.shape = Shape({3, 5});
  meta.chunk_elements = 1024;
  meta.staleness = 2;
  meta.deterministic = true;
  return meta;
}

Epoch SomeEpoch() {
  Epoch epoch;
  epoch.number = 9;
  epoch.policy = Epoch::Policy::kContinue;
  epoch.workers = {{4, Epoch::State::kAlive}, {5, Epoch::State::kDead}};
  epoch.servers = {{6, Epoch::State::kAlive}};
  epoch.commits = {{0, 4, 3}};
  epoch.placement = {7, 1, {}};
  return epoch;
}

constexpr size_t kProtocolBytes = 4 + 8 + 8 + 4;  // a Protocol without a package

// Returns one message of each type, with its payload.
std::vector<Message> EveryMessage() {
  const std::string name = CanonicalKey(1, "w3");
  std::vector<Message> messages;
  const auto add = [&](Type type, std::string extra = {}, size_t body = 0) {
    static const std::vector<std::byte> bytes(256, std::byte{0x5A});
    Message message;
    message.type = type;
    message.dtype = DType::kF32;
    if (type == Type::kPush) {
      message.encoding = Encoding::k2Bit;
      message.param = 0x3F000000;
    }
    message.key = IdOf(name);
    message.chunk = 2;
    message.number = 11;
    message.seq = 12;
    message.need = 3;
    message.extra = std::move(extra);
    if (body > 0) message.body = {bytes.data(), body, nullptr};
    messages.push_back(std::move(message));
  };
  add(Type::kHello, Encode(Hello{"job", Role::kWorker, 1, 5, 6, "tcp:10.0.0.1:7"}));
  add(Type::kInit, Encode(MetaOf(name)), 60);
  add(Type::kDescribe);
  add(Type::kStatus);
  add(Type::kPush, EncodeScalars({0.1, 0.2}), 60);
  add(Type::kPull);
  add(Type::kCancel);
  add(Type::kControl, Encode(UpdateSpec{"program", true, {0.5}}), 48);
  add(Type::kCommit);
  add(Type::kWithdraw);
  add(Type::kAbstain);
  add(Type::kDelete);
  add(Type::kEpoch, Encode(SomeEpoch()));
  add(Type::kGoodbye);
  add(Type::kPing);
  add(Type::kWelcome, Encode(Welcome{1, true, 100, 2, 3, true}));
  add(Type::kOk, Encode(ChunkStatus{5, 6, {1, 2}}));
  add(Type::kExists, Encode(MetaOf(name)));
  add(Type::kMeta, Encode(MetaOf(name)));
  add(Type::kStatusReply, Encode(ChunkStatus{5, 6, {1, 2}}));
  add(Type::kAccepted);
  add(Type::kValue, {}, 60);
  add(Type::kPong);
  add(Type::kError, "what was wrong");
  return messages;
}

std::string HeadOf(const std::vector<Message>& messages) {
  FrameBuilder builder;
  for (const Message& message : messages) builder.Add(Message(message));
  return builder.Finish(4, 8).head;
}

std::vector<Message> Decode(const std::string& head, const FrameLimits& limits = {}) {
  const auto bytes = std::as_bytes(std::span(head));
  std::vector<Message> messages;
  DecodeMessages(DecodeHeader(bytes, limits), bytes, &messages);
  return messages;
}

TEST(ValueCheck, IsOfTheBytesHoweverTheyPass) {
  std::vector<std::byte> bytes(100'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i % 253);
  const uint64_t truth = XXH3_64bits(bytes.data(), bytes.size());
  ValueCheck check;
  for (int i = 0; i < 2; ++i) {
    for (size_t at = 0; at < bytes.size();) {
      const size_t part = std::min(bytes.size() - at, at % 777 + 1);
      check.Add(bytes.data() + at, part);
      at += part;
    }
    EXPECT_EQ(check.value(), truth);
    check.Restart();
  }
}

TEST(Frame, EveryMessageComesBackAsItWas) {
  const std::vector<Message> sent = EveryMessage();
  const std::vector<Message> got = Decode(HeadOf(sent));
  ASSERT_EQ(got.size(), sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(got[i].type, sent[i].type);
    EXPECT_EQ(got[i].key, sent[i].key);
    EXPECT_EQ(got[i].chunk, sent[i].chunk);
    EXPECT_EQ(got[i].number, sent[i].number);
    EXPECT_EQ(got[i].seq, sent[i].seq);
    EXPECT_EQ(got[i].need, sent[i].need);
    EXPECT_EQ(got[i].encoding, sent[i].encoding);
    EXPECT_EQ(got[i].param, sent[i].param);
    EXPECT_EQ(got[i].extra, sent[i].extra);
    EXPECT_EQ(got[i].body.size, sent[i].body.size);
    EXPECT_NO_THROW(ReadPayload(got[i])) << Name(got[i].type);
  }
}

TEST(Frame, CutAtAnyByteIsAnError) {
  for (const Message& message : EveryMessage()) {
    const std::string head = HeadOf({message});
    for (size_t size = 0; size < head.size(); ++size) {
      EXPECT_THROW(Decode(head.substr(0, size)), Error) << Name(message.type) << " at " << size;
    }
  }
}

TEST(Frame, AnyFlippedBitIsFoundByTheCheck) {
  for (const Message& message : EveryMessage()) {
    const std::string head = HeadOf({message});
    for (size_t bit = 0; bit < head.size() * 8; ++bit) {
      std::string wrong = head;
      wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_THROW(Decode(wrong), Error) << Name(message.type) << " bit " << bit;
    }
  }
}

// A hostile peer computes a valid check for its changed bytes.
TEST(Frame, FlippedBitsUnderARightCheckAreDecodedOrRefused) {
  size_t decoded = 0;
  for (const Message& message : EveryMessage()) {
    const std::string head = HeadOf({message});
    for (size_t bit = 0; bit < head.size() * 8; ++bit) {
      std::string wrong = head;
      wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ (1 << (bit % 8)));
      Seal(&wrong);
      try {
        for (const Message& got : Decode(wrong)) ReadPayload(got);
        ++decoded;
      } catch (const Error&) {
      }
    }
  }
  EXPECT_GT(decoded, 0U);
}

TEST(Frame, CutPayloadsAreErrors) {
  for (const Message& message : EveryMessage()) {
    if (message.type == Type::kError) continue;
    const bool has_protocol = message.type == Type::kHello || message.type == Type::kWelcome;
    for (size_t size = 0; size < message.extra.size(); ++size) {
      Message cut = message;
      cut.extra.resize(size);
      if (has_protocol && size + kProtocolBytes == message.extra.size()) continue;  // version 1
      EXPECT_THROW(ReadPayload(cut), Error) << Name(message.type) << " at " << size;
    }
  }
}

TEST(Frame, ReservedTypesAreRefused) {
  for (const Type type : {Type::kStage, Type::kManifest, Type::kReplicate, Type::kSnapshot,
                          Type::kRows, static_cast<Type>(200)}) {
    Message message;
    message.type = type;
    EXPECT_FAILS(Code::kInvalidArgument, Decode(HeadOf({message})));
  }
}

TEST(Frame, AnUnprovedPeerGetsFourKilobytesAndNoBody) {
  Message small;
  small.type = Type::kHello;
  small.extra = Encode(Hello{});
  EXPECT_NO_THROW(Decode(HeadOf({small}), FrameLimits::Unproved()));
  std::vector<Message> many(64, small);
  EXPECT_FAILS(Code::kInvalidArgument, Decode(HeadOf(many), FrameLimits::Unproved()));
  Message push = EveryMessage()[4];
  EXPECT_FAILS(Code::kInvalidArgument, Decode(HeadOf({push}), FrameLimits::Unproved()));
}

TEST(Frame, HugeLengthsTakeNoMemory) {
  std::string head = HeadOf({EveryMessage()[4]});
  const uint64_t huge = uint64_t{1} << 60;
  for (const size_t offset : {offsetof(FrameHeader, body_bytes),
                              sizeof(FrameHeader) + offsetof(FrameEntry, body_bytes)}) {
    std::string wrong = head;
    std::memcpy(wrong.data() + offset, &huge, sizeof(huge));
    Seal(&wrong);
    EXPECT_FAILS(Code::kInvalidArgument, Decode(wrong));
  }
  ByteWriter writer;
  writer.Number(UINT32_MAX);
  EXPECT_FAILS(Code::kInvalidArgument, DecodeScalars(writer.Take()));
}

TEST(Payload, TheStepOfAPushStandsBeforeItsHyperparameters) {
  const std::string bytes = Encode(PushStep{7, 3}) + EncodeScalars({0.5, 2.0});
  std::string_view rest = bytes;
  EXPECT_EQ(TakeStep(&rest), (PushStep{7, 3}));
  EXPECT_EQ(DecodeScalars(rest), (std::vector<double>{0.5, 2.0}));
  for (size_t size = 0; size < sizeof(PushStep); ++size) {
    std::string_view cut = std::string_view(bytes).substr(0, size);
    EXPECT_FAILS(Code::kInvalidArgument, TakeStep(&cut));
  }
}

TEST(Payload, AStatusMayEndWithAStepOrWithTheFiguresOfABucket) {
  ChunkStatus status{5, 6, {1, 2}};
  EXPECT_FALSE(DecodeChunkStatus(Encode(status)).step);
  status.step = PushStep{7, 3};
  const ChunkStatus found = DecodeChunkStatus(Encode(status));
  EXPECT_EQ(found.step, status.step);
  EXPECT_FALSE(found.table);
  EXPECT_EQ(found.missing, status.missing);
}

TEST(Payload, AByteOfAPolicyHasItsTwoTruthValues) {
  KeyMeta meta = MetaOf(CanonicalKey(0, "rows"));
  meta.layout = Layout::kRows;
  meta.row_count = 10;
  meta.buckets = 1;
  const std::string plain = Encode(meta);
  size_t at = 0;
  for (const int bits : {1, 2, 3}) {
    meta.policy.has_notes = (bits & 1) != 0;
    meta.policy.replaces_all = (bits & 2) != 0;
    const std::string encoded = Encode(meta);
    EXPECT_EQ(DecodeKeyMeta(encoded), meta);
    const auto [before, after] = std::mismatch(plain.begin(), plain.end(), encoded.begin());
    at = static_cast<size_t>(before - plain.begin());
    std::string expected = plain;
    expected[at] = static_cast<char>(bits);
    EXPECT_EQ(encoded, expected) << "the payload of earlier versions but for one byte";
  }
  std::string wrong = plain;
  wrong[at] = 4;
  EXPECT_FAILS(Code::kInvalidArgument, DecodeKeyMeta(wrong));
}

TEST(Payload, AFailureIsACodeAndAtMostAKibibyteOfText) {
  const Error sent(Code::kNotFound, "load: there is no snapshot");
  const Error found = DecodeFailure(EncodeFailure(sent));
  EXPECT_EQ(found.code(), Code::kNotFound);
  EXPECT_EQ(std::string(found.what()), sent.what());
  const Error cut = DecodeFailure(EncodeFailure({Code::kInternal, std::string(5000, 'x')}));
  EXPECT_EQ(std::string(cut.what()), std::string(kFailureBytesMax, 'x'));
  ByteWriter writer;
  writer.Number(uint32_t{99});
  writer.Text("?");
  EXPECT_EQ(DecodeFailure(writer.Take()).code(), Code::kInternal) << "a code of a later version";
  EXPECT_FAILS(Code::kInvalidArgument, DecodeFailure("abc"));
  EXPECT_FAILS(Code::kInvalidArgument, DecodeFailure(EncodeFailure(sent) + "x"));
}

TEST(Frame, SmallOperationsShareFramesAndLargeOnesTravelAlone) {
  std::vector<std::byte> bytes(kCoalesceBelowBytes);
  Message small = EveryMessage()[4];
  Message large = small;
  large.body = {bytes.data(), bytes.size(), nullptr};
  FrameBuilder builder;
  EXPECT_TRUE(builder.Fits(large));
  builder.Add(Message(small));
  EXPECT_TRUE(builder.Fits(small));
  EXPECT_FALSE(builder.Fits(large));
}

TEST(Frame, ManyOperationsOrALongOneAreRefusedBeforeTheirBytesAreRead) {
  FrameHeader header;
  header.entry_count = 2;
  header.meta_bytes = 2 * sizeof(FrameEntry);
  header.body_bytes = kFrameBytesMax;
  const auto decode = [&] { DecodeHeader(std::as_bytes(std::span(&header, 1)), {}); };
  EXPECT_FAILS(Code::kInvalidArgument, decode());
  header.body_bytes -= header.meta_bytes;
  EXPECT_NO_THROW(decode());
  header = {};
  header.entry_count = 1;
  header.meta_bytes = 18U << 20;
  EXPECT_FAILS(Code::kInvalidArgument, decode());
}

TEST(KeyId, NumbersAndTextsAndStoresDiffer) {
  EXPECT_NE(CanonicalKey(0, 3), CanonicalKey(0, "3"));
  EXPECT_NE(CanonicalKey(0, 3), CanonicalKey(1, 3));
  EXPECT_NE(CanonicalKey(0, "barrier"), InternalKey(0, "barrier"));
  EXPECT_EQ(ShownKey(CanonicalKey(0, -3)), "-3");
  EXPECT_EQ(ShownKey(CanonicalKey(5, "w3")), "'w3'");
  EXPECT_FAILS(Code::kInvalidArgument, CanonicalKey(0, std::string(2000, 'x')));
}

TEST(KeyId, ChunksOfAKeyLoadAllShardsAlike) {
  for (const uint32_t shards : {1U, 3U, 8U}) {
    std::vector<int> load(shards);
    for (uint32_t chunk = 0; chunk < 24; ++chunk) {
      ++load[ServerOf({1, shards, {}}, IdOf(CanonicalKey(0, "w")), chunk)];
    }
    const auto [low, high] = std::minmax_element(load.begin(), load.end());
    EXPECT_LE(*high - *low, 1);
  }
}

TEST(Placement, ATableOfSlotsSaysWhichServerHasAChunk) {
  Placement placement{2, 3, std::vector<uint32_t>(kSlots, 1)};
  const KeyId id = IdOf(CanonicalKey(0, "w"));
  placement.slots[SlotOf(id, 5)] = 2;
  EXPECT_EQ(ServerOf(placement, id, 5), 2U);
  EXPECT_EQ(ServerOf(placement, id, 6), 1U);
}

TEST(Placement, ComesBackAsItWasOrNotAtAll) {
  Epoch epoch = SomeEpoch();
  epoch.servers.resize(3);
  epoch.placement = {8, 3, std::vector<uint32_t>(kSlots, 2)};
  EXPECT_EQ(DecodeEpoch(9, Encode(epoch)), epoch);
  for (const Placement& wrong :
       {Placement{8, 4, {}}, Placement{8, 2, {}}, Placement{8, 0, {}}, Placement{8, 3, {0, 1, 2}},
        Placement{8, 3, std::vector<uint32_t>(kSlots, 3)},
        Placement{8, 3, std::vector<uint32_t>(kSlots + 1, 0)}}) {
    epoch.placement = wrong;
    EXPECT_FAILS(Code::kInvalidArgument, DecodeEpoch(9, Encode(epoch)));
  }
}

TEST(Placement, OfNoServersIsRefused) {
  Epoch epoch = SomeEpoch();
  epoch.servers.clear();
  epoch.placement = {8, 0, {}};
  EXPECT_FAILS(Code::kInvalidArgument, DecodeEpoch(9, Encode(epoch)));
}

// ---- versions -----------------------------------------------------------------------------------

Protocol Speaks(uint32_t version, uint64_t features = 0, uint64_t required = 0) {
  return {version, features, required, version == 1 ? "" : "tensorkv 7.8.9"};
}

std::string WhyNot(const Protocol& theirs, const Protocol& ours) {
  const auto error = WhyNotTogether("worker 2", theirs, "the head", ours);
  if (!error) return "";
  EXPECT_EQ(error->code(), Code::kFailedPrecondition);
  return error->what();
}

TEST(Protocol, AnotherVersionIsRefusedAndTheOlderSideIsToBeUpgraded) {
  EXPECT_EQ(
      WhyNot(Speaks(1), Speaks(2)),
      "worker 2 speaks protocol 1, the head protocol 2 (tensorkv 7.8.9); upgrade tensorkv where "
      "worker 2 runs");
  EXPECT_EQ(WhyNot(Speaks(3), Speaks(2)),
            "worker 2 speaks protocol 3 (tensorkv 7.8.9), the head protocol 2 (tensorkv 7.8.9); "
            "upgrade tensorkv where the head runs");
}

TEST(Protocol, TheNameOfAPackageIsShownWithoutControlBytes) {
  Protocol hostile = Speaks(3);
  hostile.package = "x\n\x1b[2Jy";
  for (const char c : WhyNot(hostile, Speaks(2))) EXPECT_GE(c, ' ');
}

TEST(Protocol, APeerOfALaterVersionIsRefusedByThatWhateverItsRole) {
  Hello hello{"job", static_cast<Role>(9), 1, 5, 6, ""};
  EXPECT_FAILS(Code::kInvalidArgument, DecodeHello(Encode(hello)));
  hello.protocol = Speaks(kProtocolVersion + 1);
  EXPECT_EQ(DecodeHello(Encode(hello)).protocol, hello.protocol);
}

TEST(Protocol, FeaturesAreIgnoredUnlessOneSideRequiresThem) {
  EXPECT_EQ(WhyNot(Speaks(2, ~uint64_t{0}), Speaks(2)), "");
  EXPECT_EQ(WhyNot(Speaks(2), Speaks(2, 5)), "");
  EXPECT_EQ(WhyNot(Speaks(2, 6, 4), Speaks(2, 4)), "");
  EXPECT_EQ(
      WhyNot(Speaks(2, 6, 4), Speaks(2, 2)),
      "worker 2 (protocol 2 (tensorkv 7.8.9)) requires features 0x4, which the head (protocol 2 "
      "(tensorkv 7.8.9)) does not have; upgrade tensorkv where the head runs");
  EXPECT_NE(WhyNot(Speaks(2), Speaks(2, 8, 8)).find("where worker 2 runs"), std::string::npos);
}

// A frame of the last build with protocol version 1: HELLO of worker 1 of 'job'.
TEST(Protocol, AHelloOfVersion1IsUnderstoodAsSuch) {
  Hello hello{"job", Role::kWorker, 1, 5, 6, "tcp:10.0.0.1:7"};
  hello.protocol = {};
  std::string payload = Encode(hello);
  payload.resize(payload.size() - kProtocolBytes);
  const Hello old = DecodeHello(payload);
  EXPECT_EQ(old.protocol, Speaks(1));
  EXPECT_EQ(old.address, hello.address);
}

TEST(Protocol, WhatALaterVersionAddsIsNotRead) {
  Hello hello{"job", Role::kWorker, 1, 5, 6, ""};
  hello.protocol.version = 3;
  EXPECT_EQ(DecodeHello(Encode(hello) + "more").protocol.version, 3U);
  hello.protocol.version = kProtocolVersion;
  EXPECT_FAILS(Code::kInvalidArgument, DecodeHello(Encode(hello) + "more"));
}

TEST(Protocol, APackageTravelsAsANumberToo) {
  EXPECT_EQ(PackageNameOf(PackageNumber()), PackageName());
  EXPECT_EQ(PackageNameOf(0), "");
}

TEST(Epoch, WhoIsAMemberDependsOnThePolicy) {
  Epoch epoch = SomeEpoch();
  EXPECT_FALSE(epoch.IsMember(1));
  EXPECT_TRUE(epoch.IsMember(0));
  EXPECT_FALSE(epoch.IsMember(2));
  epoch.policy = Epoch::Policy::kFail;
  EXPECT_TRUE(epoch.IsMember(1));
  EXPECT_TRUE(epoch.IsGone(1));
  epoch.policy = Epoch::Policy::kWait;
  EXPECT_FALSE(epoch.IsGone(1));
  epoch.workers[1].state = Epoch::State::kLost;
  EXPECT_TRUE(epoch.IsGone(1));
  EXPECT_EQ(epoch.CommittedBy(0, 4), 3U);
  EXPECT_EQ(epoch.CommittedBy(0, 5), 0U);
}

}  // namespace
}  // namespace tkv
