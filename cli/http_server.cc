#include "http_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "tkv/error.h"

namespace tkv::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr std::chrono::seconds kRequestPatience{2};  // for a peer to send its request
constexpr size_t kRequestBytesMax = 8 << 10;
constexpr int kSessionsMax = 1000;

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

}  // namespace

struct HttpServer::State {
  State(const Options& options, Handler handler) : handler(std::move(handler)) {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(options.address, error);
    if (error) {
      throw Error(Code::kInvalidArgument,
                  options.verb + ": --bind " + options.address + ": an address is needed");
    }
    const tcp::endpoint at(address, static_cast<uint16_t>(options.port));
    try {
      acceptor.open(at.protocol());
      acceptor.set_option(asio::socket_base::reuse_address(true));
      acceptor.bind(at);
      acceptor.listen();
      Accept();
    } catch (const boost::system::system_error& failed) {
      const bool is_taken = failed.code() == boost::system::errc::address_in_use;
      const std::string option = options.port_option + ' ';
      throw Error(is_taken ? Code::kAlreadyExists : Code::kUnavailable,
                  options.verb + ": " + option + std::to_string(options.port) + ": " +
                      failed.code().message() +
                      (is_taken ? "; " + option + "0 takes any port that is free" : ""));
    }
  }

  // Accepts connections for ever.  Idle connections do not block others: each is closed after two
  // seconds.
  void Accept() {
    acceptor.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      // For example no free file descriptor; tried again in the next turn.
      has_failed = static_cast<bool>(error);
      if (has_failed) return;
      if (sessions < kSessionsMax) Begin(std::move(socket));
      Accept();
    });
  }

  void Begin(tcp::socket socket) {
    const auto session = std::make_shared<Session>(std::move(socket), &sessions);
    http::async_read(session->stream, session->buffer, session->request,
                     [this, session](beast::error_code error, size_t) {
                       if (!error) Answer(session);
                     });
  }

  HttpResponse ResponseTo(const http::request<http::string_body>& request) const {
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      return {.status = 404, .body = "GET is what there is\n"};
    }
    const std::string_view target = request.target();
    try {
      return handler({.path = std::string(target.substr(0, target.find('?'))),
                      .host = std::string(request[http::field::host])});
    } catch (const Error& error) {
      return {.status = 503, .body = std::string(error.what()) + '\n'};
    }
  }

  void Answer(const std::shared_ptr<Session>& session) {
    const auto& request = session->request.get();
    HttpResponse made = ResponseTo(request);
    auto& response = session->response;
    response.result(made.status);
    response.set(http::field::content_type, made.type);
    for (const auto& [name, value] : made.headers) response.set(name, value);
    response.keep_alive(false);
    response.body() = std::move(made.body);
    response.prepare_payload();
    // HTTP requires the length in the answer to HEAD.
    if (request.method() == http::verb::head) response.body().clear();
    session->stream.expires_after(kRequestPatience);
    http::async_write(session->stream, response, [session](beast::error_code, size_t) {});
  }

  const Handler handler;
  int sessions = 0;         // declared before the context, whose handlers use it
  bool has_failed = false;  // the last accept failed
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
};

bool IsLoopbackHost(std::string_view host) {
  const size_t end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  const std::string_view port = host.substr(std::min(end, host.size()));
  const bool has_port =
      port.starts_with(':') && port.find_first_not_of("0123456789", 1) == std::string_view::npos;
  if (!port.empty() && !has_port) return false;
  std::string_view name = host.substr(0, end);
  if (beast::iequals(name, "localhost")) return true;
  if (name.starts_with('[')) name = name.substr(1, name.size() - 2);
  boost::system::error_code error;
  const auto address = asio::ip::make_address(name, error);
  return !error && address.is_loopback();
}

HttpServer::HttpServer(const Options& options, Handler handler)
    : state_(std::make_unique<State>(options, std::move(handler))) {}
HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }

std::string HttpServer::url() const {
  const std::string address = state_->acceptor.local_endpoint().address().to_string();
  const bool has_colons = address.find(':') != std::string::npos;
  return "http://" + (has_colons ? '[' + address + ']' : address) + ':' + std::to_string(port());
}

void HttpServer::Serve(std::chrono::milliseconds longest) {
  state_->context.restart();
  if (std::exchange(state_->has_failed, false)) state_->Accept();
  state_->context.run_for(longest);
}

}  // namespace tkv::cli
