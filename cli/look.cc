#include "look.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <vector>

#include "array_file.h"
#include "exit_status.h"
#include "interrupt.h"
#include "metrics.h"
#include "number.h"
#include "tkv/config.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

constexpr size_t kRoundsShown = 5;

std::string ShapeText(const KeyStatus& key) {
  std::string text = key.by_rows ? std::to_string(key.row_count) + " rows of (" : "(";
  for (const int64_t dim : key.shape)
    text += (text.back() == '(' ? "" : ", ") + std::to_string(dim);
  return text + ")";
}

std::string WorkersText(const RoundStatus& round) {
  std::string text = round.waits_for_count == 1 ? "worker" : "workers";
  for (const int rank : round.waits_for) text += ' ' + std::to_string(rank);
  if (round.waits_for_count > round.waits_for.size()) {
    text += " and " + std::to_string(round.waits_for_count - round.waits_for.size()) + " more";
  }
  return text;
}

template <typename Member>
std::vector<std::string> StatesOf(const std::vector<Member>& members) {
  std::vector<std::string> states;
  states.reserve(members.size());
  for (const Member& member : members) states.push_back(member.state);
  return states;
}

void PrintStatus(const JobStatus& status) {
  std::printf("job      %s  %s\n", status.job.c_str(), status.url.c_str());
  std::printf("head     %s, epoch %llu; on a death: %s\n",
              status.head_is_open ? "open" : "OUT OF REACH",
              static_cast<unsigned long long>(status.epoch), status.on_death.c_str());
  std::printf("workers  %s\n", Counted(StatesOf(status.workers)).c_str());
  for (size_t i = 0; i < status.workers.size(); ++i) {
    const WorkerStatus& worker = status.workers[i];
    if (worker.state == "alive" || worker.state == "left") continue;
    std::printf("         worker %zu is %s (life %llu)\n", i, worker.state.c_str(),
                static_cast<unsigned long long>(worker.life));
  }
  std::printf("servers  %s\n", Counted(StatesOf(status.servers)).c_str());
  for (size_t i = 0; i < status.servers.size(); ++i) {
    const ServerStatus& server = status.servers[i];
    if (!server.error.empty()) {
      std::printf("         %s\n", server.error.c_str());
      continue;
    }
    std::printf("         server %zu: %llu chunks, values %s, states and buffers %s\n", i,
                static_cast<unsigned long long>(server.chunks),
                BytesText(static_cast<double>(server.value_bytes)).c_str(),
                BytesText(static_cast<double>(server.other_bytes)).c_str());
  }
  uint64_t bytes = 0;
  for (const KeyStatus& key : status.keys) bytes += key.bytes;
  std::printf("keys     %zu, %s\n", status.keys.size(),
              BytesText(static_cast<double>(bytes)).c_str());
  std::printf("watched  by %llu\n", static_cast<unsigned long long>(status.observers));
  const char* head = "rounds ";
  for (size_t i = 0; i < std::min(status.rounds.size(), kRoundsShown); ++i) {
    std::printf("%s  %s\n", std::exchange(head, "       "), RoundText(status.rounds[i]).c_str());
  }
  if (status.rounds.empty()) std::printf("rounds   none is open\n");
  if (status.rounds.size() > kRoundsShown) {
    std::printf("         and %zu more\n", status.rounds.size() - kRoundsShown);
  }
  if (status.slowest >= 0) {
    std::printf("slowest  worker %d: %llu rounds wait for it, the oldest %s\n", status.slowest,
                static_cast<unsigned long long>(status.slowest_rounds),
                SecondsText(status.slowest_seconds).c_str());
  }
  std::fflush(stdout);
}

// Returns what to say of the round that waits longest, or nothing if none waits longer than that.
std::string StuckText(const JobStatus& status, double seconds) {
  if (seconds == 0 || status.rounds.empty()) return {};
  const RoundStatus& oldest = *std::ranges::max_element(status.rounds, {}, &RoundStatus::seconds);
  if (oldest.seconds <= seconds) return {};
  return RoundText(oldest);
}

int Probe(const StatusOptions& options, Form form) {
  std::string wrong;
  try {
    const JobStatus status = Observe(options)->Status();
    wrong = status.wrong();
    if (wrong.empty()) wrong = StuckText(status, options.stuck_after_seconds);
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled || error.code() == Code::kInvalidArgument) throw;
    wrong = error.what();
  }
  if (form == Form::kJson) {
    Print(JsonObject("probe").Add("healthy", wrong.empty()).Add("text", wrong));
  } else {
    std::printf("%s\n", wrong.empty() ? "healthy" : wrong.c_str());
  }
  return wrong.empty() ? kDone : kBadAnswer;
}

}  // namespace

std::string KeyText(const Key& key) {
  return key.is_string() ? key.text() : std::to_string(key.number());
}

std::string SecondsText(double seconds) {
  char text[32];
  if (seconds < 0.9995) {
    std::snprintf(text, sizeof(text), "%.0f ms", seconds * 1000);
  } else {
    std::snprintf(text, sizeof(text), "%.1f s", seconds);
  }
  return text;
}

std::string RoundText(const RoundStatus& round) {
  return "round " + std::to_string(round.round) + " of " + Printable(round.key) + " waits " +
         SecondsText(round.seconds) + " for " + WorkersText(round);
}

std::unique_ptr<KVStore> Observe(const LookOptions& options, uint32_t store) {
  StoreOptions own = OptionsFromEnvironment();
  own.token_file = options.token_file;
  own.server_patience = std::chrono::seconds(options.patience_seconds);
  own.patience = own.server_patience;
  own.interrupt = InterruptBySignal();
  return KVStore::Connect(options.url, own, store);
}

KeyStatus FindKey(const JobStatus& status, const KeyOptions& options, const std::string& verb) {
  const KeyStatus* found = nullptr;
  std::vector<std::string> names;
  for (const KeyStatus& key : status.keys) {
    if (key.store != options.store) continue;
    const std::string name = KeyText(key.key);
    if (name == options.key) found = &key;
    names.push_back(name);
  }
  if (found != nullptr) return *found;
  const std::vector<std::string_view> views(names.begin(), names.end());
  throw Error(Code::kNotFound, verb + ": no key '" + options.key + "' among the " +
                                   std::to_string(names.size()) + " of store " +
                                   std::to_string(options.store) + DidYouMean(options.key, views));
}

int Looking(const std::function<int()>& run) {
  try {
    return run();
  } catch (const Error&) {
    if (SignalThatCame() == 0) throw;
    return 128 + SignalThatCame();
  }
}

std::string Counted(const std::vector<std::string>& states) {
  std::map<std::string, int> counts;
  for (const std::string& state : states) ++counts[state];
  std::string text;
  for (const auto& [state, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + ' ' + state;
  }
  return text;
}

std::string Printable(std::string_view text) {
  std::string printable;
  const auto byte = [text](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    // Controls above ASCII, which some terminals obey: U+0080 to U+009F.
    const bool begins_high = byte(i) == 0xC2 && byte(i + 1) >= 0x80 && byte(i + 1) < 0xA0;
    const bool ends_high = i > 0 && byte(i - 1) == 0xC2 && byte(i) >= 0x80 && byte(i) < 0xA0;
    if (byte(i) >= ' ' && byte(i) != 0x7F && !begins_high && !ends_high) {
      printable += text[i];
      continue;
    }
    std::array<char, 8> escaped{};
    std::snprintf(escaped.data(), escaped.size(), "\\x%02x", byte(i));
    printable += escaped.data();
  }
  return printable;
}

std::string BytesText(double bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes,
                kUnits.at(unit));
  return text;
}

int RunStatus(const StatusOptions& options, Form form) {
  return Looking([&] {
    if (options.probes) return Probe(options, form);
    if (options.metrics_port >= 0) return ServeMetrics(options, form);
    const JobStatus status = Observe(options)->Status();
    if (form == Form::kJson) {
      Print(JsonObject("status").AddMembersOf(status.ToJson()));
    } else {
      PrintStatus(status);
    }
    return kDone;
  });
}

int RunKeys(const LookOptions& options, Form form) {
  return Looking([&] {
    const JobStatus status = Observe(options)->Status();
    for (const ServerStatus& server : status.servers) {
      if (!server.error.empty()) throw Error(Code::kUnavailable, "keys: " + server.error);
    }
    for (const KeyStatus& key : status.keys) {
      if (form == Form::kJson) {
        Print(JsonObject("key").AddMembersOf(key.ToJson()));
        continue;
      }
      const std::string round =
          key.round == key.newest ? std::to_string(key.round)
                                  : std::to_string(key.round) + " to " + std::to_string(key.newest);
      std::printf("%-24s %-9s %-20s %10s  %s %s", Printable(KeyText(key.key)).c_str(),
                  Name(key.dtype), ShapeText(key).c_str(),
                  BytesText(static_cast<double>(key.bytes)).c_str(),
                  key.is_async ? "update" : "round", round.c_str());
      std::printf(key.store == 0 ? "\n" : "  (store %u)\n", key.store);
    }
    return kDone;
  });
}

int RunGet(const GetOptions& options, Form form) {
  return Looking([&] {
    CheckArrayFile(options.file);
    const auto store = Observe(options, options.store);
    const KeyStatus key = FindKey(store->Status(), options, "get");
    if (key.by_rows) {
      throw Error(
          Code::kInvalidArgument,
          "get: '" + options.key + "' is kept by rows; `pull_rows` of an observer reads them");
    }
    const NDArray value = NDArray::Empty(key.shape, key.dtype);
    store->Pull(key.key.view(), value);
    const uint64_t round = store->Round(key.key.view());
    WriteArrayFile(options.file, options.key, value);
    if (form == Form::kJson) {
      Print(JsonObject("got")
                .Add("key", options.key)
                .Add("round", round)
                .Add("dtype", Name(key.dtype))
                .Add("bytes", value.bytes())
                .Add("file", options.file));
    } else {
      std::printf("%s of round %llu: %s %s in %s\n", Printable(KeyText(key.key)).c_str(),
                  static_cast<unsigned long long>(round), Name(key.dtype), ShapeText(key).c_str(),
                  options.file.c_str());
    }
    return kDone;
  });
}

}  // namespace tkv::cli
