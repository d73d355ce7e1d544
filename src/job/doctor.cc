#include "tkv/doctor.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/arena.h"
#include "base/format.h"
#include "base/process.h"
#include "base/start_thread.h"
#include "bootstrap/pmix/pmix.h"
#include "job/process_job.h"
#include "tkv/config.h"
#include "tkv/job.h"
#include "transport/address.h"
#include "transport/factory.h"
#include "wire/frame.h"
#include "wire/version.h"

namespace tkv {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = Finding::Kind;

constexpr std::chrono::seconds kPatience{5};
constexpr int kRoundTrips = 20;
constexpr int64_t kTurnNanoseconds = 100'000'000;
constexpr uint64_t kFilesWanted = 1024;

Frame FrameOf(Type type) {
  Message message;
  message.type = type;
  FrameBuilder builder;
  builder.Add(std::move(message));
  return builder.Finish(0, 0);
}

Type TypeOf(std::span<const std::byte> head) {
  const FrameHeader header = DecodeHeader(head.first(sizeof(FrameHeader)), FrameLimits::Unproved());
  std::vector<Message> messages;
  DecodeMessages(header, head, &messages);
  if (messages.size() != 1) throw Fail(Code::kInvalidArgument, "{} messages", messages.size());
  return messages[0].type;
}

// A handler that answers each PING.
class Answering final : public LinkHandler {
 public:
  explicit Answering(Endpoint* endpoint) : endpoint_(endpoint) {}
  uint64_t Accepted() override { return ++last_; }
  void Opened(uint64_t) override {}
  void Closed(uint64_t, const Error&) override {}
  std::vector<Block> Land(uint64_t, std::span<const std::byte> head, const std::byte*) override {
    if (TypeOf(head) != Type::kPing) throw Fail(Code::kInvalidArgument, "a door answers PING");
    return {};
  }
  void Received(uint64_t link) override { endpoint_->Send(link, FrameOf(Type::kPong)); }

 private:
  Endpoint* const endpoint_;
  uint64_t last_ = 0;
};

// A handler that sends one PING after another.
class Knocking final : public LinkHandler {
 public:
  explicit Knocking(Endpoint* endpoint) : endpoint_(endpoint) {}
  uint64_t Accepted() override { return 0; }
  void Opened(uint64_t link) override { Ask(link); }
  void Closed(uint64_t, const Error& reason) override { error = reason; }
  std::vector<Block> Land(uint64_t, std::span<const std::byte> head, const std::byte*) override {
    if (TypeOf(head) != Type::kPong) throw Fail(Code::kInvalidArgument, "a door says PONG");
    return {};
  }
  void Received(uint64_t link) override {
    const auto taken = Clock::now() - asked_;
    shortest = answers == 0 ? taken : std::min<std::chrono::nanoseconds>(shortest, taken);
    if (++answers < kRoundTrips) Ask(link);
  }

  int answers = 0;
  std::chrono::nanoseconds shortest{};
  std::optional<Error> error;

 private:
  void Ask(uint64_t link) {
    asked_ = Clock::now();
    endpoint_->Send(link, FrameOf(Type::kPing));
  }
  Endpoint* const endpoint_;
  Clock::time_point asked_;
};

// Opens an endpoint as processes of one host use it, but without shared memory.
std::unique_ptr<Endpoint> OpenAt(const std::string& token, std::vector<std::string> listen) {
  EndpointOptions options;
  options.who = "tkv doctor";
  options.listen = std::move(listen);
  options.token = token;
  return BuiltTransport("unix").Open(std::move(options));
}

class TransportDoor final : public Door {
 public:
  TransportDoor(const std::string& where, std::string token)
      : token_(std::move(token)), endpoint_(OpenAt(token_, {where})) {
    thread_ = StartThread("try connections with", [this] {
      Answering answering(endpoint_.get());
      while (!stopping_) {
        endpoint_->Poll(&answering, 16);
        endpoint_->Wait(kTurnNanoseconds);
      }
    });
  }
  ~TransportDoor() override {
    stopping_ = true;
    endpoint_->Wake();
    thread_.join();
  }
  TransportDoor(const TransportDoor&) = delete;
  TransportDoor& operator=(const TransportDoor&) = delete;

  const std::string& address() const override { return endpoint_->address(); }

  Answer Knock(const std::string& address) override {
    const auto endpoint = OpenAt(token_, {});
    Knocking knocking(endpoint.get());
    const auto deadline = Clock::now() + kPatience;
    endpoint->Dial(1, address);
    while (knocking.answers < kRoundTrips && !knocking.error && Clock::now() < deadline) {
      endpoint->Poll(&knocking, 16);
      if (knocking.answers < kRoundTrips && !knocking.error) endpoint->Wait(kTurnNanoseconds);
    }
    if (knocking.answers < kRoundTrips && !knocking.error) {
      knocking.error = Fail(Code::kDeadlineExceeded, "{}: no answer in {} s", address,
                            static_cast<int>(kPatience.count()));
    }
    return {knocking.error, knocking.shortest};
  }

 private:
  const std::string token_;
  const std::unique_ptr<Endpoint> endpoint_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// ---- this machine -----------------------------------------------------------------------------

Finding Variables() {
  const char* const repair = "unset it or mend it; docs/launching.md lists them";
  try {
    OptionsFromEnvironment();
    const std::vector<std::string> unknown = UnknownVariables();
    if (!unknown.empty()) return {Kind::kBad, "variables", Join(unknown, "; "), repair};
    const bool has_token = !TokenFromEnvironment().empty();
    if (!IsLaunched()) {
      return {Kind::kGood, "variables",
              has_token ? "TKV_TOKEN_FILE names a token; no launcher has set any"
                        : "no launcher has set any",
              ""};
    }
    const Job job = JobFromEnvironment();
    return {Kind::kGood, "variables",
            Format("{} of job '{}', head at '{}', {}", Name(job.role), job.id, job.head,
                   job.token.empty() ? "without a token" : "with a token"),
            ""};
  } catch (const Error& error) {
    return {Kind::kBad, "variables", error.what(), repair};
  }
}

Finding KnockAtHome(const char* what, const std::string& where, const char* repair) {
  try {
    TransportDoor door(where, NewToken());
    Finding finding = FindingOf(what, door.Knock(door.address()));
    if (finding.kind == Kind::kBad) finding.repair = repair;
    return finding;
  } catch (const Error& error) {
    return {Kind::kBad, what, error.what(), repair};
  }
}

Finding SharedMemory() {
  std::string why;
  const std::shared_ptr<Arena> arena = Arena::Open(&why);
  const bool can_hold = arena != nullptr && arena->Allocate(size_t{1} << 20);
  if (can_hold) return {Kind::kGood, "shared memory", "a sealed memfd can be made and used", ""};
  if (why.empty()) why = "1 MiB of it cannot be had";
  return {Kind::kNote, "shared memory", why + "; large values go through Unix sockets, slower",
          "raise the limit (ulimit -v, ulimit -n, the memory of the container), or set "
          "TKV_TRANSPORT=unix to be rid of the warning"};
}

Finding Pmix() {
  std::string why;
  if (PmixGroup::IsThere(&why)) {
    return {Kind::kGood, "PMIx",
            IsInGroup() ? "this process is in a group of it" : "its library can be loaded", ""};
  }
  return {Kind::kNote, "PMIx", why, "only mpirun and srun need it: apt-get install libpmix2"};
}

Finding Files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto as_server = std::min<uint64_t>(limit.rlim_max, kFilesMax);  // see RaiseFileLimit
  const bool is_enough = as_server >= kFilesWanted;
  return {is_enough ? Kind::kGood : Kind::kNote, "files",
          Format("this process may open {}{}", limit.rlim_cur,
                 as_server > limit.rlim_cur ? Format(", as a server or head {}", as_server) : ""),
          is_enough ? "" : "ulimit -n 4096, for jobs of many processes"};
}

}  // namespace

std::string BuildVersion() { return Format("{} protocol {}", Version(), kProtocolVersion); }

// Reports the job of a store that would be created in this environment.
Finding JobFound() {
  const std::vector<JobSign> signs = JobSigns();
  if (signs.empty() && IsSlurmTask()) {
    return {Kind::kNote, "job",
            "this is Slurm without PMIx, and nothing else says who takes part: no store of several "
            "workers can be made here",
            "start the tasks by srun --mpi=pmix"};
  }
  if (signs.empty()) {
    return {Kind::kNote, "job", "nothing says which job this process belongs to", ""};
  }
  std::string text = signs[0].text;
  for (size_t i = 1; i < signs.size(); ++i) {
    text += Format("{}{}", i == 1 ? " decides, and not " : " or ", signs[i].text);
  }
  return {Kind::kGood, "job", text, ""};
}

std::vector<Finding> ExamineHost() {
  return {{Kind::kGood, "version", BuildVersion(), ""},
          {Kind::kGood, "cores", Format("{} for this process", UsableCores()), ""},
          Variables(),
          JobFound(),
          KnockAtHome("unix sockets", "unix", "TKV_TRANSPORT=tcp does without them"),
          SharedMemory(),
          KnockAtHome("loopback", "tcp:127.0.0.1:0",
                      "bring it up: ip link set lo up; let a firewall pass what stays on it"),
          Pmix(),
          Files()};
}

std::unique_ptr<Door> Door::Open(const std::string& towards, const std::string& token) {
  if (token.empty()) throw Fail(Code::kInvalidArgument, "a door needs a token");
  std::string host = towards.empty() ? "127.0.0.1" : towards;
  if (host.starts_with("tcp:")) host = ParseAddresses(host).front().host;
  const std::string own = LocalAddressTowards(host);
  return std::make_unique<TransportDoor>(ToString({PeerAddress::Kind::kTcp, own, "", 0}), token);
}

Finding FindingOf(const std::string& what, const Door::Answer& answer) {
  if (!answer.error) {
    const double microseconds = static_cast<double>(answer.round_trip.count()) / 1e3;
    return {Kind::kGood, what, Format("there and back in {:.0f} us", microseconds), ""};
  }
  const bool is_strange = answer.error->code() == Code::kUnauthenticated;
  const bool is_other = answer.error->code() == Code::kFailedPrecondition;
  return {Kind::kBad, what, answer.error->what(),
          is_strange ? "give both hosts the same file behind TKV_TOKEN_FILE"
          : is_other ? "install the same tensorkv on both"
                     : "let the firewalls pass TCP between these hosts, on all ports above 1023, "
                       "and see that each routes to the other's address"};
}

}  // namespace tkv
