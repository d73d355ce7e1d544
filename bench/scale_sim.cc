// Measures the cost of membership and rounds in a job of many members.  Head, servers and workers
// are the state machines of a real job in one thread.  Each frame is encoded, checked, decoded and
// counted.  The network is a queue with a simulated clock and the same latency for each frame.
//
// Counts and bytes are the same in each run, because the simulation is not random.  CPU is the
// thread's time, assigned to the kind of process that handled the event.  System calls of a real
// process are not included.
//
// scale_sim MEMBERS [SERVERS [KEYS]] prints one JSON object for each phase.  All operations of a
// phase are in progress at once.  With 100,000 keys, a message thus meets as many waiting
// operations.

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "base/format.h"
#include "node/node.h"
#include "tkv/optimizer.h"

namespace {

using namespace tkv;  // NOLINT(google-build-using-namespace)

constexpr Time kLatency = 50'000;       // of each frame
constexpr Time kWithin = kSecond;       // joins, deaths and leaves are spread over it
constexpr Time kLimit = 120 * kSecond;  // of each phase
constexpr size_t kElements = 256;       // of each key: 1 KiB
constexpr size_t kTypes = 128;

enum class Kind : uint8_t { kHead, kServer, kWorker };
constexpr std::array kKinds = {"head", "server", "worker"};

[[noreturn]] void Stop(const std::string& why) {
  std::fprintf(stderr, "scale_sim: %s\n", why.c_str());
  std::exit(1);
}

double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Counts of sent messages, and their cost.
struct Counts {
  std::array<uint64_t, kTypes> messages{};  // by type
  std::array<uint64_t, kTypes> bytes{};     // of entry, extra and body
  uint64_t frames = 0;
  uint64_t frame_bytes = 0;
  uint64_t epoch_bytes = 0;                 // size of the newest EPOCH
  std::array<double, kKinds.size()> cpu{};  // seconds

  Counts operator-(const Counts& before) const {
    Counts since = *this;
    for (size_t type = 0; type < kTypes; ++type) {
      since.messages[type] -= before.messages[type];
      since.bytes[type] -= before.bytes[type];
    }
    since.frames -= before.frames;
    since.frame_bytes -= before.frame_bytes;
    for (size_t kind = 0; kind < kKinds.size(); ++kind) since.cpu[kind] -= before.cpu[kind];
    return since;
  }
  void Add(const Frame& frame) {
    ++frames;
    frame_bytes += frame.head.size() + frame.body_bytes;
    FrameHeader header;
    std::memcpy(&header, frame.head.data(), sizeof header);
    for (uint32_t i = 0; i < header.entry_count; ++i) {
      FrameEntry entry;
      std::memcpy(&entry, frame.head.data() + sizeof header + i * sizeof entry, sizeof entry);
      ++messages[entry.type];
      const uint64_t size = sizeof entry + entry.extra_bytes + entry.body_bytes;
      bytes[entry.type] += size;
      if (static_cast<Type>(entry.type) == Type::kEpoch) epoch_bytes = size;
    }
  }
};

class Job {
 public:
  Job(int members, int servers, int keys)
      : servers_(servers), workers_(members - servers_), ones_(kElements, 1.0F), zeros_(kElements) {
    processes_.resize(static_cast<size_t>(members) + 1);
    HeadOptions head;
    head.workers = workers_;
    head.servers = servers_;
    head.policy = Epoch::Policy::kContinue;
    processes_[0].kind = Kind::kHead;
    processes_[0].node = std::make_unique<HeadNode>(head, &pool_, now_);
    MakeKeys(static_cast<size_t>(keys));
  }

  void Run() {
    Phase("join", [&] { Join(); });
    Phase("init", [&] { Init(); });
    Phase("first round", [&] { Round(); });
    Phase("round", [&] { Round(); });
    Phase("idle", [&] { RunUntil(now_ + kSecond, [] { return false; }); });
    Phase("deaths told", [&] { Die(true); });
    Phase("deaths silent", [&] { Die(false); });
    Phase("round after deaths", [&] { Round(); });
    Phase("barrier", [&] { Barrier(); });
    Phase("control", [&] { Control(); });
    Phase("round after control", [&] { ForAllKeys(Operation::PushPull{}, "the round"); });
    Phase("delete", [&] { ForAllKeys(Operation::Delete{}, "the delete"); });
    Phase("leave", [&] { Leave(); });
  }

 private:
  struct Process {
    Kind kind = Kind::kWorker;
    int index = 0;
    std::unique_ptr<Node> node;  // null: not begun, or ended
    std::vector<uint64_t> ends;  // by link number: 2 * connection + side + 2; 0: none
    Time wakes_at = kNever;      // the time of the next timer
    uint64_t epoch = 0;          // the membership epoch that it knows
    std::vector<float> out;      // of a worker: the last pulled value
  };
  struct Connection {
    std::array<uint32_t, 2> process{};
    std::array<LinkId, 2> link{};  // 0: closed on this side
  };
  struct Arrival {
    Time due = 0;
    uint64_t end = 0;  // 2 * connection + side
    enum class Kind : uint8_t { kAccept, kOpened, kFrame, kClosed } kind{};
    std::unique_ptr<Frame> frame;
  };

  HeadNode& head() { return static_cast<HeadNode&>(*processes_[0].node); }
  Process& worker(int rank) { return processes_[static_cast<size_t>(1 + servers_ + rank)]; }
  ClientNode& client(int rank) { return static_cast<ClientNode&>(*worker(rank).node); }
  static const Epoch& EpochOf(const Process& process) {
    return process.kind == Kind::kServer
               ? static_cast<const ServerNode&>(*process.node).member().epoch()
               : static_cast<const ClientNode&>(*process.node).member().epoch();
  }

  // Makes keys such that each server has at least one.
  void MakeKeys(size_t count) {
    const Placement placement{1, static_cast<uint32_t>(servers_), {}};
    std::vector<bool> has(static_cast<size_t>(servers_));
    size_t lacking = has.size();
    for (int64_t i = 0; keys_.size() < count; ++i) {
      auto meta = std::make_shared<KeyMeta>();
      meta->name = CanonicalKey(0, i);
      meta->shape = Shape({static_cast<int64_t>(kElements)});
      const uint32_t server = ServerOf(placement, IdOf(meta->name), 0);
      if (has[server] && count - keys_.size() <= lacking) continue;
      if (!has[server]) --lacking;
      has[server] = true;
      keys_.push_back(std::move(meta));
    }
  }

  // ---- processes
  void Start(int number) {
    Process& process = processes_[static_cast<size_t>(number)];
    MemberOptions member;
    member.process = static_cast<uint64_t>(number);
    member.AllowSilence(5 * kSecond);
    if (number <= servers_) {
      process.kind = Kind::kServer;
      process.index = number - 1;
      member.role = Role::kServer;
      member.rank = process.index;
      member.address =
          Format("tcp:10.{}.{}.{}:40001", number >> 16, number >> 8 & 255, number & 255);
      process.node = std::make_unique<ServerNode>(member, ShardOptions{}, &pool_);
    } else {
      process.kind = Kind::kWorker;
      process.index = number - 1 - servers_;
      member.rank = process.index;
      process.out.resize(kElements);
      process.node = std::make_unique<ClientNode>(member, ClientOptions{}, &pool_);
    }
    ++living_;
    Do(&process, [&] { process.node->Start(now_); });
  }
  // Ends a process. `told`: its connections close, and the launcher reports the end to the head.
  void End(Process* process, bool told) {
    if (process->epoch == newest_) --informed_;
    --living_;
    for (const uint64_t end : process->ends) {
      if (end != 0 && told) CloseEnd(end - 2);
    }
    process->ends.clear();
    process->node.reset();
  }

  // Lets a process handle an event, and sends the resulting frames.
  template <typename Work>
  void Do(Process* process, const Work& work) {
    const double begin = CpuSeconds();
    work();
    NodeOutput output = process->node->TakeOutput();
    const Time deadline = process->node->deadline();
    counts_.cpu[static_cast<size_t>(process->kind)] += CpuSeconds() - begin;
    for (const NodeOutput::Dial& dial : output.dials) Dial(process, dial);
    for (NodeOutput::Send& send : output.sends) Send(process, std::move(send));
    for (const LinkId link : output.closes) CloseEnd(EndOf(*process, link));
    if (deadline < process->wakes_at) {
      process->wakes_at = deadline;
      wakes_.emplace(deadline, process - processes_.data());
    }
    Note(process);
  }
  void Note(Process* process) {
    if (process->kind == Kind::kHead) {
      if (head().head().epoch().number == newest_) return;
      newest_ = head().head().epoch().number;
      informed_ = 0;
      return;
    }
    const uint64_t epoch = EpochOf(*process).number;
    if (epoch == process->epoch) return;
    process->epoch = epoch;
    if (epoch == newest_) ++informed_;
  }
  // Returns true if all members have the newest EPOCH, and the head has no pending change to send.
  bool AllKnow() { return informed_ == living_ && EpochOf(processes_[1]) == head().head().epoch(); }

  // ---- the network
  uint64_t EndOf(const Process& process, LinkId link) const {
    return link < process.ends.size() ? process.ends[link] - 2 : UINT64_MAX;
  }
  void SetEnd(Process* process, LinkId link, uint64_t end) {
    if (process->ends.size() <= link) process->ends.resize(link + 1);
    process->ends[link] = end + 2;
  }
  void Post(uint64_t end, Arrival::Kind kind, std::unique_ptr<Frame> frame = nullptr) {
    arrivals_.push_back({now_ + kLatency, end, kind, std::move(frame)});
  }
  void Dial(Process* process, const NodeOutput::Dial& dial) {
    const uint64_t id = connections_.size();
    const uint32_t target = dial.peer.kind == Peer::Kind::kHead ? 0 : 1 + dial.peer.index;
    connections_.push_back(
        {{static_cast<uint32_t>(process - processes_.data()), target}, {dial.link, 0}});
    SetEnd(process, dial.link, 2 * id);
    Post(2 * id + 1, Arrival::Kind::kAccept);
  }
  void Send(Process* process, NodeOutput::Send send) {
    const uint64_t end = EndOf(*process, send.link);
    if (end >= 2 * connections_.size()) return;  // closed meanwhile
    counts_.Add(send.frame);
    Post(end ^ 1, Arrival::Kind::kFrame, std::make_unique<Frame>(std::move(send.frame)));
  }
  void CloseEnd(uint64_t end) {
    if (end >= 2 * connections_.size()) return;
    Connection& connection = connections_[end / 2];
    Process& process = processes_[connection.process[end & 1]];
    const LinkId link = std::exchange(connection.link[end & 1], 0);
    if (link == 0) return;
    process.ends[link] = 0;
    Post(end ^ 1, Arrival::Kind::kClosed);
  }
  void Deliver(Arrival arrival) {
    Connection& connection = connections_[arrival.end / 2];
    const size_t side = arrival.end & 1;
    Process& process = processes_[connection.process[side]];
    if (process.node == nullptr) return;
    const LinkId link = connection.link[side];
    if (link == 0 && arrival.kind != Arrival::Kind::kAccept) return;
    switch (arrival.kind) {
      case Arrival::Kind::kAccept:
        connection.link[side] = process.node->Accept();
        SetEnd(&process, connection.link[side], arrival.end);
        return Post(arrival.end ^ 1, Arrival::Kind::kOpened);
      case Arrival::Kind::kOpened:
        return Do(&process, [&] { process.node->Opened(link, now_); });
      case Arrival::Kind::kClosed:
        connection.link[side] = 0;
        process.ends[link] = 0;
        return Do(&process, [&] { process.node->Closed(link, now_); });
      case Arrival::Kind::kFrame:
        return Do(&process, [&] {
          const auto blocks =
              process.node->Land(link, std::as_bytes(std::span(arrival.frame->head)));
          for (size_t i = 0; i < blocks.size(); ++i) {
            const Bytes& body = arrival.frame->bodies[i];
            if (blocks[i]) std::memcpy(blocks[i].data, body.data, body.size);
          }
          arrival.frame.reset();
          process.node->Received(link, now_);
        });
    }
  }

  // ---- time
  void At(Time time, std::function<void()> work) { planned_.emplace(time, std::move(work)); }
  template <typename Done>
  void RunUntil(Time limit, const Done& done) {
    while (!done()) {
      const Time arrival = arrivals_.empty() ? kNever : arrivals_.front().due;
      const Time wake = wakes_.empty() ? kNever : wakes_.top().first;
      const Time plan = planned_.empty() ? kNever : planned_.begin()->first;
      const Time next = std::min({arrival, wake, plan});
      if (next > limit) {
        now_ = limit;
        return;
      }
      now_ = std::max(now_, next);
      if (plan == next) {
        const auto work = std::move(planned_.begin()->second);
        planned_.erase(planned_.begin());
        work();
      } else if (arrival == next) {
        Arrival first = std::move(arrivals_.front());
        arrivals_.pop_front();
        Process& process = processes_[connections_[first.end / 2].process[first.end & 1]];
        Deliver(std::move(first));
        if (process.kind == Kind::kWorker && process.node != nullptr) TakeOutcomes(&process);
      } else {
        Process& process = processes_[wakes_.top().second];
        wakes_.pop();
        if (process.node == nullptr) continue;
        process.wakes_at = kNever;
        Do(&process, [&] {
          if (process.node->deadline() <= now_) process.node->Tick(now_);
        });
      }
    }
  }
  void Await(const char* what, const std::function<bool()>& done) {
    const Time limit = now_ + kLimit;
    RunUntil(limit, done);
    if (!done()) Stop(Format("{} was not done in {} s", what, kLimit / kSecond));
  }
  // Applies `work` to these processes one after another within a second.
  template <typename Work>
  void Spread(const std::vector<int>& whom, const Work& work) {
    const Time begin = now_;
    for (size_t i = 0; i < whom.size(); ++i) {
      At(begin + kWithin * static_cast<Time>(i) / static_cast<Time>(whom.size()),
         [&work, who = whom[i]] { work(who); });
    }
    RunUntil(kNever, [&] { return planned_.empty(); });
  }

  // ---- phases
  void Join() {
    std::vector<int> all;
    for (int number = 1; number <= servers_ + workers_; ++number) all.push_back(number);
    times_["changes"] = servers_ + workers_;
    Spread(all, [&](int number) { Start(number); });
    const Time last = now_;
    Await("the join", [&] { return AllKnow() && AllAre(Epoch::State::kAlive); });
    times_["all_know_ms"] = Milliseconds(now_ - last);
  }
  bool AllAre(Epoch::State state) {
    const Epoch& epoch = head().head().epoch();
    const auto is = [&](const Epoch::Seat& seat) { return seat.state == state; };
    return std::ranges::all_of(epoch.workers, is) && std::ranges::all_of(epoch.servers, is);
  }

  Operation MakeOperation(const Operation::Request& kind, const std::shared_ptr<const KeyMeta>& key,
                          Process* process) {
    Operation operation;
    operation.verb = "scale";
    operation.key = key->name;
    operation.request = kind;
    const bool is_init = operation.Is<Operation::Init>();
    if (auto* const init = std::get_if<Operation::Init>(&operation.request)) init->meta = key;
    if (codec::Contribution* const value = operation.value()) {
      const std::vector<float>& source = is_init ? zeros_ : ones_;
      value->bytes = {reinterpret_cast<const std::byte*>(source.data()), sizeof(float) * kElements,
                      nullptr};
    }
    if (auto* const both = std::get_if<Operation::PushPull>(&operation.request)) {
      both->pull.out = {reinterpret_cast<std::byte*>(process->out.data()),
                        sizeof(float) * kElements, nullptr};
    }
    return operation;
  }
  void ForAllKeys(const Operation::Request& kind, const char* what) {
    awaited_ = 0;
    for (int rank = 0; rank < workers_; ++rank) {
      Process& process = worker(rank);
      if (process.node == nullptr) continue;
      std::vector<Operation> operations;
      for (const auto& key : keys_) operations.push_back(MakeOperation(kind, key, &process));
      awaited_ += operations.size();
      Do(&process, [&] { client(rank).Begin(std::move(operations), now_); });
    }
    const Time begin = now_;
    Await(what, [&] { return awaited_ == 0; });
    times_["done_ms"] = Milliseconds(now_ - begin);
  }
  // Begins an operation of a worker that belongs to no key.
  void Begin(int rank, Operation::Request request) {
    Operation operation;
    operation.verb = "scale";
    operation.request = std::move(request);
    ++awaited_;
    Do(&worker(rank), [&] { client(rank).Begin(std::move(operation), now_); });
  }
  void Barrier() {
    for (int rank = 0; rank < workers_; ++rank) {
      if (worker(rank).node != nullptr) Begin(rank, Operation::Barrier{});
    }
    Await("the barrier", [&] { return awaited_ == 0; });
  }
  void Control() {
    const UpdateSpec spec{Optimizer::Create("test")->program().ToText(), false, {1.0}};
    Begin(0, Operation::Control{spec});
    Await("the control", [&] { return awaited_ == 0; });
  }
  void TakeOutcomes(Process* process) {
    for (const Outcome& outcome : static_cast<ClientNode&>(*process->node).TakeOutcomes()) {
      if (outcome.event == Outcome::Event::kFailed) {
        Stop(Format("worker {}: {}", process->index, outcome.error->what()));
      }
      if (outcome.event == Outcome::Event::kDone) {
        --awaited_;
        if (is_leaving_) return End(process, true);
      }
    }
  }
  void Init() { ForAllKeys(Operation::Init{}, "the init"); }
  void Round() {
    ForAllKeys(Operation::PushPull{}, "the round");
    int living = 0;
    for (int rank = 0; rank < workers_; ++rank)
      living += static_cast<int>(worker(rank).node != nullptr);
    for (int rank = 0; rank < workers_; ++rank) {
      if (worker(rank).node != nullptr && worker(rank).out.back() != static_cast<float>(living)) {
        Stop(Format("worker {} pulled {}, not {}", rank, worker(rank).out.back(), living));
      }
    }
  }

  // Ends a tenth of the workers.
  void Die(bool told) {
    std::vector<int> dying;
    const int count = std::max(1, workers_ / 10);
    for (int rank = 1; static_cast<int>(dying.size()) < count; ++rank) {
      if (worker(rank).node != nullptr) dying.push_back(rank);
    }
    std::map<int, Time> died;
    std::vector<Time> verdicts;
    const auto judge = [&] {
      std::erase_if(died, [&](const auto& entry) {
        const auto& seat = head().head().epoch().workers[static_cast<size_t>(entry.first)];
        if (!seat.IsDead()) return false;
        verdicts.push_back(now_ - entry.second);
        return true;
      });
    };
    Spread(dying, [&](int rank) {
      const uint64_t incarnation = client(rank).client().incarnation();
      died[rank] = now_;
      End(&worker(rank), told);
      if (told) Do(&processes_[0], [&] { head().Exited(Role::kWorker, rank, incarnation); });
      judge();
    });
    const Time last = now_;
    Await("the verdict", [&] {
      judge();
      return died.empty() && AllKnow();
    });
    std::ranges::sort(verdicts);
    times_["changes"] = count;
    times_["verdict_p50_ms"] = Milliseconds(verdicts[verdicts.size() / 2]);
    times_["verdict_max_ms"] = Milliseconds(verdicts.back());
    times_["all_know_ms"] = Milliseconds(now_ - last);
  }

  void Leave() {
    std::vector<int> all;
    for (int rank = 0; rank < workers_; ++rank) {
      if (worker(rank).node != nullptr) all.push_back(rank);
    }
    awaited_ = all.size();
    is_leaving_ = true;
    Spread(all, [&](int rank) {
      Operation leave;
      leave.request = Operation::Leave{};
      leave.verb = "close";
      Do(&worker(rank), [&] { client(rank).Begin(std::move(leave), now_); });
    });
    times_["changes"] = static_cast<double>(all.size());
    const Time last = now_;
    Await("the leave", [&] { return awaited_ == 0 && AllKnow(); });
    times_["all_know_ms"] = Milliseconds(now_ - last);
  }

  // ---- figures
  static double Milliseconds(Time time) { return static_cast<double>(time) / kMillisecond; }
  void Phase(const char* name, const std::function<void()>& work) {
    const Counts before = counts_;
    const uint64_t epoch = newest_;
    times_.clear();
    const Time begin = now_;
    work();
    const Counts since = counts_ - before;
    std::printf(
        "{\"phase\": \"%s\", \"members\": %d, \"workers\": %d, \"servers\": %d, \"virtual_s\": "
        "%.6f, "
        "\"frames\": %llu, \"bytes\": %llu, \"epoch_bytes\": %llu, \"epochs\": %llu, ",
        name, servers_ + workers_, workers_, servers_, static_cast<double>(now_ - begin) / kSecond,
        static_cast<unsigned long long>(since.frames),
        static_cast<unsigned long long>(since.frame_bytes),
        static_cast<unsigned long long>(counts_.epoch_bytes),
        static_cast<unsigned long long>(newest_ - epoch));
    for (const auto& [what, value] : times_) std::printf("\"%s\": %.3f, ", what.c_str(), value);
    double cpu = 0;
    uint64_t messages = 0;
    for (size_t kind = 0; kind < kKinds.size(); ++kind) cpu += since.cpu[kind];
    for (size_t type = 0; type < kTypes; ++type) messages += since.messages[type];
    std::printf("\"cpu_us_per_message\": %.3f, ",
                messages == 0 ? 0 : 1e6 * cpu / static_cast<double>(messages));
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      std::printf("\"%s_cpu_ms\": %.3f, \"%s_links\": %zu, ", kKinds[kind], 1e3 * since.cpu[kind],
                  kKinds[kind], MostLinks(static_cast<Kind>(kind)));
    }
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    std::printf("\"simulator_mib\": %ld, \"messages\": {", usage.ru_maxrss >> 10);
    const char* comma = "";
    for (size_t type = 0; type < kTypes; ++type) {
      if (since.messages[type] == 0) continue;
      std::printf("%s\"%s\": [%llu, %llu]", comma, tkv::Name(static_cast<Type>(type)),
                  static_cast<unsigned long long>(since.messages[type]),
                  static_cast<unsigned long long>(since.bytes[type]));
      comma = ", ";
    }
    std::printf("}}\n");
    std::fflush(stdout);
  }
  size_t MostLinks(Kind kind) const {
    size_t most = 0;
    for (const Process& process : processes_) {
      if (process.kind != kind || process.node == nullptr) continue;
      const auto open = std::ranges::count_if(process.ends, [](uint64_t end) { return end != 0; });
      most = std::max(most, static_cast<size_t>(open));
    }
    return most;
  }

  const int servers_, workers_;
  const std::vector<float> ones_, zeros_;
  std::vector<std::shared_ptr<const KeyMeta>> keys_;
  BufferPool pool_;
  Time now_ = 0;
  std::vector<Process> processes_;  // the head, the servers, the workers
  std::vector<Connection> connections_;
  std::deque<Arrival> arrivals_;  // in order of time, because all have the same latency
  std::priority_queue<std::pair<Time, size_t>, std::vector<std::pair<Time, size_t>>, std::greater<>>
      wakes_;
  std::multimap<Time, std::function<void()>> planned_;
  Counts counts_;
  uint64_t newest_ = 0;  // the head's newest EPOCH
  size_t living_ = 0;    // servers and workers
  size_t informed_ = 0;  // members that have this EPOCH
  size_t awaited_ = 0;   // operations in progress
  bool is_leaving_ = false;
  std::map<std::string, double> times_;  // and other figures of the phase
};

}  // namespace

int main(int count, char** words) {
  const int members = count > 1 ? std::atoi(words[1]) : 0;
  // An eighth of the members, up to the memory of one machine: each worker has a connection to each
  // server.
  const int servers = count > 2 ? std::atoi(words[2]) : std::clamp(members / 8, 1, 128);
  const int keys = count > 3 ? std::atoi(words[3]) : servers;
  if (servers < 1 || members < servers + 3 || keys < servers) {
    Stop("scale_sim MEMBERS [SERVERS [KEYS]], of which no server is without a key");
  }
  Job(members, servers, keys).Run();
  return 0;
}
