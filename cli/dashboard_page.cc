#include "dashboard_page.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string_view>

#include "json.h"
#include "look.h"

namespace tkv::cli {
namespace {

constexpr size_t kRowsMax = 64;       // of a table
constexpr size_t kSparkMoments = 60;  // of the small plot of a worker
constexpr size_t kWaitsShown = 8;
constexpr double kSlowSeconds = 5;  // a round that waits longer is worth a word

// Returns a text for HTML.  Control characters become \xNN.
std::string Html(std::string_view text) {
  std::string html;
  for (const char c : Utf8(Printable(text))) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string Fixed(double number) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.1f", number);
  return text;
}

std::string Speed(double bytes_per_second) { return BytesText(bytes_per_second) + "/s"; }

// Returns an SVG whose line ends at the right with the last of the values.
//   count  the number of values that fill the width
std::string Plot(const std::vector<double>& values, size_t count, const std::string& label) {
  constexpr double kWidth = 300, kHeight = 60;
  double top = 0;
  for (const double value : values) top = std::max(top, value);
  std::string points;
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = kWidth - static_cast<double>(values.size() - 1 - i) * kWidth /
                                  static_cast<double>(count - 1);
    const double y = top > 0 ? kHeight - values[i] / top * (kHeight - 2) : kHeight;
    points += (points.empty() ? "" : " ") + Fixed(x) + ',' + Fixed(y);
  }
  return "<svg viewBox=\"0 0 300 60\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"" +
         Html(label) + "\"><polyline points=\"" + points + "\"/></svg>";
}

template <typename Value>
std::vector<double> Column(const std::deque<Moment>& moments, const Value& value) {
  std::vector<double> column;
  column.reserve(moments.size());
  for (const Moment& moment : moments) column.push_back(value(moment));
  return column;
}

std::string Curve(const char* title, const std::vector<double>& values,
                  const std::function<std::string(double)>& text) {
  const double last = values.empty() ? 0 : values.back();
  const double top = values.empty() ? 0 : *std::ranges::max_element(values);
  const std::string label = std::string(title) + ": now " + text(last) + ", at most " + text(top);
  return "<figure><figcaption>" + std::string(title) + " <b>" + text(last) + "</b></figcaption>" +
         Plot(values, kMomentsMax, label) + "<small>the last 5 min, at most " + text(top) +
         "</small></figure>\n";
}

std::string Plots(const DashboardView& view) {
  std::string html = "<div id=\"plots\" data-live>\n";
  html += Curve("Rounds of the fastest key",
                Column(view.moments, [](const Moment& m) { return m.rounds_per_second; }),
                [](double value) { return Fixed(value) + "/s"; });
  html += Curve("Bytes pushed",
                Column(view.moments, [](const Moment& m) { return m.bytes_per_second; }), Speed);
  html += Curve("The oldest round waits",
                Column(view.moments, [](const Moment& m) { return m.waits_seconds; }),
                [](double value) { return Fixed(value) + " s"; });
  return html + "</div>\n";
}

using Cells = std::vector<std::string>;  // in HTML

std::string TableRow(const char* tag, const Cells& cells) {
  std::string html = "<tr>";
  for (const std::string& cell : cells) {
    const bool has_tag = cell.starts_with("<td");
    html += has_tag ? cell : '<' + std::string(tag) + '>' + cell + "</" + tag + '>';
  }
  return html + "</tr>\n";
}

// Returns a table under a heading.  A row more says how many are not shown.
std::string Table(const char* id, const char* title, const Cells& heads,
                  const std::vector<Cells>& rows, size_t count) {
  std::string html = "<h2>" + std::string(title) + "</h2>\n<div class=\"wide\"><table>\n<thead>" +
                     TableRow("th", heads) + "</thead>\n<tbody id=\"" + id + "\" data-live>\n";
  for (const Cells& row : rows) html += TableRow("td", row);
  if (count > rows.size()) {
    html += TableRow("td", {"and " + std::to_string(count - rows.size()) + " more"});
  }
  return html + "</tbody></table></div>\n";
}

std::string StateCell(const std::string& state) {
  const bool is_bad = state != "alive" && state != "left" && state != "awaited";
  return std::string(is_bad ? "<td class=\"bad\">" : "<td>") + Html(state) + "</td>";
}

std::string Workers(const DashboardView& view) {
  const std::vector<WorkerStatus>& workers = view.status.workers;
  std::vector<size_t> rounds(workers.size());
  std::vector<double> seconds(workers.size());
  for (const RoundStatus& round : view.status.rounds) {
    for (const int rank : round.waits_for) {
      const auto at = static_cast<size_t>(rank);
      if (at >= workers.size()) continue;
      ++rounds[at];
      seconds[at] = std::max(seconds[at], round.seconds);
    }
  }
  std::vector<Cells> rows;
  for (size_t i = 0; i < std::min(workers.size(), kRowsMax); ++i) {
    const Rate rate = i < view.rates.workers.size() ? view.rates.workers[i] : Rate{};
    std::vector<double> line = Column(view.moments, [i](const Moment& moment) {
      return i < moment.workers.size() ? moment.workers[i] : 0;
    });
    line.erase(line.begin(), line.end() - std::min<ptrdiff_t>(std::ssize(line), kSparkMoments));
    rows.push_back({"worker " + std::to_string(i), StateCell(workers[i].state),
                    Fixed(rate.per_second), Speed(rate.bytes_per_second), std::to_string(rounds[i]),
                    rounds[i] > 0 ? Fixed(seconds[i]) + " s" : "",
                    Plot(line, kSparkMoments, "bytes per second in the last minute")});
  }
  return Table(
      "workers", "Workers",
      {"rank", "state", "chunks/s", "pushed", "awaited rounds", "the oldest", "last 1 min"}, rows,
      workers.size());
}

std::string Servers(const std::vector<ServerStatus>& servers) {
  std::vector<Cells> rows;
  for (size_t i = 0; i < std::min(servers.size(), kRowsMax); ++i) {
    const ServerStatus& server = servers[i];
    const bool answers = server.error.empty();
    rows.push_back({"server " + std::to_string(i), StateCell(server.state),
                    answers ? std::to_string(server.chunks) : "",
                    answers ? BytesText(static_cast<double>(server.value_bytes)) : "no answer",
                    answers ? BytesText(static_cast<double>(server.other_bytes)) : ""});
  }
  return Table("servers", "Servers", {"server", "state", "chunks", "values", "states and buffers"},
               rows, servers.size());
}

std::string Keys(const DashboardView& view) {
  std::vector<Cells> rows;
  for (const Rate& rate : view.rates.keys) {
    if (rows.size() == kRowsMax || rate.index >= view.status.keys.size()) break;
    const KeyStatus& key = view.status.keys[rate.index];
    rows.push_back({Html(rate.name), std::to_string(key.round), Fixed(rate.per_second),
                    Speed(rate.bytes_per_second), BytesText(static_cast<double>(key.bytes))});
  }
  return Table("keys", "Keys", {"key", "round", "rounds/s", "bytes", "size"}, rows,
               view.status.keys.size());
}

std::string Waits(const std::vector<RoundStatus>& rounds) {
  std::string html = "<h2>Rounds that wait</h2>\n<ul id=\"waits\" data-live>\n";
  for (size_t i = 0; i < std::min(rounds.size(), kWaitsShown); ++i) {
    html += "<li>" + Html(RoundText(rounds[i])) + "</li>\n";
  }
  if (rounds.empty()) html += "<li>none is open</li>\n";
  if (rounds.size() > kWaitsShown) {
    html += "<li>and " + std::to_string(rounds.size() - kWaitsShown) + " more</li>\n";
  }
  return html + "</ul>\n";
}

std::string StateLine(const DashboardView& view) {
  const std::vector<RoundStatus>& rounds = view.status.rounds;
  const char* name = "healthy";
  std::string text = "healthy";
  if (!view.end.empty()) {
    name = "ended";
    text = view.end + ". The numbers are the last ones.";
  } else if (!view.problem.empty()) {
    name = "wrong";
    text = view.problem;
  } else if (!rounds.empty() && rounds[0].seconds > kSlowSeconds) {
    name = "slow";
    text = RoundText(rounds[0]);
  }
  return "<p id=\"state\" class=\"" + std::string(name) + "\" role=\"status\" data-live" +
         (view.end.empty() ? "" : " data-ended") + '>' + Html(text) + "</p>\n";
}

}  // namespace

std::string DashboardPage(const DashboardView& view) {
  const JobStatus& status = view.status;
  const std::string job = Html(status.job);
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      job +
      " - TensorKV</title>\n<link rel=\"icon\" href=\"data:,\">\n"
      "<link rel=\"stylesheet\" href=\"/dashboard.css\">\n"
      "<script src=\"/dashboard.js\" defer></script>\n";
  if (view.end.empty()) {
    html += "<noscript><meta http-equiv=\"refresh\" content=\"2\"></noscript>\n";
  }
  html += "</head>\n<body>\n<h1>" + job + "</h1>\n" + StateLine(view);
  html += "<p id=\"silence\" hidden></p>\n";
  html +=
      "<noscript><p>Without JavaScript the page loads itself again every two seconds.</p>"
      "</noscript>\n";
  html += "<main>\n" + Plots(view) + Workers(view) + Servers(status.servers) +
          Waits(status.rounds) + Keys(view);
  html += "<p id=\"job\" data-live><small>" + Html(status.url) +
          "; on a death: " + Html(status.on_death) + "; epoch " + std::to_string(status.epoch) +
          "; watched by " + std::to_string(status.observers) +
          "</small></p>\n</main>\n</body>\n</html>\n";
  return html;
}

}  // namespace tkv::cli
