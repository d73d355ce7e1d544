#include "metrics.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdio>
#include <utility>

#include "exit_status.h"
#include "interrupt.h"
#include "number.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr std::chrono::milliseconds kServeSlice{200};  // the interval of checks for a signal
constexpr std::chrono::seconds kRequestPatience{2};    // for a peer to send its request
constexpr size_t kRequestBytesMax = 8 << 10;
constexpr int kSessionsMax = 1000;

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

// The samples of one metric, after its HELP and TYPE lines.
class Family {
 public:
  Family(std::string* text, const char* name, const char* type, const char* help)
      : text_(text), name_(name) {
    *text_ += std::string("# HELP ") + name + ' ' + help + "\n# TYPE " + name + ' ' + type + '\n';
  }
  void Add(const std::string& labels, double value) {
    *text_ += name_ + (labels.empty() ? "" : '{' + labels + '}') + ' ' + NumberText(value) + '\n';
  }

 private:
  std::string* const text_;
  const std::string name_;
};

std::string Label(const char* name, std::string_view value) {
  return std::string(name) + "=\"" + EscapedLabel(value) + '"';
}
std::string Label(const char* name, size_t value) { return Label(name, std::to_string(value)); }

std::string KeyLabels(const KeyStatus& key) {
  return Label("key", KeyText(key.key)) + ',' + Label("store", key.store);
}

// Serves requests one after another on the thread that calls Serve.  This suffices for a scraper
// that asks every few seconds.
class Server {
 public:
  Server(const StatusOptions& options, const KVStore& store) : store_(store) {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(options.bind, error);
    if (error) {
      throw Error(Code::kInvalidArgument,
                  "status: --bind " + options.bind + ": an address is needed");
    }
    const tcp::endpoint at(address, static_cast<uint16_t>(options.metrics_port));
    try {
      acceptor_.open(at.protocol());
      acceptor_.set_option(asio::socket_base::reuse_address(true));
      acceptor_.bind(at);
      acceptor_.listen();
      Accept();
    } catch (const boost::system::system_error& failed) {
      const bool is_taken = failed.code() == boost::system::errc::address_in_use;
      throw Error(is_taken ? Code::kAlreadyExists : Code::kUnavailable,
                  "status: --metrics " + std::to_string(options.metrics_port) + ": " +
                      failed.code().message());
    }
  }

  // Accepts connections for ever.  Idle connections do not block others: each is closed after two
  // seconds.
  void Accept() {
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      // For example no free file descriptor; tried again in the next turn.
      has_failed_ = static_cast<bool>(error);
      if (has_failed_) return;
      if (sessions_ < kSessionsMax) Begin(std::move(socket));
      Accept();
    });
  }

  uint16_t port() const { return acceptor_.local_endpoint().port(); }

  // Serves for at most `longest`.
  void Serve(std::chrono::milliseconds longest) {
    context_.restart();
    if (std::exchange(has_failed_, false)) Accept();
    context_.run_for(longest);
  }

 private:
  struct Session {
    Session(tcp::socket socket, int* sessions) : stream(std::move(socket)), count(sessions) {
      ++*count;
      request.header_limit(kRequestBytesMax);
      request.body_limit(kRequestBytesMax);
      stream.expires_after(kRequestPatience);
    }
    ~Session() { --*count; }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    beast::tcp_stream stream;
    int* const count;
    beast::flat_buffer buffer{kRequestBytesMax};
    http::request_parser<http::string_body> request;
    http::response<http::string_body> response;
  };

  void Begin(tcp::socket socket) {
    const auto session = std::make_shared<Session>(std::move(socket), &sessions_);
    http::async_read(session->stream, session->buffer, session->request,
                     [this, session](beast::error_code error, size_t) {
                       if (!error) Answer(session);
                     });
  }

  void Answer(const std::shared_ptr<Session>& session) {
    const auto& request = session->request.get();
    auto& response = session->response;
    response.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    response.keep_alive(false);
    const std::string_view target = request.target().substr(0, request.target().find('?'));
    const bool has_body = request.method() != http::verb::head;
    if ((has_body && request.method() != http::verb::get) || target != "/metrics") {
      response.result(http::status::not_found);
      response.body() = "GET /metrics is what there is\n";
    } else {
      try {
        response.body() = MetricsText(store_.Status());
      } catch (const Error& error) {
        if (SignalThatCame() != 0) return;
        response.result(http::status::service_unavailable);
        response.body() = std::string(error.what()) + '\n';
      }
    }
    response.prepare_payload();
    if (!has_body) response.body().clear();  // HTTP requires the length in the answer to HEAD
    session->stream.expires_after(kRequestPatience);
    http::async_write(session->stream, response, [session](beast::error_code, size_t) {});
  }

  const KVStore& store_;
  int sessions_ = 0;         // declared before the context, whose handlers use it
  bool has_failed_ = false;  // the last accept failed
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
};

}  // namespace

std::string MetricsText(const JobStatus& status) {
  std::string text;
  {
    Family well(&text, "tensorkv_well", "gauge",
                "1: all servers answer, no worker is dead, the head is in reach.");
    well.Add(Label("job", status.job), status.wrong().empty() ? 1 : 0);
    Family epoch(&text, "tensorkv_epoch", "counter", "Changes of the membership.");
    epoch.Add("", static_cast<double>(status.epoch));
    Family observers(&text, "tensorkv_observers", "gauge", "Processes that look at the job.");
    observers.Add("", static_cast<double>(status.observers));
  }
  Family workers(&text, "tensorkv_worker_state", "gauge", "1 for the state that a worker is in.");
  for (size_t i = 0; i < status.workers.size(); ++i) {
    workers.Add(Label("rank", i) + ',' + Label("state", status.workers[i].state), 1);
  }
  // The counters are sums over all servers.  If one is silent they are omitted, because they would
  // be too small.
  const bool is_whole = std::ranges::all_of(
      status.servers, [](const ServerStatus& server) { return server.error.empty(); });
  Family pushes(&text, "tensorkv_worker_pushes_total", "counter",
                "Chunks that a life of a worker has pushed.");
  for (size_t i = 0; is_whole && i < status.workers.size(); ++i) {
    pushes.Add(Label("rank", i), static_cast<double>(status.workers[i].pushes));
  }
  Family pushed(&text, "tensorkv_worker_pushed_bytes_total", "counter", "Bytes of them.");
  for (size_t i = 0; is_whole && i < status.workers.size(); ++i) {
    pushed.Add(Label("rank", i), static_cast<double>(status.workers[i].pushed_bytes));
  }
  Family held(&text, "tensorkv_worker_awaited_rounds", "gauge",
              "Open rounds that a worker has not pushed.");
  std::vector<size_t> awaited(status.workers.size());
  for (const RoundStatus& round : status.rounds) {
    for (const int rank : round.waits_for) {
      if (static_cast<size_t>(rank) < awaited.size()) ++awaited[static_cast<size_t>(rank)];
    }
  }
  for (size_t i = 0; i < awaited.size(); ++i) {
    held.Add(Label("rank", i), static_cast<double>(awaited[i]));
  }
  Family servers(&text, "tensorkv_server_answers", "gauge", "1: the server has answered.");
  for (size_t i = 0; i < status.servers.size(); ++i) {
    servers.Add(Label("server", i), status.servers[i].error.empty() ? 1 : 0);
  }
  Family memory(&text, "tensorkv_server_bytes", "gauge",
                "Memory of values, and of what updates and open rounds keep beside them.");
  for (size_t i = 0; i < status.servers.size(); ++i) {
    const ServerStatus& server = status.servers[i];
    if (!server.error.empty()) continue;
    memory.Add(Label("server", i) + ',' + Label("of", "values"),
               static_cast<double>(server.value_bytes));
    memory.Add(Label("server", i) + ',' + Label("of", "others"),
               static_cast<double>(server.other_bytes));
  }
  Family rounds(&text, "tensorkv_key_round", "counter",
                "Round that all chunks of a key have reached.");
  for (const KeyStatus& key : status.keys) {
    rounds.Add(KeyLabels(key), static_cast<double>(key.round));
  }
  Family bytes(&text, "tensorkv_key_bytes", "gauge", "Memory of a key's value on the servers.");
  for (const KeyStatus& key : status.keys) {
    bytes.Add(KeyLabels(key), static_cast<double>(key.bytes));
  }
  Family oldest(&text, "tensorkv_oldest_round_seconds", "gauge",
                "Since when the oldest round that is open waits.");
  oldest.Add("", status.rounds.empty() ? 0 : status.rounds[0].seconds);
  return text;
}

int ServeMetrics(const StatusOptions& options, Form form) {
  const auto store = Observe(options);
  Server server(options, *store);
  const std::string host =
      options.bind.find(':') == std::string::npos ? options.bind : '[' + options.bind + ']';
  const std::string url = "http://" + host + ':' + std::to_string(server.port()) + "/metrics";
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
