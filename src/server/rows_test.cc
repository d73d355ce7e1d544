// Keys by rows on a shard: the contents of a bucket, and the messages that it refuses.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <span>

#include "base/mix.h"
#include "base/random.h"
#include "tests/shard_fixture.h"
#include "tkv/optimizer.h"

namespace tkv {
namespace {

using test::kLink0;
using test::kLink1;

uint64_t Below(Random* random, int64_t end) {
  return static_cast<uint64_t>(random->Between(0, end - 1));
}

uint64_t Of(Random* random, const std::vector<uint64_t>& some) {
  return some[Below(random, static_cast<int64_t>(some.size()))];
}

class RowsOfShardTest : public test::ShardTest {
 protected:
  using RowMap = std::map<uint64_t, float>;  // by id
  int64_t row_count_ = 100;                  // of tables that are made next

  RowsOfShardTest() { MakeTable(2, {{7, 70}}); }

  // Creates a key by rows of two floats, with one bucket and some initial rows.
  void MakeTable(uint64_t seq, const RowMap& rows, const char* name = "rows",
                 const RowPolicy& policy = {}) {
    meta_.name = CanonicalKey(0, name);
    meta_.policy = policy;
    meta_.shape = Shape({2});
    meta_.layout = Layout::kRows;
    meta_.row_count = row_count_;
    meta_.buckets = 1;
    meta_.initializer.a = 5;
    key_ = IdOf(meta_.name);
    Message init = Make(Type::kInit, seq);
    init.extra = Encode(meta_);
    init.body = BodyOf(rows);
    EXPECT_TRUE(shard_.Admit(kLink0, init));
    EXPECT_EQ(Send(kLink0, init).type, Type::kOk);
  }
  static std::vector<uint64_t> Ordered(std::vector<uint64_t> ids) {
    std::sort(ids.begin(), ids.end(), [](uint64_t a, uint64_t b) { return Mix(a) < Mix(b); });
    return ids;
  }
  static Bytes IdsOf(const std::vector<uint64_t>& ids) {
    auto owner = std::make_shared<std::vector<uint64_t>>(ids);
    return {reinterpret_cast<const std::byte*>(owner->data()), owner->size() * 8, owner};
  }
  static Bytes BodyOf(const RowMap& rows) {
    std::vector<uint64_t> ids;
    for (const auto& [id, value] : rows) ids.push_back(id);
    return BodyOf(Ordered(ids), rows);
  }
  static Bytes BodyOf(const std::vector<uint64_t>& ids, const RowMap& rows) {
    auto owner = std::make_shared<std::vector<std::byte>>(ids.size() * 16);
    for (size_t i = 0; i < ids.size(); ++i) {
      const float row[] = {rows.at(ids[i]), rows.at(ids[i])};
      std::memcpy(owner->data() + i * 8, &ids[i], 8);
      std::memcpy(owner->data() + ids.size() * 8 + i * 8, row, 8);
    }
    return {owner->data(), owner->size(), owner};
  }
  Message PushOf(uint64_t seq, uint64_t round, Bytes body) {
    Message push = Make(Type::kPush, seq, round);
    push.encoding = Encoding::kRows;
    push.body = std::move(body);
    return push;
  }
  // Sets an optimizer from the next round on.
  void SetMomentum(uint64_t seq, uint64_t generation, bool commits = true) {
    const auto momentum = Optimizer::Create("momentum", {{"learning_rate", 1}, {"momentum", 0.5}});
    UpdateSpec spec;
    spec.program = momentum->program().ToText();
    spec.params = momentum->ParamsFor("rows");
    spec.fresh = true;
    Message control = Make(Type::kControl, seq, generation);
    control.key = {};
    control.extra = Encode(spec);
    ControlRounds::Item item{key_, chunk().version + 1};
    auto listed = std::make_shared<ControlRounds::Item>(item);
    control.body = {reinterpret_cast<const std::byte*>(listed.get()), sizeof item, listed};
    ASSERT_EQ(Send(kLink0, control).type, Type::kOk);
    if (!commits) return;
    ++epoch_.number;
    epoch_.commits = {{0, 4, generation}};
    shard_.On(epoch_, &effects_);
  }
  Message CutAt(uint64_t seq, uint64_t version) {
    Message cut = Make(Type::kPull, seq, version);
    cut.flags = kNoBody | kCut;
    return cut;
  }
  Message ReadOf(uint64_t seq, uint64_t part, uint64_t version, RowRange rows) {
    Message read = Make(Type::kPull, seq, part);
    read.need = version;
    read.flags = kOfCut;
    read.extra = Encode(rows);
    return read;
  }
  Message RestoreOf(uint64_t seq, const ChunkState& state, const std::vector<uint64_t>& ids,
                    float number, bool adds = false) {
    Message restore = Make(Type::kRestore, seq);
    restore.extra = Encode(state);
    restore.flags = adds ? kMore : 0;
    const size_t arrays = 1 + state.arrays;
    auto owner = std::make_shared<std::vector<std::byte>>(ids.size() * 8 * (1 + arrays));
    std::memcpy(owner->data(), ids.data(), ids.size() * 8);
    for (size_t i = 0; i < ids.size() * 2 * arrays; ++i) {
      std::memcpy(owner->data() + ids.size() * 8 + i * 4, &number, 4);
    }
    restore.body = {owner->data(), owner->size(), owner};
    return restore;
  }
  Message PullOf(uint64_t seq, uint64_t version, const std::vector<uint64_t>& ids) {
    Message pull = Make(Type::kPull, seq, version);
    pull.body = IdsOf(ids);
    return pull;
  }
  // Returns all parts of a cut of the bucket.
  std::string Everything(uint64_t* seq) {
    const uint64_t version = chunk().version;
    const Message cut = Send(kLink0, CutAt((*seq)++, version));
    EXPECT_EQ(cut.type, Type::kValue) << cut.extra << " at version " << version;
    if (cut.type != Type::kValue) return {};
    const ChunkState state = DecodeChunkState(cut.extra);
    std::string all = cut.extra;
    const auto add = [&](uint64_t part) {
      if (!state.HasPart(part)) return;
      Message read = ReadOf((*seq)++, part, version, {0, state.RowsOf(part)});
      if (state.IsScalar(part)) read.extra.clear();
      const Message reply = Send(kLink0, read);
      EXPECT_EQ(reply.type, Type::kValue) << reply.extra;
      all.append(reinterpret_cast<const char*>(reply.body.data), reply.body.size);
    };
    for (uint64_t part = 0; part < 6; ++part) add(part);
    for (uint64_t part = 0; part < 4; ++part) add(UINT64_MAX - part);
    Message release = Make(Type::kRelease, (*seq)++);
    release.chunk = 0;
    Send(kLink0, release);
    return all;
  }
  // Returns a random RESTORE, which may be valid or have some wrong field.
  Message AnyRestore(Random* random, uint64_t seq) {
    const auto any = [&](uint64_t right) {
      const std::vector<uint64_t> wrong = {0, 1, 3, 1ULL << 32, ChunkState::kRowsMax};
      return random->Chance(0.97) ? right : Of(random, wrong);
    };
    const auto some_ids = [&] {
      std::vector<uint64_t> ids;
      for (uint64_t id = 0; id < 12; ++id) {
        if (random->Chance(0.4)) ids.push_back(random->Chance(0.99) ? id : id + 95);
      }
      if (random->Chance(0.97)) ids = Ordered(ids);
      return ids;
    };
    const std::vector<uint64_t> ids = some_ids(), candidates = some_ids();
    const bool is_plain = random->Chance(0.3);  // like an import
    ChunkState state;
    state.by_rows = random->Chance(0.98);
    state.rows = ids.size();
    state.row_version = random->Chance(0.9) ? Below(random, 100) : random->Next();
    state.has_value = random->Chance(0.8) || is_plain;
    state.has_master = random->Chance(0.05);
    state.has_notes = !is_plain && random->Chance(0.5);
    state.candidates = is_plain || random->Chance(0.5) ? 0 : candidates.size();
    state.arrays = static_cast<uint8_t>(is_plain || random->Chance(0.4) ? random->Chance(0.02) : 1);
    state.scalars = static_cast<uint8_t>(random->Chance(0.02));
    state.updates = is_plain ? 0 : Below(random, 4);
    const auto momentum = Optimizer::Create(random->Chance(0.95) ? "momentum" : "adam");
    if (!is_plain) state.spec.program = momentum->program().ToText();
    const size_t bytes = state.Bytes(DType::kF32, 2) + (random->Chance(0.03) ? 8 : 0);
    auto owner = std::make_shared<std::vector<std::byte>>(bytes);
    for (std::byte& byte : *owner) byte = static_cast<std::byte>(Below(random, 256));
    const auto put = [&](size_t at, const std::vector<uint64_t>& some) {
      const auto raw = std::as_bytes(std::span(some));
      std::copy_n(raw.begin(), std::min(raw.size(), bytes - at), owner->begin() + at);
    };
    put(0, ids);
    const size_t tail = state.candidates * (8 + sizeof(RowNote));
    if (tail > 0 && tail <= bytes) put(bytes - tail, candidates);
    state.rows = any(state.rows);
    state.candidates = any(state.candidates);
    Message restore = Make(Type::kRestore, seq, Below(random, 4));
    restore.extra = Encode(state);
    restore.flags = is_plain ? kOnlyRows : random->Chance(0.4) ? kMore : 0;
    restore.body = {owner->data(), owner->size(), owner};
    return restore;
  }
  // Returns the first number of each row, as a PULL reads it.
  RowMap Read(uint64_t seq, const std::vector<uint64_t>& ids) {
    const std::vector<uint64_t> ordered = Ordered(ids);
    return RowsIn(Send(kLink1, PullOf(seq, 0, ordered)), ordered);
  }
  static RowMap RowsIn(const Message& value, const std::vector<uint64_t>& ids) {
    RowMap rows;
    EXPECT_EQ(value.type, Type::kValue) << value.extra;
    EXPECT_EQ(value.body.size, ids.size() * 8);
    if (value.body.size != ids.size() * 8) return rows;
    for (size_t i = 0; i < ids.size(); ++i) {
      std::memcpy(&rows[ids[i]], value.body.data + i * 8, sizeof(float));
    }
    return rows;
  }
};

TEST_F(RowsOfShardTest, ARoundSumsTheRowsOfAllAndOthersStay) {
  Send(kLink0, PushOf(3, 1, BodyOf({{1, 10}, {2, 20}})));
  EXPECT_EQ(Read(1, {1, 2}), (RowMap{{1, 5}, {2, 5}})) << "what nobody has written";
  Send(kLink1, PushOf(2, 1, BodyOf({{2, 2}, {3, 3}})));
  EXPECT_EQ(chunk().version, 1U);
  EXPECT_EQ(Read(3, {1, 2, 3, 4, 7}), (RowMap{{1, 10}, {2, 22}, {3, 3}, {4, 5}, {7, 70}}));
  EXPECT_EQ(chunk().value.rows().size(), 4U) << "reading makes no row";
}

TEST_F(RowsOfShardTest, ARoundReplacesAllRowsWhereThePolicySaysSo) {
  MakeTable(3, {{7, 70}, {8, 80}}, "replaced", {.replaces_all = true});
  Send(kLink0, PushOf(4, 1, BodyOf({{1, 10}, {2, 20}})));
  EXPECT_EQ(Read(1, {1, 7}), (RowMap{{1, 5}, {7, 70}})) << "the round is open";
  Send(kLink1, PushOf(2, 1, BodyOf({{2, 2}, {8, 3}})));
  EXPECT_EQ(Read(3, {1, 2, 7, 8}), (RowMap{{1, 10}, {2, 22}, {7, 5}, {8, 3}}));
  EXPECT_EQ(chunk().value.rows().size(), 3U);
  Send(kLink0, PushOf(5, 2, {}));
  Send(kLink1, PushOf(4, 2, {}));
  EXPECT_EQ(Read(5, {1, 2, 8}), (RowMap{{1, 5}, {2, 5}, {8, 5}}));
  const TableStats stats = chunk().value.rows().Stats();
  EXPECT_EQ(stats.rows + stats.evicted, 0U);
  EXPECT_EQ(stats.version, 2U);
}

TEST_F(RowsOfShardTest, ACutKeepsRowsThatAPushReplaces) {
  MakeTable(3, {{7, 70}}, "replaced", {.replaces_all = true});
  const Message cut = Send(kLink0, CutAt(4, 0));
  ASSERT_EQ(cut.type, Type::kValue) << cut.extra;
  Send(kLink0, PushOf(5, 1, BodyOf({{1, 10}})));
  Send(kLink1, PushOf(2, 1, {}));
  const Message value = Send(kLink0, ReadOf(6, ChunkState::kIds, 0, {0, 1}));
  ASSERT_EQ(value.body.size, sizeof(uint64_t)) << value.extra;
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>(value.body.data), 7U);
  EXPECT_EQ(Read(3, {1, 7}), (RowMap{{1, 10}, {7, 5}}));
}

TEST_F(RowsOfShardTest, AnEmptyPushIsAPush) {
  Send(kLink0, PushOf(3, 1, {}));
  EXPECT_EQ(Send(kLink1, PushOf(2, 1, {})).type, Type::kAccepted);
  EXPECT_EQ(chunk().version, 1U);
}

TEST_F(RowsOfShardTest, ARepeatedPushCountsOnce) {
  Send(kLink0, PushOf(3, 1, BodyOf({{1, 10}})));
  Send(kLink0, PushOf(4, 1, BodyOf({{1, 10}})));
  Send(kLink1, PushOf(2, 1, BodyOf({{1, 1}})));
  EXPECT_EQ(Read(3, {1}), (RowMap{{1, 11}}));
}

TEST_F(RowsOfShardTest, AParkedPullKeepsItsIdsAndGetsItsVersion) {
  Send(kLink0, PushOf(3, 1, BodyOf({{1, 10}})));
  const std::vector<uint64_t> ids = Ordered({1, 7});
  Message pull = PullOf(4, 1, ids);
  auto lent = std::make_shared<std::vector<uint64_t>>(ids);
  pull.body = {reinterpret_cast<const std::byte*>(lent->data()), 16, lent};
  EXPECT_EQ(Send(kLink0, pull).type, Type{});
  std::fill(lent->begin(), lent->end(), 99);  // the sender may reuse its memory
  Send(kLink1, PushOf(2, 1, BodyOf({{1, 1}})));
  EXPECT_EQ(RowsIn(LastFor(kLink0), ids), (RowMap{{1, 11}, {7, 70}}));
  EXPECT_TRUE(shard_.Miscounted().empty());
}

TEST_F(RowsOfShardTest, IdsThatAreWrongCostTheirOperationAndNothingElse) {
  const RowMap any = {{1, 1}, {2, 2}, {100, 3}, {1ULL << 63, 4}};
  const std::vector<uint64_t> falling = {Ordered({1, 2})[1], Ordered({1, 2})[0]};
  uint64_t seq = 3;
  ExpectError(kLink0, PushOf(seq++, 1, BodyOf({1, 1}, any)), Code::kInvalidArgument);
  ExpectError(kLink0, PushOf(seq++, 1, BodyOf(falling, any)), Code::kInvalidArgument);
  ExpectError(kLink0, PushOf(seq++, 1, BodyOf({100}, any)), Code::kOutOfRange);
  ExpectError(kLink0, PushOf(seq++, 1, BodyOf({1ULL << 63}, any)), Code::kOutOfRange);
  ExpectError(kLink0, PullOf(seq++, 0, falling), Code::kInvalidArgument);
  ExpectError(kLink0, PullOf(seq++, 0, {100}), Code::kOutOfRange);
  EXPECT_EQ(chunk().value.rows().size(), 1U);
  EXPECT_EQ(Send(kLink0, PushOf(seq, 1, BodyOf({{1, 1}}))).type, Type::kAccepted);
  EXPECT_TRUE(shard_.Miscounted().empty());
}

TEST_F(RowsOfShardTest, ABodyThatIsNotWorthMemoryIsNotTaken) {
  Message push = PushOf(3, 1, BodyOf({{1, 1}}));
  EXPECT_TRUE(shard_.Admit(kLink0, push));
  push.body.size -= 1;
  EXPECT_FALSE(shard_.Admit(kLink0, push)) << "no whole number of rows";
  push.encoding = Encoding::kDense;
  EXPECT_FALSE(shard_.Admit(kLink0, push));
  Message pull = PullOf(4, 0, {1});
  EXPECT_TRUE(shard_.Admit(kLink0, pull));
  pull.body.size = 7;
  EXPECT_FALSE(shard_.Admit(kLink0, pull));
  pull.body.size = size_t{1} << 40;
  EXPECT_FALSE(shard_.Admit(kLink0, pull));
  pull.body = {nullptr, size_t{1} << 40, nullptr};  // the form of a body that Admit refused
  ExpectError(kLink0, pull, Code::kResourceExhausted);
  pull.body.size = 7;
  ExpectError(kLink0, pull, Code::kInvalidArgument);
  pull = PullOf(5, 0, {1});
  pull.key = IdOf(CanonicalKey(0, "w"));
  EXPECT_FALSE(shard_.Admit(kLink0, pull)) << "a dense key takes no ids";
  ExpectError(kLink0, pull, Code::kFailedPrecondition);
}

TEST_F(RowsOfShardTest, BytesThatAreNoWholeNumberOfIdsAreAnError) {
  Message pull = PullOf(3, 0, {1, 2});
  pull.body.size = 12;
  ExpectError(kLink0, pull, Code::kInvalidArgument);
  Send(kLink0, CutAt(4, 0));
  Message read = ReadOf(5, ChunkState::kValue, 0, {});
  read.extra.clear();
  read.body = IdsOf({7});
  EXPECT_EQ(Send(kLink0, read).type, Type::kValue);
  read.seq = 6;
  read.body.size = 7;
  ExpectError(kLink0, read, Code::kInvalidArgument);
}

TEST_F(RowsOfShardTest, ACutIsReadInPartsWhileRowsChange) {
  SetMomentum(3, 1);
  Send(kLink0, PushOf(4, 1, BodyOf({{1, 4}})));
  Send(kLink1, PushOf(2, 1, {}));
  const Message cut = Send(kLink0, CutAt(5, 1));
  const ChunkState state = DecodeChunkState(cut.extra);
  EXPECT_TRUE(state.by_rows);
  EXPECT_EQ(state.rows, 2U);
  EXPECT_EQ(state.arrays, 1U);
  EXPECT_EQ(state.updates, 1U);
  Send(kLink0, PushOf(6, 2, BodyOf({{1, 100}, {2, 100}})));
  Send(kLink1, PushOf(3, 2, {}));
  const std::vector<uint64_t> ids = Ordered({1, 7});
  const RowMap values = {{1, 1}, {7, 70}}, moments = {{1, -4}, {7, 0}};
  for (uint64_t i = 0; i < 2; ++i) {
    const Message id = Send(kLink0, ReadOf(7, ChunkState::kIds, 1, {i, 1}));
    ASSERT_EQ(id.body.size, 8U);
    EXPECT_EQ(std::memcmp(id.body.data, &ids[i], 8), 0);
    const auto first = [&](uint64_t part) {
      return RowsIn(Send(kLink0, ReadOf(8, part, 1, {i, 1})), {ids[i]});
    };
    EXPECT_EQ(first(ChunkState::kValue).at(ids[i]), values.at(ids[i]));
    EXPECT_EQ(std::abs(first(ChunkState::kStates).at(ids[i])), std::abs(moments.at(ids[i])));
  }
  ExpectError(kLink0, ReadOf(9, 0, 1, {0, 3}), Code::kOutOfRange);
  ExpectError(kLink0, ReadOf(9, 0, 1, {3, 0}), Code::kOutOfRange);
  ExpectError(kLink0, ReadOf(9, 0, 1, {1, UINT64_MAX}), Code::kOutOfRange);
  ExpectError(kLink0, ReadOf(9, ChunkState::kMaster, 1, {0, 1}), Code::kInvalidArgument);
  ExpectError(kLink0, ReadOf(9, 5, 1, {0, 1}), Code::kInvalidArgument);
}

TEST_F(RowsOfShardTest, RowsArePutBackInSeveralMessages) {
  SetMomentum(3, 1);
  ChunkState state;
  state.by_rows = true;
  state.rows = 2;
  state.arrays = 1;
  state.updates = 9;
  const auto momentum = Optimizer::Create("momentum");
  state.spec.program = momentum->program().ToText();
  const std::vector<uint64_t> ids = Ordered({1, 2, 3, 4});
  const std::vector<uint64_t> low(ids.begin(), ids.begin() + 2), high(ids.begin() + 2, ids.end());
  const std::vector<uint64_t> falling = {ids[1], ids[0]};
  const auto refuses = [&](uint64_t seq, const Message& restore, Code code) {
    EXPECT_TRUE(shard_.Admit(kLink0, restore));
    ExpectError(kLink0, restore, code);
    EXPECT_EQ(Read(20 + seq, {1, 2, 7}), (RowMap{{1, 5}, {2, 5}, {7, 70}})) << seq;
  };
  refuses(4, RestoreOf(4, state, falling, 8), Code::kInvalidArgument);
  refuses(5, RestoreOf(5, state, {100, 1}, 8), Code::kOutOfRange);
  refuses(6, RestoreOf(6, state, ids, 8), Code::kInvalidArgument);
  refuses(7, RestoreOf(7, state, low, 8, true), Code::kInvalidArgument);
  ChunkState lies = state;
  lies.by_rows = false;
  refuses(8, RestoreOf(8, lies, low, 8), Code::kInvalidArgument);
  lies = state;
  lies.rows = ChunkState::kRowsMax;
  refuses(9, RestoreOf(9, lies, low, 8), Code::kInvalidArgument);
  Message large = RestoreOf(10, state, low, 8);
  large.body.size = kPartBytesMax + 1;
  EXPECT_FALSE(shard_.Admit(kLink0, large));
  EXPECT_EQ(Send(kLink0, RestoreOf(10, state, low, 8)).type, Type::kOk);
  EXPECT_EQ(Send(kLink0, RestoreOf(11, state, high, 9, true)).type, Type::kOk);
  EXPECT_EQ(Read(40, {1, 2, 3, 4, 7}),
            (RowMap{{ids[0], 8}, {ids[1], 8}, {ids[2], 9}, {ids[3], 9}, {7, 5}}));
  EXPECT_EQ(chunk().updates, 9U);
  EXPECT_EQ(chunk().value.rows().state_count(), 1U);
}

// A random RESTORE is executed completely or not at all.
TEST_F(RowsOfShardTest, ARestoreIsDoneOrChangesNothing) {
  uint64_t seq = 3;
  for (const bool has_policy : {false, true}) {
    RowPolicy policy;
    if (has_policy) policy = {.admit_count = 3, .age_max = 50, .has_notes = true};
    MakeTable(seq++, {{7, 70}, {8, 80}}, has_policy ? "policy" : "plain", policy);
    SetMomentum(seq++, has_policy ? 2 : 1);
    shard_.Header(kLink1, seq);
    for (uint64_t round = 1; round < 4; ++round) {
      Send(kLink0, PushOf(seq, round, BodyOf({{1, 4}, {round, 1}})));
      Send(kLink1, PushOf(seq++, round, {}));
    }
    ASSERT_EQ(chunk().version, 3U);
    Random random(has_policy);
    std::string before = Everything(&seq);
    int done = 0;
    for (int trial = 0; trial < 20000; ++trial) {
      shard_.Header(kLink0, seq);  // the client has all earlier replies
      const Message restore = AnyRestore(&random, seq++);
      const Message reply = Send(kLink0, restore);
      const std::string after = Everything(&seq);
      ASSERT_TRUE(reply.type == Type::kOk || reply.type == Type::kError) << trial;
      if (reply.type == Type::kError) {
        ASSERT_EQ(after, before) << trial << ": " << reply.extra;
      }
      done += reply.type == Type::kOk;
      before = after;
      ASSERT_TRUE(shard_.Miscounted().empty());
    }
    EXPECT_GT(done, 1000);
    EXPECT_LT(done, 19000);
  }
}

// A random PULL of a cut gets the wanted rows or an error.
TEST_F(RowsOfShardTest, APartOfACutHasWhatWasAskedForOrIsAnError) {
  MakeTable(3, {{7, 70}, {8, 80}, {9, 90}}, "policy", {.admit_count = 2, .has_notes = true});
  SetMomentum(4, 1);
  Send(kLink0, PushOf(11, 1, BodyOf({{1, 4}, {7, 1}})));
  Send(kLink1, PushOf(11, 1, {}));
  uint64_t seq = 20;
  const ChunkState state = DecodeChunkState(Send(kLink0, CutAt(seq++, 1)).extra);
  Random random(1);
  const std::vector<uint64_t> numbers = {0, 1, 2, 3, 4, 5, 1ULL << 40, UINT64_MAX - 1, UINT64_MAX};
  const auto any = [&] { return Of(&random, numbers); };
  int read = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const uint64_t part = random.Chance(0.5) ? UINT64_MAX - Below(&random, 5) : Below(&random, 6);
    const RowRange range{any(), any()};
    Message message = ReadOf(seq++, part, random.Chance(0.1) ? any() : 1, range);
    const bool by_ids = random.Chance(0.3);
    std::vector<uint64_t> ids;
    if (by_ids) {
      message.extra.clear();
      for (uint64_t i = Below(&random, 4); i > 0; --i) {
        ids.push_back(random.Chance(0.1) ? any() : Below(&random, 12));
      }
      if (random.Chance(0.8)) ids = Ordered(ids);
      message.body = IdsOf(ids);
    }
    const Message reply = Send(kLink0, message);
    ASSERT_TRUE(reply.type == Type::kValue || reply.type == Type::kError) << trial;
    if (reply.type != Type::kValue) continue;
    ++read;
    ASSERT_TRUE(state.HasPart(part)) << part;
    const size_t count = by_ids ? ids.size() : range.count;
    if (!by_ids) {
      ASSERT_LE(range.first + range.count, state.RowsOf(part));
    }
    ASSERT_EQ(reply.body.size, count * ChunkState::RowBytes(part, DType::kF32, 2)) << part;
  }
  EXPECT_GT(read, 1000);
  EXPECT_TRUE(shard_.Miscounted().empty());
}

TEST_F(RowsOfShardTest, AnotherOptimizerBeginsWithoutTheStatesOfTheOneBefore) {
  SetMomentum(3, 1);
  const auto push = [&](uint64_t round) {
    Send(kLink0, PushOf(10 + round, round, BodyOf({{1, 4}})));
    Send(kLink1, PushOf(1 + round, round, {}));
  };
  push(1);
  SetMomentum(4, 2);
  push(2);
  EXPECT_EQ(Read(9, {1}), (RowMap{{1, 5 - 4 - 4}}));
}

TEST_F(RowsOfShardTest, IdsThatWaitAreBoundedAndTheirBudgetComesBack) {
  const std::vector<uint64_t> ids = Ordered({1, 2});
  Send(kLink0, PushOf(3, 1, {}));
  uint64_t seq = 4;
  for (; seq < 8; ++seq) EXPECT_EQ(Send(kLink0, PullOf(seq, 1, ids)).type, Type{});
  EXPECT_FALSE(shard_.Admit(kLink0, PullOf(seq, 1, ids))) << "64 bytes wait";
  ExpectError(kLink0, PullOf(seq++, 1, ids), Code::kResourceExhausted);  // as if in the same frame
  Message cancel = Make(Type::kCancel, seq++, 4);
  EXPECT_EQ(Send(kLink0, cancel).type, Type::kOk);
  EXPECT_TRUE(shard_.Admit(kLink0, PullOf(seq, 1, ids)));
  EXPECT_EQ(Send(kLink0, PullOf(seq, 1, ids)).type, Type{});
  EXPECT_TRUE(shard_.Miscounted().empty());
}

TEST_F(RowsOfShardTest, AnOptimizerUpdatesTheRowsOfTheSumAlone) {
  const auto momentum = Optimizer::Create("momentum", {{"learning_rate", 1}, {"momentum", 0.5}});
  UpdateSpec spec;
  spec.program = momentum->program().ToText();
  spec.params = momentum->ParamsFor("rows");
  Message control = Make(Type::kControl, 3, 1);
  control.key = {};
  control.extra = Encode(spec);
  ASSERT_EQ(Send(kLink0, control).type, Type::kOk);
  epoch_.number = 2;
  epoch_.commits = {{0, 4, 1}};
  shard_.On(epoch_, &effects_);
  for (uint64_t round = 1; round <= 2; ++round) {
    Send(kLink0, PushOf(3 + round, round, BodyOf({{1, 4}})));
    Send(kLink1, PushOf(1 + round, round, {}));
  }
  EXPECT_EQ(chunk().version, 2U);
  EXPECT_FALSE(chunk().failure) << chunk().failure->what();
  EXPECT_EQ(Read(9, {1, 7}), (RowMap{{1, 5 - 4 - 6}, {7, 70}}));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// Memory ends at each of many places of the update.  The round must be as it was before the push.
TEST_F(RowsOfShardTest, ALastPushWithoutMemoryChangesNothing) {
  constexpr uint64_t kRows = 200'000;
  constexpr size_t kStep = size_t{1} << 20;
  row_count_ = kRows;
  MakeTable(3, {{7, 70}}, "wide");
  SetMomentum(4, 1);
  std::vector<uint64_t> ids;
  RowMap rows;
  for (uint64_t id = 0; id < kRows; ++id) {
    ids.push_back(id);
    rows[id] = static_cast<float>(id % 10);
  }
  const Bytes body = BodyOf(Ordered(ids), rows);
  ASSERT_EQ(Send(kLink0, PushOf(5, 1, BodyOf({{7, 2}, {8, 3}}))).type, Type::kAccepted);
  int refused = 0;
  uint64_t seq = 1;
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  for (size_t slack = 0; chunk().version == 0; slack += kStep) {
    ASSERT_LT(slack, 256 * kStep);
    const Message push = PushOf(seq++, 1, body);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit small = before;
    small.rlim_cur = pages * static_cast<size_t>(getpagesize()) + slack;
    setrlimit(RLIMIT_AS, &small);
    const Message answer = Send(kLink1, push);
    setrlimit(RLIMIT_AS, &before);
    if (answer.type == Type::kAccepted) break;
    ASSERT_EQ(ErrorOf(answer).code(), Code::kResourceExhausted) << answer.extra;
    ++refused;
    ASSERT_EQ(chunk().rounds.size(), 1U);
    EXPECT_EQ(chunk().rounds[0].count, 1U);
    EXPECT_FALSE(chunk().HasArrived(1, 1));
    EXPECT_EQ(chunk().value.rows().Stats().rows, 1U);
  }
  EXPECT_GT(refused, 3);
  EXPECT_EQ(chunk().version, 1U);
  EXPECT_FALSE(chunk().failure);
  const Message value = Send(kLink0, PullOf(6, 1, Ordered({7, 8})));
  ASSERT_EQ(value.type, Type::kValue);
  const auto* const got = reinterpret_cast<const float*>(value.body.data);
  const bool is_seven_first = Ordered({7, 8})[0] == 7;
  EXPECT_EQ(got[is_seven_first ? 0 : 2], 70.0F - (2 + 7));
  EXPECT_EQ(got[is_seven_first ? 2 : 0], 5.0F - (3 + 8));
}

#endif

}  // namespace
}  // namespace tkv
