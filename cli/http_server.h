// A small HTTP server for the pages of the subcommands that show a running job.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tkv::cli {

// A GET or HEAD request.
struct HttpRequest {
  std::string path;  // without a query
  std::string host;  // the header Host: the name that the client has for this server, and its port
};

struct HttpResponse {
  unsigned status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // besides the usual ones
};

// Returns true if a request's header Host is a name of the loopback, with or without a port.
// A page of another site that has its name point here, to read what this server says, sends its own
// name.
bool IsLoopbackHost(std::string_view host);

// Serves requests one after another on the thread that calls Serve.  This suffices for readers that
// ask every few seconds.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  struct Options {
    std::string address = "127.0.0.1";
    int port = 0;             // 0: any that is free
    std::string verb;         // begins errors: "status"
    std::string port_option;  // the user's option for the port, in errors: "--metrics"
  };

  // Listens.  A request with another method than GET and HEAD never reaches the handler.
  //   throws  kInvalidArgument (no address), kAlreadyExists (the port is taken), kUnavailable
  HttpServer(const Options& options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Returns "http://127.0.0.1:9090".
  std::string url() const;
  uint16_t port() const;
  // Serves for at most `longest`.
  void Serve(std::chrono::milliseconds longest);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tkv::cli
