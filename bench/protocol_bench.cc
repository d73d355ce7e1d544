// Compares one shard on one core with the limit of memory.  Frames of pushpulls are made
// beforehand.  They arrive over inproc and are placed, checked, applied and answered, and the
// answers are copied out, all on this thread.  The bound moves the same memory and does nothing
// else: it finds the chunk, adds the pushed bytes and copies the result out, in the same order of
// keys.
//
// Prints one JSON object for each row; `median` is over interleaved repetitions.

#include <algorithm>
#include <array>
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

// A peer of the benchmark: sends HELLO like a head or a worker, and places VALUEs in its buffers.
class Raw final : public LinkHandler {
 public:
  std::byte* out = nullptr;  // the place of the next VALUE
  uint64_t values = 0, accepted = 0, frames = 0;
  uint64_t link = 0;

  uint64_t Accepted() override { return link = 1; }
  void Opened(uint64_t id) override { link = id; }
  void Closed(uint64_t, const Error& reason) override {
    std::fprintf(stderr, "closed: %s\n", reason.what());
  }
  // Only the part of a client that places the bodies.
  std::vector<Block> Land(uint64_t, std::span<const std::byte> head, const std::byte*) override {
    FrameHeader header;
    std::memcpy(&header, head.data(), sizeof header);
    std::vector<Block> blocks;
    blocks.reserve(header.entry_count);
    for (uint32_t i = 0; i < header.entry_count; ++i) {
      FrameEntry entry;
      std::memcpy(&entry, head.data() + sizeof header + i * sizeof entry, sizeof entry);
      const auto type = static_cast<Type>(entry.type);
      values += type == Type::kValue;
      accepted += type == Type::kAccepted;
      if (type == Type::kError) std::fprintf(stderr, "an ERROR\n");
      if (entry.body_bytes == 0) continue;
      blocks.push_back({out, entry.body_bytes, nullptr});
      out += entry.body_bytes;
    }
    return blocks;
  }
  void Received(uint64_t) override { ++frames; }
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
    epoch.placement = {1, 1, {}};
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

  // Makes the frames of one round of every key by every worker, in the given order.  Pushpulls
  // share frames.
  void Prepare(const std::vector<uint32_t>& order, const std::byte* source) {
    ++round_;
    for (auto& worker : workers_) {
      FrameBuilder builder;
      uint64_t low = worker->seq + 1;  // when a frame arrives, all earlier ones have been answered
      const auto finish = [&] {
        if (!builder.empty()) worker->frames.push_back(builder.Finish(1, low));
        low = worker->seq + 1;
      };
      for (const uint32_t key : order) {
        for (uint32_t c = 0; c < chunks_; ++c) {
          const size_t bytes = metas_[key].bytes_of(c);
          Message push;
          push.type = Type::kPush;
          push.key = ids_[key];
          push.chunk = c;
          push.number = round_;
          push.body = {source + c * metas_[key].bytes_of(0), bytes, nullptr};
          if (!builder.Fits(push) || builder.count() >= 200) finish();
          push.seq = ++worker->seq;
          builder.Add(std::move(push));
          Message pull;
          pull.type = Type::kPull;
          pull.key = ids_[key];
          pull.chunk = c;
          pull.number = round_;
          pull.seq = ++worker->seq;
          builder.Add(std::move(pull));
        }
      }
      finish();
    }
  }
  // Lets the shard process the frames and copies the bodies of its answers to `out`.
  void Round(std::byte* out) {
    for (auto& worker : workers_) {
      worker->raw.out = out;
      for (Frame& frame : worker->frames) {
        worker->endpoint->Send(1, std::move(frame));
        Run();
      }
      worker->frames.clear();
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
    float first = 0;
    std::memcpy(&first, shard().FindChunk({ids_[key], 0})->value.Read().data, sizeof first);
    return first;
  }

 private:
  struct Worker {
    Raw raw;
    std::unique_ptr<Endpoint> endpoint;
    std::vector<Frame> frames;
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
    // value -= lr * gradient, with lr = -1.
    const auto adds = Optimizer::Create("sgd", {{"learning_rate", -1.0}});
    control.extra =
        Encode(UpdateSpec{adds->program().ToText(), false, adds->ParamsFor(KeyView(int64_t{0}))});
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

  static void SendTo(Endpoint* endpoint, uint64_t link, Message message) {
    FrameBuilder builder;
    const uint64_t low = message.seq;
    builder.Add(std::move(message));
    endpoint->Send(link, builder.Finish(1, low));
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
  void Closed(uint64_t link, const Error&) override { node_->Closed(link, 0); }
  std::vector<Block> Land(uint64_t link, std::span<const std::byte> head,
                          const std::byte* lent) override {
    return node_->Land(link, head, lent);
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

// The bound: find, add and copy in the same order.  With `all_bytes` it also touches the other
// memory of a shard: frames, the place of the bodies, and the records of chunk and key.
class Limit {
 public:
  Limit(size_t keys, size_t elements, bool all_bytes) : elements_(elements), all_(all_bytes) {
    landing_ = pool_.Allocate(kBatch * elements * sizeof(float));
    if (all_) frames_.resize(2 * keys);
    for (size_t i = 0; i < keys; ++i) {
      ids_.push_back(IdOf(CanonicalKey(0, static_cast<int64_t>(i))));
      ChunkRecord& chunk = chunks_[{ids_.back(), 0}];
      chunk.block = pool_.Allocate(elements * sizeof(float));
      std::memset(chunk.block.data, 0, chunk.block.size);
      if (all_) keys_[ids_.back()].version = 0;
    }
  }
  void Round(const std::vector<uint32_t>& order, const std::byte* source, std::byte* out) {
    const size_t bytes = elements_ * sizeof(float);
    for (size_t first = 0; first < order.size(); first += kBatch) {
      const size_t last = std::min(order.size(), first + kBatch);
      for (size_t i = first; i < last && all_; ++i) {
        sum_ += frames_[2 * i].seq + frames_[2 * i + 1].seq;
        std::memcpy(landing_.data + (i - first) * bytes, source, bytes);
      }
      for (size_t i = first; i < last; ++i) {
        ChunkRecord& chunk = chunks_.find({ids_[order[i]], 0})->second;
        if (all_) {
          Touch(&chunk);
          Touch(&keys_.find(ids_[order[i]])->second);
        }
        const std::byte* const pushed = all_ ? landing_.data + (i - first) * bytes : source;
        const void* both[] = {chunk.block.data, pushed};
        kernels::Sum(DType::kF32, both, chunk.block.data, elements_, kernels::Write::kCached);
        std::memcpy(out, chunk.block.data, bytes);
        out += bytes;
        if (all_) answers_[i - first].seq = answers_[kBatch + i - first].seq = sum_;
      }
    }
  }

 private:
  static constexpr size_t kBatch = 100;  // pushpulls of a frame

  // Touches a word in each cache line of a record.
  template <typename T>
  void Touch(T* record) {
    const auto* const bytes = reinterpret_cast<const volatile std::byte*>(record);
    for (size_t at = 0; at < sizeof(T); at += 64) sum_ += static_cast<uint64_t>(bytes[at]);
    ++record->version;
  }
  struct ChunkRecord : Chunk {
    Block block;
  };
  struct KeyRecord : StoredKey {
    uint64_t version = 0;
  };

  BufferPool pool_;
  size_t elements_;
  bool all_;
  uint64_t sum_ = 0;
  Block landing_;
  std::vector<FrameEntry> frames_;
  std::array<FrameEntry, 2 * kBatch> answers_{};
  std::vector<KeyId> ids_;
  boost::unordered_flat_map<ChunkId, ChunkRecord> chunks_;
  boost::unordered_flat_map<KeyId, KeyRecord> keys_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Prints the seconds of one pushpull, by the shard and by the bound.
void Compare(const char* name, size_t keys, size_t elements, uint32_t chunk_elements,
             int repetitions) {
  Bench bench(1, keys, elements, chunk_elements);
  Limit limit(keys, elements, false);
  Limit touch(keys, elements, true);
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
  std::vector<double> shard, bound, touched;
  uint64_t done = 0;
  for (int i = 0; i <= repetitions; ++i) {  // the first one warms up
    double shard_seconds = 0;
    for (size_t r = 0; r < rounds; ++r) {
      bench.Prepare(order, source);
      const auto begin = Clock::now();
      bench.Round(target);
      shard_seconds += SecondsSince(begin) / static_cast<double>(rounds * keys);
    }
    auto begin = Clock::now();
    for (size_t r = 0; r < rounds; ++r) limit.Round(order, source, target);
    const double bound_seconds = SecondsSince(begin) / static_cast<double>(rounds * keys);
    begin = Clock::now();
    for (size_t r = 0; r < rounds; ++r) touch.Round(order, source, target);
    const double touched_seconds = SecondsSince(begin) / static_cast<double>(rounds * keys);
    done += rounds;
    if (i == 0) continue;
    shard.push_back(shard_seconds);
    bound.push_back(bound_seconds);
    touched.push_back(touched_seconds);
  }
  if (bench.Value(0) != static_cast<float>(done)) std::fprintf(stderr, "%s: wrong sum\n", name);
  std::printf(
      "{\"row\": \"%s\", \"keys\": %zu, \"bytes\": %zu, \"ns\": %.1f, \"limit_ns\": %.1f, "
      "\"of_limit\": %.3f, \"of_all_bytes\": %.3f}\n",
      name, keys, elements * sizeof(float), Median(shard) * 1e9, Median(bound) * 1e9,
      Median(bound) / Median(shard), Median(touched) / Median(shard));
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
  bench.Prepare(order, reinterpret_cast<const std::byte*>(ones.data()));
  bench.Round(reinterpret_cast<std::byte*>(out.data()));
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
  if (argc == 3 && std::string(argv[1]) == "--keys") {  // one row, for a profiler
    Compare("small", std::stoul(argv[2]), 256, 1024, repetitions);
    return 0;
  }
  if (argc == 3 && std::string(argv[1]) == "--elements") {
    Compare("large", 1, std::stoul(argv[2]), KeyMeta::kChunkElementsDefault, repetitions);
    return 0;
  }
  const size_t most = smoke ? 1000 : 1'000'000;
  for (size_t keys = 10; keys <= most; keys *= 10) {
    Compare("small", keys, 256, 1024, repetitions);
  }
  Compare("large", 1, smoke ? size_t{1} << 18 : size_t{16} << 20, KeyMeta::kChunkElementsDefault,
          repetitions);
  for (const int workers : {1, 2, 4, 8, 16, 32, 64}) CountMessages(workers);
  return 0;
}
