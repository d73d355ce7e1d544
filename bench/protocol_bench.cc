// How much of what memory allows does one shard on one core reach?  Frames of pushpulls come over
// inproc, are landed, judged, applied and answered, and the answers are copied out, all on this
// thread.  The bound does the same to memory and nothing else: it finds the chunk, adds the pushed
// bytes to it and copies it out, in the same order of keys.
//
// Prints one JSON object for each row; `median` is over interleaved repetitions.

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/kernels.h"
#include "node/node.h"
#include "tkv/optimizer.h"
#include "transport/inproc/network.h"

namespace {

using namespace tkv;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A peer of the bench: says HELLO as the head or a worker would, and lands VALUEs in its buffers.
class Raw final : public LinkHandler {
 public:
  std::byte* out = nullptr;  // where the next VALUE lands
  uint64_t values = 0, accepted = 0, frames = 0;
  uint64_t link = 0;
  std::vector<Message> messages;

  uint64_t Accepted() override { return link = 1; }
  void Opened(uint64_t id) override { link = id; }
  void Closed(uint64_t, const std::string& reason) override {
    std::fprintf(stderr, "closed: %s\n", reason.c_str());
  }
  std::vector<Block> Land(uint64_t, std::span<const std::byte> head) override {
    messages.clear();
    DecodeMessages(DecodeHeader(head, {}), head, &messages);
    std::vector<Block> blocks;
    for (const Message& message : messages) {
      if (message.body.size == 0) continue;
      blocks.push_back({out, message.body.size, nullptr});
      out += message.body.size;
    }
    return blocks;
  }
  void Received(uint64_t) override {
    ++frames;
    for (const Message& message : messages) {
      values += message.type == Type::kValue;
      accepted += message.type == Type::kAccepted;
      if (message.type == Type::kError) std::fprintf(stderr, "%s\n", message.extra.c_str());
    }
  }
};

// A server node with `workers` welcomed sessions, driven by hand.
class Bench final : public LinkHandler {
 public:
  Bench(int workers, size_t keys, size_t elements, uint32_t chunk_elements) {
    MemberOptions member;
    member.role = Role::kServer;
    member.rank = 0;
    node_ = std::make_unique<ServerNode>(member, ShardOptions{}, &pool_);
    endpoint_ = network_.Listen("server0");
    head_endpoint_ = network_.Listen("head");
    node_->Start(0);
    Dispatch();
    Run();
    Message welcome;
    welcome.type = Type::kWelcome;
    Welcome payload;
    payload.rank = 0;
    payload.incarnation = 1;
    welcome.extra = Encode(payload);
    Epoch epoch;
    epoch.number = 1;
    epoch.servers = {{1, Epoch::State::kAlive}};
    for (int i = 0; i < workers; ++i) {
      epoch.workers.push_back({static_cast<uint64_t>(i) + 2, Epoch::State::kAlive});
    }
    Message announce;
    announce.type = Type::kEpoch;
    announce.number = 1;
    announce.extra = Encode(epoch);
    SendTo(head_endpoint_.get(), head_.link, welcome);
    SendTo(head_endpoint_.get(), head_.link, announce);
    Run();
    for (int i = 0; i < workers; ++i) {
      workers_.push_back(std::make_unique<Worker>());
      Worker& worker = *workers_.back();
      worker.endpoint = network_.Listen("worker" + std::to_string(i));
      worker.endpoint->Dial(1, "server0");
      Run();
      Message hello;
      hello.type = Type::kHello;
      hello.extra = Encode(Hello{"", Role::kWorker, i, static_cast<uint64_t>(i) + 2, 0, ""});
      SendTo(worker.endpoint.get(), 1, hello);
      Run();
    }
    MakeKeys(keys, elements, chunk_elements);
  }

  // One round of every key by every worker, in an order that a seed gives; pushpulls share frames.
  void Round(const std::vector<uint32_t>& order, const std::byte* source, std::byte* out) {
    ++round_;
    for (auto& worker : workers_) {
      FrameBuilder builder;
      worker->raw.out = out;
      for (const uint32_t key : order) {
        for (uint32_t c = 0; c < chunks_; ++c) {
          const size_t bytes = metas_[key].bytes_of(c);
          Message push;
          push.type = Type::kPush;
          push.key = ids_[key];
          push.chunk = c;
          push.number = round_;
          push.seq = ++worker->seq;
          push.body = {source + c * metas_[key].bytes_of(0), bytes, nullptr};
          Message pull;
          pull.type = Type::kPull;
          pull.key = ids_[key];
          pull.chunk = c;
          pull.number = round_;
          pull.seq = ++worker->seq;
          if (!builder.Fits(push)) Flush(worker.get(), &builder);
          builder.Add(std::move(push));
          builder.Add(std::move(pull));
        }
        if (builder.Waiting() >= 200) Flush(worker.get(), &builder);
      }
      Flush(worker.get(), &builder);
    }
    Run();
  }

  uint64_t values() const {
    return Sum([](const Worker& w) { return w.raw.values; });
  }
  uint64_t accepted() const {
    return Sum([](const Worker& w) { return w.raw.accepted; });
  }
  uint64_t operations_sent() const {
    return Sum([](const Worker& w) { return w.seq; });
  }
  const Shard& shard() const { return node_->shard(); }
  size_t bytes_in_use() const { return pool_.bytes_in_use(); }
  float Value(uint32_t key) const {
    return shard().FindChunk({ids_[key], 0})->value.as<float>()[0];
  }

 private:
  struct Worker {
    Raw raw;
    std::unique_ptr<Endpoint> endpoint;
    uint64_t seq = 0;
  };

  template <typename F>
  uint64_t Sum(F f) const {
    uint64_t sum = 0;
    for (const auto& worker : workers_) sum += f(*worker);
    return sum;
  }

  void MakeKeys(size_t keys, size_t elements, uint32_t chunk_elements) {
    Message control;
    control.type = Type::kControl;
    control.number = 1;
    control.seq = ++workers_[0]->seq;
    control.extra = Encode(UpdateSpec{Optimizer::Create("test")->program().ToText(), false, {1.0}});
    SendTo(workers_[0]->endpoint.get(), 1, control);
    Run();
    const std::vector<float> zeros(elements);
    for (size_t i = 0; i < keys; ++i) {
      KeyMeta meta;
      meta.name = CanonicalKey(0, static_cast<int64_t>(i));
      meta.shape = Shape({static_cast<int64_t>(elements)});
      meta.chunk_elements = chunk_elements;
      ids_.push_back(IdOf(meta.name));
      chunks_ = meta.chunk_count();
      for (uint32_t c = 0; c < chunks_; ++c) {
        Message init;
        init.type = Type::kInit;
        init.key = ids_.back();
        init.chunk = c;
        init.seq = ++workers_[0]->seq;
        init.extra = Encode(meta);
        init.body = {reinterpret_cast<const std::byte*>(zeros.data()), meta.bytes_of(c), nullptr};
        SendTo(workers_[0]->endpoint.get(), 1, init);
        Run();
      }
      metas_.push_back(std::move(meta));
    }
  }

  static void SendTo(Endpoint* endpoint, uint64_t link, const Message& message) {
    FrameBuilder builder;
    builder.Add(message);
    endpoint->Send(link, builder.Finish(1, message.seq));
  }
  void Flush(Worker* worker, FrameBuilder* builder) {
    if (builder->empty()) return;
    // All before this frame has been answered: Run has seen to it.
    const uint64_t low = worker->seq - builder->Waiting() + 1;
    worker->endpoint->Send(1, builder->Finish(1, low));
    Run();
  }

  void Dispatch() {
    NodeOutput output = node_->TakeOutput();
    for (const NodeOutput::Dial& dial : output.dials) endpoint_->Dial(dial.link, "head");
    for (NodeOutput::Send& send : output.sends) endpoint_->Send(send.link, std::move(send.frame));
  }
  void Run() {
    size_t count = 1;
    while (count > 0) {
      count = endpoint_->Poll(this, 1);
      Dispatch();
      count += head_endpoint_->Poll(&head_, 16);
      for (auto& worker : workers_) count += worker->endpoint->Poll(&worker->raw, 16);
    }
  }
  uint64_t Accepted() override { return node_->Accept(); }
  void Opened(uint64_t link) override { node_->Opened(link, 0); }
  void Closed(uint64_t link, const std::string&) override { node_->Closed(link, 0); }
  std::vector<Block> Land(uint64_t link, std::span<const std::byte> head) override {
    return node_->Land(link, head);
  }
  void Received(uint64_t link) override { node_->Received(link, 0); }

  BufferPool pool_;
  InprocNetwork network_;
  std::unique_ptr<ServerNode> node_;
  std::unique_ptr<Endpoint> endpoint_, head_endpoint_;
  Raw head_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<KeyId> ids_;
  std::vector<KeyMeta> metas_;
  uint32_t chunks_ = 1;
  uint64_t round_ = 0;
};

// The bound: find, add, copy, in the same order.
class Limit {
 public:
  Limit(size_t keys, size_t elements) : elements_(elements) {
    for (size_t i = 0; i < keys; ++i) {
      ids_.push_back(IdOf(CanonicalKey(0, static_cast<int64_t>(i))));
      chunks_[{ids_.back(), 0}] = pool_.Allocate(elements * sizeof(float));
      std::memset(chunks_[{ids_.back(), 0}].data, 0, elements * sizeof(float));
    }
  }
  void Round(const std::vector<uint32_t>& order, const std::byte* source, std::byte* out) {
    for (const uint32_t key : order) {
      const Block& block = chunks_.find({ids_[key], 0})->second;
      const void* both[] = {block.data, source};
      kernels::Sum(DType::kF32, both, block.data, elements_, kernels::Write::kCached);
      std::memcpy(out, block.data, block.size);
      out += block.size;
    }
  }

 private:
  BufferPool pool_;
  size_t elements_;
  std::vector<KeyId> ids_;
  boost::unordered_flat_map<ChunkId, Block> chunks_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Seconds for one pushpull, of the shard and of the bound.
void Compare(const char* name, size_t keys, size_t elements, uint32_t chunk_elements,
             int repetitions) {
  Bench bench(1, keys, elements, chunk_elements);
  Limit limit(keys, elements);
  std::vector<uint32_t> order(keys);
  std::iota(order.begin(), order.end(), 0);
  Random random(7);
  for (size_t i = keys; i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(random.Next() % i)]);
  }
  const std::vector<float> ones(elements, 1.0F);
  std::vector<float> out(elements * keys);
  const auto* source = reinterpret_cast<const std::byte*>(ones.data());
  auto* target = reinterpret_cast<std::byte*>(out.data());
  const size_t rounds = std::max<size_t>(1, 20'000 / (keys * std::max<size_t>(1, elements / 1024)));
  std::vector<double> shard, bound;
  uint64_t done = 0;
  for (int i = 0; i <= repetitions; ++i) {  // the first one warms up
    auto begin = Clock::now();
    for (size_t r = 0; r < rounds; ++r) bench.Round(order, source, target);
    const double shard_seconds = SecondsSince(begin) / static_cast<double>(rounds * keys);
    begin = Clock::now();
    for (size_t r = 0; r < rounds; ++r) limit.Round(order, source, target);
    const double bound_seconds = SecondsSince(begin) / static_cast<double>(rounds * keys);
    done += rounds;
    if (i == 0) continue;
    shard.push_back(shard_seconds);
    bound.push_back(bound_seconds);
  }
  if (bench.Value(0) != static_cast<float>(done)) std::fprintf(stderr, "%s: wrong sum\n", name);
  std::printf(
      "{\"row\": \"%s\", \"keys\": %zu, \"bytes\": %zu, \"ns\": %.1f, \"limit_ns\": %.1f, "
      "\"of_limit\": %.3f}\n",
      name, keys, elements * sizeof(float), Median(shard) * 1e9, Median(bound) * 1e9,
      Median(bound) / Median(shard));
  std::fflush(stdout);
}

// A round of W workers on a key of C chunks is 2 W C operations and 2 W C answers.
void CountMessages(int workers) {
  constexpr size_t kElements = 4096;
  Bench bench(workers, 4, kElements, 1024);
  std::vector<uint32_t> order = {0, 1, 2, 3};
  const std::vector<float> ones(kElements, 1.0F);
  std::vector<float> out(kElements * 4);
  const uint64_t sent = bench.operations_sent();
  const uint64_t answered = bench.values() + bench.accepted();
  bench.Round(order, reinterpret_cast<const std::byte*>(ones.data()),
              reinterpret_cast<std::byte*>(out.data()));
  const Shard::Memory use = bench.shard().MemoryUse();
  const uint64_t expected = 2 * static_cast<uint64_t>(workers) * 4 * 4;
  std::printf(
      "{\"row\": \"messages\", \"workers\": %d, \"sent\": %llu, \"answered\": %llu, "
      "\"expected\": %llu, \"bytes_held\": %zu, \"bytes_known\": %zu}\n",
      workers, static_cast<unsigned long long>(bench.operations_sent() - sent),
      static_cast<unsigned long long>(bench.values() + bench.accepted() - answered),
      static_cast<unsigned long long>(expected), bench.bytes_in_use(),
      use.values + use.state + use.sums);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::string(argv[1]) == "--smoke";
  const int repetitions = smoke ? 1 : 9;
  const size_t most = smoke ? 1000 : 1'000'000;
  for (size_t keys = 10; keys <= most; keys *= 10) {
    Compare("small", keys, 256, 1024, repetitions);
  }
  Compare("large", 1, smoke ? size_t{1} << 18 : size_t{16} << 20, KeyMeta::kChunkElementsDefault,
          repetitions);
  for (const int workers : {1, 2, 4, 8, 16, 32, 64}) CountMessages(workers);
  return 0;
}
