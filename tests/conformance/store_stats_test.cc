// Conformance of every store: its counters.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/conformance/store_conformance.h"

namespace tkv {
namespace {

using test::Floats;
using test::Full;

TEST_P(StoreConformance, StatsCountCallsBytesAndRoundsExactly) {
  const NDArray value = Floats({1, 2, 3, 4, 5});  // 20 bytes
  store_->Init("w", value);
  store_->Init("v", Floats({1, 2}));
  for (int i = 0; i < 3; ++i) store_->Push("w", value);
  store_->Push("w", std::vector<NDArray>{value, value});  // one round of two arrays
  for (int i = 0; i < 4; ++i) Pulled("w");
  store_->PushPull("v", std::vector<NDArray>{Floats({1, 1})}, std::vector<NDArray>{Floats({0, 0})});
  EXPECT_FAILS(Code::kNotFound, store_->Push("none", value));
  store_->Barrier();
  const StoreStats stats = store_->Stats();
  const auto calls = [&](Verb verb) {
    return std::pair(stats.of(verb).calls, stats.of(verb).failed);
  };
  EXPECT_EQ(calls(Verb::kInit), std::pair(2UL, 0UL));
  EXPECT_EQ(calls(Verb::kPush), std::pair(5UL, 1UL));
  EXPECT_EQ(calls(Verb::kPull), std::pair(4UL, 0UL));
  EXPECT_EQ(calls(Verb::kPushPull), std::pair(1UL, 0UL));
  EXPECT_EQ(calls(Verb::kBarrier), std::pair(1UL, 0UL));
  EXPECT_EQ(calls(Verb::kBroadcast), std::pair(0UL, 0UL));
  EXPECT_EQ(stats.bytes.init_bytes, 28U);
  EXPECT_EQ(stats.bytes.pushed_bytes, 5 * 20U + 8U);
  EXPECT_EQ(stats.bytes.pulled_bytes, 4 * 20U + 8U);
  EXPECT_EQ(stats.rounds, 5U);
  EXPECT_EQ(stats.key_count, 2U);
  ASSERT_EQ(stats.keys.size(), 2U);
  EXPECT_EQ(stats.keys[0].key.text(), "w");
  EXPECT_EQ(stats.keys[0].rounds, 4U);
  EXPECT_EQ(stats.keys[0].bytes.pushed_bytes, 100U);
  EXPECT_EQ(stats.keys[1].rounds, 1U);
  EXPECT_GE(stats.age_seconds, 0);
}

TEST_P(StoreConformance, StatsKeepTheSumsOfDeletedKeysAndTheFailuresOfTickets) {
  InitFloats(1, {1, 2});
  store_->Push(1, Floats({1, 2}));
  Pulled(1);
  store_->Delete(1);
  InitFloats(1, {1, 2});
  const StoreStats stats = store_->Stats();
  EXPECT_EQ(stats.bytes.init_bytes, 16U);
  EXPECT_EQ(stats.bytes.pushed_bytes, 8U);
  EXPECT_EQ(stats.rounds, 1U);
  EXPECT_EQ(stats.key_count, 1U);
  EXPECT_EQ(stats.keys[0].rounds, 0U);
  EXPECT_EQ(stats.of(Verb::kDelete).calls, 1U);
  store_->Close();
  EXPECT_FAILS(Code::kFailedPrecondition, store_->Stats());
}

TEST_P(StoreConformance, StatsOfAStoreWithServersNameThemAndWhatWasSent) {
  const NDArray value = Full({1000}, 1);
  store_->Init(1, value);
  store_->Push(1, value);
  store_->Pull(1, value);
  const StoreStats stats = store_->Stats();
  EXPECT_EQ(stats.operations_under_way, 0U);
  EXPECT_EQ(stats.resends + stats.reconnects, 0U);
  if (GetParam().runs_functions) {  // of one process
    EXPECT_TRUE(stats.peers.empty());
    EXPECT_EQ(stats.traffic.wire_out_bytes, 0U);
    return;
  }
  ASSERT_GE(stats.peers.size(), 2U);
  EXPECT_EQ(stats.peers[0].name, "head");
  EXPECT_EQ(stats.peers[1].name, "server 0");
  uint64_t out = 0;
  for (const PeerStats& peer : stats.peers) {
    EXPECT_EQ(peer.state, peer.connections > 0 ? "open" : "idle") << peer.name;
    EXPECT_EQ(peer.queued_messages + peer.unanswered_messages + peer.unaccepted_bytes, 0U);
    out += peer.traffic.wire_out_bytes;
  }
  EXPECT_EQ(stats.traffic.wire_out_bytes, out);
  EXPECT_GE(out, 2 * value.bytes());  // the value and the push, with their heads
  EXPECT_GE(stats.traffic.wire_in_bytes, value.bytes());
  EXPECT_EQ(stats.of(WaitCause::kAnswer).count, 2U);  // init, pull
  EXPECT_GE(stats.of(WaitCause::kLink).count, 1U);
}

TEST_P(StoreConformance, ATraceHasEachPushAndPullAndEndsOnce) {
  const std::string file = ::testing::TempDir() + "trace-" + std::to_string(getpid()) + ".json";
  store_->Init("w", Floats({1, 2}));
  EXPECT_FAILS(Code::kFailedPrecondition, store_->WriteTrace(file));
  store_->StartTrace();
  store_->StartTrace();  // which changes nothing
  store_->Push("w", Floats({1, 2}));
  Pulled("w");
  store_->PauseTrace();
  store_->Push("w", Floats({1, 2}));
  Pulled("w");
  store_->StartTrace();
  store_->Push("w", Floats({1, 2}));
  Pulled("w");
  EXPECT_FAILS(Code::kNotFound, store_->WriteTrace(file + ".no/trace.json"));
  const std::string pipe = file + ".pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FAILS(Code::kFailedPrecondition, store_->WriteTrace(pipe));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe)) << "what is there is left as it is";
  std::filesystem::remove(pipe);
  const KVStore::TraceInfo info = store_->WriteTrace(file);  // those that failed have lost nothing
  EXPECT_EQ(info.lost, 0U);
  std::ifstream stream(file);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  size_t spans = 0;
  for (size_t at = 0; (at = text.find("\"ph\":\"X\"", at + 1)) != std::string::npos;) ++spans;
  EXPECT_EQ(info.spans, spans);
  EXPECT_GE(spans, 4U);
  EXPECT_NE(text.find("push 'w'"), std::string::npos);
  EXPECT_NE(text.find("pull 'w'"), std::string::npos);
  EXPECT_FAILS(Code::kFailedPrecondition, store_->WriteTrace(file));
  std::remove(file.c_str());
}

}  // namespace
}  // namespace tkv
