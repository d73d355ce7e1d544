// A shard whose workers are played by the test.

#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "server/shard.h"

namespace tkv::test {

inline constexpr LinkId kLink0 = 1;
inline constexpr LinkId kLink1 = 2;

// A shard of a job of two workers, both welcomed, with one key of four floats.
class ShardTest : public ::testing::Test {
 protected:
  explicit ShardTest(ShardOptions options = Options()) : shard_(std::move(options), &pool_) {
    shard_.Joined(0, 9);
    epoch_.number = 1;
    epoch_.workers = {{4, Epoch::State::kAlive}, {5, Epoch::State::kAlive}};
    epoch_.servers = {{9, Epoch::State::kAlive}};
    epoch_.placement = {1, 1, {}};
    shard_.On(epoch_, &effects_);
    Greet(kLink0, 0, 4);
    Greet(kLink1, 1, 5);
    meta_.name = CanonicalKey(0, "w");
    meta_.shape = Shape({4});
    key_ = IdOf(meta_.name);
    Message init = Make(Type::kInit, 1);
    init.extra = Encode(meta_);
    init.body = Floats({0, 0, 0, 0});
    EXPECT_EQ(Send(kLink0, init).type, Type::kOk);
  }
  static ShardOptions Options() {
    ShardOptions options;
    options.parked_max = 8;
    options.asked_bytes_max = 64;
    return options;
  }
  Message Greet(LinkId link, Rank rank, uint64_t incarnation) {
    Message hello;
    hello.type = Type::kHello;
    hello.extra = Encode(Hello{"", Role::kWorker, rank, incarnation, 0, ""});
    return Send(link, hello);
  }
  Message Make(Type type, uint64_t seq, uint64_t number = 0) {
    Message message;
    message.type = type;
    message.key = key_;
    message.seq = seq;
    message.number = number;
    return message;
  }
  static Bytes Floats(std::vector<float> values) {
    auto owner = std::make_shared<std::vector<float>>(std::move(values));
    return {reinterpret_cast<const std::byte*>(owner->data()), owner->size() * 4, owner};
  }
  Message Push(uint64_t seq, uint64_t round, float value) {
    Message push = Make(Type::kPush, seq, round);
    push.body = Floats({value, value, value, value});
    return push;
  }
  // Sends and gives back the last answer on that link; a message of type 0 where there is none.
  Message Send(LinkId link, Message message) {
    effects_.Clear();
    shard_.Received(link, std::move(message), &effects_);
    return LastFor(link);
  }
  Message LastFor(LinkId link) {
    Message last;
    for (const auto& sending : effects_.sends) {
      if (sending.link == link) last = sending.message;
    }
    return last;
  }
  const Chunk& chunk() { return *shard_.FindChunk({key_, 0}); }
  static float FirstOf(const Chunk& chunk) {
    return *reinterpret_cast<const float*>(chunk.value.Read().data);
  }
  float Value() { return FirstOf(chunk()); }
  // Sends something hostile: its session is closed with a reason and nothing else has changed.
  void ExpectViolation(LinkId link, Message message) {
    const uint64_t version = chunk().version;
    const size_t bytes = pool_.bytes_in_use();
    Send(link, std::move(message));
    ASSERT_EQ(effects_.closes.size(), 1U);
    EXPECT_FALSE(effects_.closes[0].reason.empty());
    EXPECT_EQ(chunk().version, version);
    EXPECT_EQ(pool_.bytes_in_use(), bytes);
  }
  // Sends what its user has done wrong: one error, and nothing else has changed.
  void ExpectError(LinkId link, Message message, Code code) {
    const uint64_t version = chunk().version;
    const uint64_t seq = message.seq;
    const Message reply = Send(link, std::move(message));
    ASSERT_EQ(reply.type, Type::kError);
    EXPECT_EQ(reply.seq, seq);
    EXPECT_EQ(ErrorOf(reply).code(), code) << reply.extra;
    EXPECT_TRUE(effects_.closes.empty());
    EXPECT_EQ(chunk().version, version);
  }

  BufferPool pool_;
  Shard shard_;
  Epoch epoch_;
  Effects effects_;
  KeyMeta meta_;
  KeyId key_;
};

}  // namespace tkv::test
