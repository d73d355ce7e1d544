#include "metrics.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "exit_status.h"
#include "http_server.h"
#include "interrupt.h"
#include "number.h"
#include "tkv/config.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

constexpr std::chrono::milliseconds kServeSlice{200};  // the interval of checks for a signal

std::string EscapedLabel(std::string_view label) {
  std::string text;
  for (const char c : label) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

std::string Label(const char* name, std::string_view value) {
  return std::string(name) + "=\"" + EscapedLabel(value) + '"';
}
std::string Label(const char* name, size_t value) { return Label(name, std::to_string(value)); }

std::string KeyLabels(const KeyStatus& key) {
  return Label("key", KeyText(key.key)) + ',' + Label("store", key.store);
}

// Writes families of samples.  Each sample has the label `job`.
class Writer {
 public:
  explicit Writer(const std::string& job) : job_(Label("job", Utf8(job))) {}

  // Begins a family.
  void Begin(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += "# HELP " + name_ + ' ' + help + "\n# TYPE " + name_ + ' ' + type + '\n';
  }
  // Adds a sample to the family.
  void Add(const std::string& labels, double value) {
    text_ +=
        name_ + '{' + job_ + (labels.empty() ? "" : ',' + labels) + "} " + NumberText(value) + '\n';
  }
  // Writes a family of one sample.
  void AddOne(const char* name, const char* type, const char* help, double value) {
    Begin(name, type, help);
    Add("", value);
  }
  std::string Take() { return std::move(text_); }

 private:
  const std::string job_;
  std::string text_, name_;
};

// Returns how long the oldest round has waited for a worker that is alive, or 0.
double StuckSeconds(const JobStatus& status) {
  const auto is_alive = [&status](size_t rank) {
    return rank < status.workers.size() && status.workers[rank].state == "alive";
  };
  size_t living = 0;
  for (size_t i = 0; i < status.workers.size(); ++i) living += is_alive(i);
  const size_t others = status.workers.size() - living;
  double seconds = 0;
  for (const RoundStatus& round : status.rounds) {
    // The list is cut.  A round that waits for more workers than are not alive waits for one that
    // is alive.
    const bool waits =
        round.waits_for_count > others || std::ranges::any_of(round.waits_for, [&](int rank) {
          return is_alive(static_cast<size_t>(rank));
        });
    if (waits) seconds = std::max(seconds, round.seconds);
  }
  return seconds;
}

void WriteWorkers(const JobStatus& status, Writer* writer) {
  const std::vector<WorkerStatus>& workers = status.workers;
  writer->Begin("tensorkv_worker_state", "gauge", "1 for the state that a worker is in.");
  for (size_t i = 0; i < workers.size(); ++i) {
    writer->Add(Label("rank", i) + ',' + Label("state", workers[i].state), 1);
  }
  writer->Begin("tensorkv_worker_life", "gauge",
                "Number of a worker's process; a larger one than before: it was started again.");
  for (size_t i = 0; i < workers.size(); ++i) {
    if (workers[i].life > 0) writer->Add(Label("rank", i), static_cast<double>(workers[i].life));
  }
  // The counters are sums over all servers.  If one is silent they are omitted, because they would
  // be too small.
  const bool is_whole = std::ranges::all_of(
      status.servers, [](const ServerStatus& server) { return server.error.empty(); });
  writer->Begin("tensorkv_worker_pushes_total", "counter",
                "Chunks that a life of a worker has pushed.");
  for (size_t i = 0; is_whole && i < workers.size(); ++i) {
    writer->Add(Label("rank", i), static_cast<double>(workers[i].pushes));
  }
  writer->Begin("tensorkv_worker_pushed_bytes_total", "counter",
                "Bytes of the chunks that a life of a worker has pushed.");
  for (size_t i = 0; is_whole && i < workers.size(); ++i) {
    writer->Add(Label("rank", i), static_cast<double>(workers[i].pushed_bytes));
  }
  writer->Begin("tensorkv_worker_awaited_rounds", "gauge",
                "Open rounds that a worker has not pushed.");
  std::vector<size_t> awaited(workers.size());
  for (const RoundStatus& round : status.rounds) {
    for (const int rank : round.waits_for) {
      if (static_cast<size_t>(rank) < awaited.size()) ++awaited[static_cast<size_t>(rank)];
    }
  }
  for (size_t i = 0; i < awaited.size(); ++i) {
    writer->Add(Label("rank", i), static_cast<double>(awaited[i]));
  }
}

void WriteServers(const std::vector<ServerStatus>& servers, Writer* writer) {
  writer->Begin("tensorkv_server_state", "gauge", "1 for the state that a server is in.");
  for (size_t i = 0; i < servers.size(); ++i) {
    writer->Add(Label("server", i) + ',' + Label("state", servers[i].state), 1);
  }
  writer->Begin("tensorkv_server_life", "gauge",
                "Number of a server's process; a larger one than before: it was started again.");
  for (size_t i = 0; i < servers.size(); ++i) {
    if (servers[i].life > 0) writer->Add(Label("server", i), static_cast<double>(servers[i].life));
  }
  writer->Begin("tensorkv_server_answers", "gauge", "1: the server has answered.");
  for (size_t i = 0; i < servers.size(); ++i) {
    writer->Add(Label("server", i), servers[i].error.empty() ? 1 : 0);
  }
  writer->Begin("tensorkv_server_bytes", "gauge",
                "Memory of values, and of what updates and open rounds keep beside them.");
  for (size_t i = 0; i < servers.size(); ++i) {
    if (!servers[i].error.empty()) continue;
    writer->Add(Label("server", i) + ',' + Label("of", "values"),
                static_cast<double>(servers[i].value_bytes));
    writer->Add(Label("server", i) + ',' + Label("of", "others"),
                static_cast<double>(servers[i].other_bytes));
  }
}

void WriteKeys(const std::vector<KeyStatus>& keys, Writer* writer) {
  writer->Begin("tensorkv_key_rounds_total", "counter",
                "Round that all chunks of a key have reached.");
  for (const KeyStatus& key : keys) writer->Add(KeyLabels(key), static_cast<double>(key.round));
  writer->Begin("tensorkv_key_bytes", "gauge", "Memory of a key's value on the servers.");
  for (const KeyStatus& key : keys) writer->Add(KeyLabels(key), static_cast<double>(key.bytes));
}

}  // namespace

std::string MetricsText(const JobStatus& status) {
  Writer writer(status.job);
  writer.Begin("tensorkv_build_info", "gauge", "1; the label has the version of the job.");
  writer.Add(Label("version", Version()), 1);
  writer.AddOne("tensorkv_healthy", "gauge",
                "1: all servers answer, no worker is dead, the head is in reach.",
                status.wrong().empty() ? 1 : 0);
  writer.AddOne("tensorkv_membership_changes_total", "counter", "Changes of the membership.",
                static_cast<double>(status.epoch));
  writer.AddOne("tensorkv_observers", "gauge", "Processes that look at the job.",
                static_cast<double>(status.observers));
  writer.AddOne("tensorkv_oldest_round_seconds", "gauge",
                "Seconds that the oldest open round has waited for a worker; 0: none is open.",
                status.rounds.empty() ? 0 : status.rounds[0].seconds);
  writer.AddOne("tensorkv_stuck_seconds", "gauge",
                "Seconds that the oldest round has waited for a worker that is alive; 0: none.",
                StuckSeconds(status));
  WriteWorkers(status, &writer);
  WriteServers(status.servers, &writer);
  WriteKeys(status.keys, &writer);
  return writer.Take();
}

int ServeMetrics(const StatusOptions& options, Form form) {
  const auto store = Observe(options);
  HttpServer server({.address = options.bind,
                     .port = options.metrics_port,
                     .verb = "status",
                     .port_option = "--metrics"},
                    [&store](const HttpRequest& request) -> HttpResponse {
                      if (request.path != "/metrics") {
                        return {.status = 404, .body = "GET /metrics is what there is\n"};
                      }
                      return {.type = "text/plain; version=0.0.4; charset=utf-8",
                              .body = MetricsText(store->Status())};
                    });
  const std::string url = server.url() + "/metrics";
  if (form == Form::kJson) {
    Print(JsonObject("metrics").Add("url", url));
  } else {
    std::printf("metrics at %s\n", url.c_str());
    std::fflush(stdout);
  }
  while (SignalThatCame() == 0) server.Serve(kServeSlice);
  return 128 + SignalThatCame();
}

}  // namespace tkv::cli
