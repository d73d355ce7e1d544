#include "bench_job.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "agent.h"
#include "tkv/config.h"
#include "tkv/doctor.h"
#include "tkv/error.h"

extern char** environ;

namespace tkv::cli {
namespace {

constexpr std::chrono::seconds kPatience{20};  // for a host

Error OfOtherVersion(const std::string& host, const std::string& version) {
  return {Code::kUnavailable, "bench: host '" + host + "': tensorkv " + version + " there, " +
                                  BuildVersion() + " here"};
}

void CheckGreeting(const std::string& host, Companion* agent) {
  const Greeting greeting = AwaitGreeting(agent);
  if (greeting.version == BuildVersion()) return;
  if (!greeting.version.empty()) throw OfOtherVersion(host, greeting.version);
  if (agent->is_silent()) {
    throw Error(Code::kDeadlineExceeded, "bench: host '" + host + "' says nothing for " +
                                             std::to_string(kPatience.count()) + " s");
  }
  throw Error(Code::kUnavailable, "bench: " + WhyNoAgent(host, agent->Close(), greeting.before));
}

std::vector<std::string> VariablesForOthers() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.starts_with("TKV_") && !text.starts_with("TKV_TOKEN_FILE=")) variables.push_back(text);
  }
  return variables;
}

}  // namespace

OtherSide::OtherSide(const std::string& host) : host_(host) {
  const std::string name = NameOf(ssh_, host, {.watchdog = &watchdog_});
  const std::string door = Door::Open(name, NewToken())->address();  // "tcp:10.0.0.1:40123"
  own_name_ = door.substr(4, door.rfind(':') - 4);
}

std::unique_ptr<Companion> OtherSide::Start(const std::vector<std::string>& words,
                                            const std::string& token) const {
  if (is_far()) return StartThere(words, token);
  SpawnOptions options{.words = words, .input = Stdin::kPipe, .watchdog = &watchdog_};
  options.words.insert(options.words.begin(), OwnPath());
  return std::make_unique<Companion>(std::move(options), kPatience);
}

std::unique_ptr<Companion> OtherSide::StartThere(const std::vector<std::string>& words,
                                                 const std::string& token) const {
  SpawnOptions options{
      .words = AgentCommand(ssh_, host_), .input = Stdin::kPipe, .watchdog = &watchdog_};
  auto agent = std::make_unique<Companion>(std::move(options), kPatience);
  CheckGreeting(host_, agent.get());
  AgentOrder order{.variables = VariablesForOthers(), .token = token, .python = OwnPython()};
  order.words = words;
  order.words.insert(order.words.begin(), "");  // tkv itself
  agent->Tell(Encode(order));
  return agent;
}

BenchJob::BenchJob(const std::string& transport, const OtherSide& side,
                   std::function<void()> interrupt) {
  const bool is_tcp = transport == "tcp";
  unsetenv("TKV_TOKEN_FILE");
  StoreOptions options = OptionsFromEnvironment();
  options.transport = transport;
  options.interrupt = std::move(interrupt);
  Job job;
  static_cast<NetworkOptions&>(job) = options;
  job.role = Job::Role::kHead;
  job.id = NewToken().substr(0, 16);
  if (is_tcp) {
    job.token = NewToken();
    token_file_.emplace(job.token, side.watchdog());
    setenv("TKV_TOKEN_FILE", token_file_->path().c_str(), 1);
    job.head = "tcp:" + side.own_name() + ":0";
  }
  head_ = Service::Start(job);
  setenv("TKV_JOB", job.id.c_str(), 1);
  setenv("TKV_HEAD", head_->address().c_str(), 1);
  setenv("TKV_ROLE", "worker", 1);
  setenv("TKV_TRANSPORT", transport.c_str(), 1);
  for (const char* const count : {"TKV_WORKERS", "TKV_SERVERS"}) setenv(count, "1", 1);
  setenv("TKV_RANK", "0", 1);  // of this worker, and of its server
  server_ = side.Start({"server", "--quiet"}, job.token);
  try {
    store_ = KVStore::Create("dist_sync", options);
  } catch (const Error& error) {
    const std::string said = server_->CloseAndRead();
    if (said.empty()) throw;
    throw Error(error.code(), std::string(error.what()) + "; the server says: " + said);
  }
}

BenchJob::~BenchJob() {
  store_.reset();   // its server then ends by itself
  server_.reset();  // ended here if it did not
}

}  // namespace tkv::cli
