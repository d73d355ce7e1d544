#include "dashboard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

#include "dashboard_page.h"
#include "exit_status.h"
#include "http_server.h"
#include "interrupt.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLookInterval{1};
constexpr std::chrono::milliseconds kSignalInterval{50};  // the interval of checks for a signal
constexpr std::chrono::milliseconds kAnswerSlice{200};
constexpr std::chrono::seconds kAfterEnd{3};  // for open pages to show that the job has ended

// Looks at the job each second, on a thread of its own, so that the page answers while a server is
// silent.
class JobWatch {
 public:
  // Looks once.
  //   patience  how long the head may be out of reach before the job counts as ended
  //   throws    as KVStore::Status
  JobWatch(const KVStore& store, std::chrono::seconds patience)
      : store_(store), patience_(patience) {
    Note(store_.Status());
  }

  void Run(const std::stop_token& stop) {
    while (!stop.stop_requested() && SignalThatCame() == 0 && !has_ended_) {
      const auto next = Clock::now() + kLookInterval;
      Look();
      while (Clock::now() < next && SignalThatCame() == 0 && !stop.stop_requested()) {
        std::this_thread::sleep_for(kSignalInterval);
      }
    }
  }

  std::string Page() const {
    const std::lock_guard lock(mutex_);
    return DashboardPage(view_);
  }
  // Returns why the job counts as ended; "" while it runs.
  std::string End() const {
    const std::lock_guard lock(mutex_);
    return view_.end;
  }
  bool has_ended() const { return has_ended_; }

 private:
  void Look() {
    try {
      Note(store_.Status());
    } catch (const Error& error) {
      if (error.code() == Code::kCancelled) return;
      const std::lock_guard lock(mutex_);
      view_.problem = error.what();
      NoteReach(false);
    }
  }

  void Note(JobStatus status) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    view_.problem = status.wrong();
    if (tkv::cli::HasEnded(status)) return Conclude("The job has ended", std::move(status));
    NoteReach(status.head_is_open);
    if (!status.head_is_open) return;  // the counters are those of before, or missing
    // Without the counters of a silent server the rates would be wrong; the last ones stay.
    if (WhoIsSilent(status).empty()) {
      if (counted_at_ != Clock::time_point()) {
        const double seconds = std::chrono::duration<double>(now - counted_at_).count();
        view_.rates = RatesBetween(counted_, status, seconds);
        Remember(status);
      } else {
        view_.rates = RatesBetween(status, status, 1);
      }
      counted_ = status;
      counted_at_ = now;
    }
    view_.status = std::move(status);
  }

  void Remember(const JobStatus& status) {
    Moment moment;
    for (const Rate& key : view_.rates.keys) {
      moment.rounds_per_second = std::max(moment.rounds_per_second, key.per_second);
    }
    for (const Rate& worker : view_.rates.workers) {
      moment.bytes_per_second += worker.bytes_per_second;
      moment.workers.push_back(worker.bytes_per_second);
    }
    if (!status.rounds.empty()) moment.waits_seconds = status.rounds[0].seconds;
    view_.moments.push_back(std::move(moment));
    if (view_.moments.size() > kMomentsMax) view_.moments.pop_front();
  }

  // A head that stays out of reach has ended with its job, or was killed.
  void NoteReach(bool is_in_reach) {
    const auto now = Clock::now();
    if (is_in_reach) {
      lost_at_ = {};
    } else if (lost_at_ == Clock::time_point()) {
      lost_at_ = now;
    } else if (now - lost_at_ >= patience_) {
      view_.end = "The job has ended, or its head is out of reach";
      has_ended_ = true;
    }
  }

  void Conclude(const char* end, JobStatus status) {
    view_.end = end;
    view_.status.workers = std::move(status.workers);
    view_.status.rounds.clear();
    has_ended_ = true;
  }

  const KVStore& store_;
  const std::chrono::seconds patience_;
  mutable std::mutex mutex_;
  DashboardView view_;
  JobStatus counted_;  // the last one with the counters of all servers
  Clock::time_point counted_at_;
  Clock::time_point lost_at_;  // since when the head is out of reach
  std::atomic<bool> has_ended_{false};
};

std::string HostName() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

HttpResponse Respond(const JobWatch& watch, uint16_t port, const HttpRequest& request) {
  if (!IsLoopbackHost(request.host)) {
    const std::string own = std::to_string(port);
    return {.status = 403,
            .body = "tkv dashboard answers to localhost and 127.0.0.1, not to '" +
                    Printable(request.host) + "'. To look from another machine, run\n  ssh -L " +
                    own + ":127.0.0.1:" + own + ' ' + HostName() +
                    "\nthere, and open http://127.0.0.1:" + own + "/ in its browser.\n"};
  }
  HttpResponse response{
      .headers = {{"Content-Security-Policy",
                   "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                   "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                  {"X-Content-Type-Options", "nosniff"},
                  {"Referrer-Policy", "no-referrer"},
                  {"Cache-Control", "no-store"}}};
  if (request.path == "/") {
    response.type = "text/html; charset=utf-8";
    response.body = watch.Page();
  } else if (request.path == "/dashboard.css") {
    response.type = "text/css; charset=utf-8";
    response.body = kDashboardStyle;
  } else if (request.path == "/dashboard.js") {
    response.type = "text/javascript; charset=utf-8";
    response.body = kDashboardScript;
  } else {
    response.status = 404;
    response.body = "the page is /\n";
  }
  return response;
}

void Say(const char* event, const char* member, const std::string& text, Form form,
         const char* words) {
  if (form == Form::kJson) {
    Print(JsonObject(event).Add(member, text));
    return;
  }
  std::printf("%s%s\n", words, text.c_str());
  std::fflush(stdout);
}

}  // namespace

int RunDashboard(const DashboardOptions& options, Form form) {
  return Looking([&] {
    const auto store = Observe(options);
    JobWatch watch(*store, std::chrono::seconds(options.patience_seconds));
    uint16_t port = 0;
    HttpServer server({.port = options.port, .verb = "dashboard", .port_option = "--port"},
                      [&](const HttpRequest& request) { return Respond(watch, port, request); });
    port = server.port();
    Say("dashboard", "url", server.url() + '/', form, "dashboard at ");
    const std::jthread looking([&](const std::stop_token& stop) { watch.Run(stop); });
    auto until = Clock::time_point::max();
    while (SignalThatCame() == 0 && Clock::now() < until) {
      server.Serve(kAnswerSlice);
      if (watch.has_ended() && until == Clock::time_point::max()) {
        until = Clock::now() + kAfterEnd;
      }
    }
    if (SignalThatCame() != 0) return 128 + SignalThatCame();
    Say("ended", "text", watch.End(), form, "");
    return kDone;
  });
}

}  // namespace tkv::cli
