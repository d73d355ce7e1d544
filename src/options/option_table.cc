#include "options/option_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <variant>
#include <vector>

#include "base/duration.h"
#include "base/format.h"
#include "options/environment.h"
#include "options/log_line.h"
#include "options/save_interval.h"
#include "wire/message.h"

namespace tkv {
namespace {

using std::chrono::milliseconds;
using OptionKind = OptionInfo::Kind;
using Scope = OptionInfo::Scope;
using Words = decltype(OptionInfo::words);

using Field = std::variant<int StoreOptions::*, size_t StoreOptions::*, bool StoreOptions::*,
                           milliseconds StoreOptions::*, std::string StoreOptions::*>;

struct Row {
  OptionInfo info;
  Field member;
  int64_t low = 0;
  int64_t high = 0;
  bool (*fits)(std::string_view) = nullptr;  // for a text: checks it
  const char* form = "";                     // for a text: the form of one that fits
};

constexpr int64_t kLongestMs = kLongestWait.count();
constexpr Words kTransports = {"auto", "unix", "tcp"};
constexpr Words kTls = {"auto", "on", "off"};
constexpr Words kPolicies = {"fail", "continue", "wait"};
constexpr Words kLogLevels = {"off", "error", "warning", "info", "debug"};

const std::array<Row, 18> kRows = {{
    {{"threads", "TKV_THREADS", "--threads", "cores", "0",
      "The most cores that one large operation uses. 0: all that the process may use, by its "
      "CPU affinity and the quota of its control group, divided by the workers of its job on "
      "this machine.",
      OptionKind::kNumber, Scope::kAny},
     &StoreOptions::threads,
     0,
     65'536},
    {{"patience_ms", "TKV_PATIENCE_MS", "--patience-ms", "ms", "600000",
      "Timeout of a wait for other workers, or for another thread of the same process, and "
      "of joining a job. The call then fails with DeadlineExceeded.",
      OptionKind::kDuration, Scope::kAny},
     &StoreOptions::patience,
     1,
     kLongestMs},
    {{"server_patience_ms", "TKV_SERVER_PATIENCE_MS", "--server-patience-ms", "ms", "30000",
      "Timeout of a wait for a server, or the head, that was there before. The call then "
      "fails with Unavailable.",
      OptionKind::kDuration, Scope::kDistributed},
     &StoreOptions::server_patience,
     1,
     kLongestMs},
    {{"servers", "TKV_SERVERS", "", "servers", "0",
      "Servers of a job whose workers host them. 0: one in each worker, and one in a job of "
      "one (`bootstrap`, self).",
      OptionKind::kNumber, Scope::kDistributed},
     &StoreOptions::servers,
     0,
     static_cast<int64_t>(kServersMax)},
    {{"staleness", "TKV_STALENESS", "--staleness", "rounds", "0",
      "Rounds that a worker may be ahead of the slowest one. 0: every pull is exact.",
      OptionKind::kNumber, Scope::kDistributed},
     &StoreOptions::staleness,
     0,
     static_cast<int64_t>(KeyMeta::kStalenessMax)},
    {{"on_death", "TKV_ON_DEATH", "--on-death", "", "fail",
      "The fate of a round without a worker that has died. fail: it fails. continue: it "
      "completes without the worker. wait: it waits until the worker comes again. The head's "
      "value counts; a worker that asks for another one is refused. With `tkv launch "
      "--restart` the default is wait.",
      OptionKind::kText, Scope::kDistributed, kPolicies},
     &StoreOptions::on_death},
    {{"deterministic", "TKV_DETERMINISTIC", "--deterministic", "", "0",
      "Add sums in the order of ranks, so that every run gives the same bits.", OptionKind::kFlag,
      Scope::kDistributed},
     &StoreOptions::deterministic},
    {{"window_bytes", "TKV_WINDOW_BYTES", "--window-bytes", "bytes", "67108864",
      "Size of the buffer for pushed arrays of other frameworks that cannot be sent at once. "
      "A push that finds it full waits.",
      OptionKind::kNumber, Scope::kDistributed},
     &StoreOptions::window_bytes,
     0,
     std::numeric_limits<int64_t>::max()},
    {{"snapshots", "TKV_SNAPSHOTS", "--snapshots", "folder", "",
      "The folder where the store saves snapshots by itself, as often as snapshot_every "
      "says. With `tkv launch --restore` that folder is the default.",
      OptionKind::kText, Scope::kDistributed},
     &StoreOptions::snapshots},
    {{"snapshot_every", "TKV_SNAPSHOT_EVERY", "--snapshot-every", "", "",
      "How often the store saves a snapshot by itself: each N rounds, such as 100, or "
      "seconds, such as 30s. The lowest rank that lives saves between two rounds, and the "
      "other workers go on.",
      OptionKind::kText, Scope::kDistributed},
     &StoreOptions::snapshot_every,
     0,
     0,
     [](std::string_view text) { return SaveIntervalOf(text).has_value(); },
     "a number of rounds, such as 100, or of seconds, such as 30s"},
    {{"transport", "TKV_TRANSPORT", "--transport", "", "auto",
      "How the processes of a job talk. auto: by shared memory and Unix sockets on one host, "
      "by TCP between hosts. unix: the same without shared memory. tcp: by TCP alone.",
      OptionKind::kText, Scope::kProcesses, kTransports},
     &StoreOptions::transport},
    {{"insecure_network", "TKV_INSECURE_NETWORK", "--insecure-network", "", "0",
      "Allow TCP without a token. Whoever reaches a port takes part in the job.", OptionKind::kFlag,
      Scope::kProcesses},
     &StoreOptions::insecure_network},
    {{"tls", "TKV_TLS", "--tls", "", "auto",
      "Where TCP is encrypted (TLS 1.3, with keys derived from the token of the job). auto: "
      "between hosts. on: on one host, too. off: nowhere. All processes of a job need the "
      "same value.",
      OptionKind::kText, Scope::kProcesses, kTls},
     &StoreOptions::tls},
    {{"check_values", "TKV_CHECK_VALUES", "--check-values", "", "0",
      "Send a checksum (XXH3) of the values with each message over TCP. A message that does "
      "not match is sent again. TLS has a checksum of its own.",
      OptionKind::kFlag, Scope::kProcesses},
     &StoreOptions::check_values},
    {{"silence_ms", "TKV_SILENCE_MS", "--silence-ms", "ms", "5000",
      "Time without a heartbeat after which the head declares a process dead, and a process "
      "dials the head again. The head's value counts for the job. A heartbeat is sent ten "
      "times in it, and at least every half second.",
      OptionKind::kDuration, Scope::kDistributed},
     &StoreOptions::silence,
     500,
     kLongestMs},
    {{"failpoints", "TKV_FAILPOINTS", "--failpoints", "", "",
      "Failures to rehearse: WHO:sent|received:TYPE:COUNT:kill|stop|cut, several with "
      "commas.",
      OptionKind::kText, Scope::kProcesses},
     &StoreOptions::failpoints},
    {{"rows_dir", "TKV_ROWS_DIR", "--rows-dir", "folder", "",
      "A folder on a local disk for rows of tables that have no room in memory (`memory` of "
      "init_table), of a store of one process or of a server. Its files end with the "
      "process.",
      OptionKind::kText, Scope::kAny},
     &StoreOptions::rows_dir},
    {{"log", "TKV_LOG", "--log-level", "", "off",
      "The least level of the log: off, error, warning (deaths, lost connections, waits), "
      "info (joining and leaving, too), debug. Lines go to standard error: `TIME LEVEL "
      "tensorkv pid=N role=ROLE rank=N: TEXT`; an event has fields `key=value`. A line that "
      "nobody reads is lost, and counted. Python logs by the logger tensorkv. Default: C++ "
      "is silent, Python's logger decides (warnings), the servers of `tkv launch --log` say "
      "info.",
      OptionKind::kText, Scope::kAny, kLogLevels},
     &StoreOptions::log_level},
}};

const Row& RowOf(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) {
    if (name == row.info.name) return row;
    names.emplace_back(row.info.name);
  }
  throw Fail(Code::kInvalidArgument, "there is no option '{}'{}", name, DidYouMean(name, names));
}

std::string Needed(const Row& row) {
  const std::string_view unit = row.info.unit;
  const std::string of = unit.empty() ? std::string() : Format(" ({})", unit);
  switch (row.info.kind) {
    case OptionKind::kNumber:
      if (row.high == std::numeric_limits<int64_t>::max()) {
        return Format("a whole number of at least {}{}", row.low, of);
      }
      return Format("a whole number from {} to {}{}", row.low, row.high, of);
    case OptionKind::kDuration:
      return Format("a whole number of at least {}{}", row.low, of);
    case OptionKind::kFlag:
      return "0 or 1";
    case OptionKind::kText:
      break;
  }
  if (row.fits != nullptr) return row.form;
  std::string words;
  for (const std::string_view word : row.info.words) {
    if (!word.empty()) words += (words.empty() ? "" : ", ") + std::string(word);
  }
  return "one of " + words;
}

// Parses a whole number within the range.  A longer duration is cut to the longest one.
bool ParseNumber(const Row& row, std::string_view text, int64_t* value) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, *value);
  if (text.empty() || stop != end) return false;
  const bool is_huge = error == std::errc::result_out_of_range || *value > row.high;
  if (is_huge && row.info.kind == OptionKind::kDuration && text[0] != '-')
    *value = row.high;
  else if (is_huge)
    return false;
  return *value >= row.low;
}

bool IsWord(const Row& row, std::string_view text) {
  if (row.info.words[0].empty()) return true;
  return !text.empty() &&
         std::find(row.info.words.begin(), row.info.words.end(), text) != row.info.words.end();
}

bool Set(const Row& row, std::string_view text, StoreOptions* options) {
  if (const auto* const member = std::get_if<std::string StoreOptions::*>(&row.member)) {
    if (!IsWord(row, text)) return false;
    if (row.fits != nullptr && !text.empty() && !row.fits(text)) return false;
    options->** member = text;
    return true;
  }
  if (const auto* const member = std::get_if<bool StoreOptions::*>(&row.member)) {
    options->** member = text == "1";
    return text == "0" || text == "1";
  }
  int64_t value = 0;
  if (!ParseNumber(row, text, &value)) return false;
  if (const auto* const member = std::get_if<int StoreOptions::*>(&row.member)) {
    options->** member = static_cast<int>(value);
  } else if (const auto* const bytes = std::get_if<size_t StoreOptions::*>(&row.member)) {
    options->** bytes = static_cast<size_t>(value);
  } else {
    options->*std::get<milliseconds StoreOptions::*>(row.member) = milliseconds(value);
  }
  return true;
}

std::string Print(const Row& row, const StoreOptions& options) {
  return std::visit(
      [&](auto member) -> std::string {
        const auto& value = options.*member;
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::string>) {
          return value.empty() ? row.info.default_text : value;
        } else if constexpr (std::is_same_v<Value, milliseconds>) {
          return Format("{}", value.count());
        } else {
          return Format("{}", static_cast<int64_t>(value));
        }
      },
      row.member);
}

// Returns what Print returns for the environment's value; "" if the variable is not set or does not
// fit.
std::string EnvironmentText(const Row& row) {
  const char* const text = Variable(row.info.environment);
  StoreOptions options;
  return text != nullptr && Set(row, text, &options) ? Print(row, options) : std::string();
}

// ---- arguments of create()

// The type in SetArguments for the arguments of connect().
constexpr std::string_view kObserverType = "connect";

// Returns the call whose arguments these are.
std::string_view VerbOf(std::string_view type) {
  return type == kObserverType ? std::string_view("connect") : std::string_view("create");
}

int WholeNumber(std::string_view verb, const NamedText& argument) {
  int value = 0;
  const char* const begin = argument.text.data();
  const char* const end = begin + argument.text.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end || value < 0) {
    throw Fail(Code::kInvalidArgument, "{}: {}={}: a whole number is needed", verb, argument.name,
               argument.text);
  }
  return value;
}

// Sets an option by which processes find each other.  Returns false if the argument is an option of
// the table.
bool SetPlace(StoreOptions* options, std::string_view verb, const NamedText& argument) {
  if (argument.name == "bootstrap") {
    options->bootstrap = argument.text;
  } else if (argument.name == "url") {
    options->url = argument.text;
  } else if (argument.name == "token_file") {
    options->token_file = argument.text;
  } else if (argument.name == "token") {
    options->token = argument.text;
  } else if (argument.name == "rank") {
    options->rank = WholeNumber(verb, argument);
  } else if (argument.name == "num_workers") {
    options->num_workers = WholeNumber(verb, argument);
  } else {
    return false;
  }
  return true;
}

// Throws if options by which processes find each other are given to a local store.
void CheckNoPlace(std::string_view type, const StoreOptions& options) {
  const char* given = nullptr;
  if (options.num_workers != 0) given = "num_workers";
  if (options.rank >= 0) given = "rank";
  if (!options.bootstrap.empty() || options.rendezvous != nullptr) given = "bootstrap";
  if (!options.token.empty()) given = "token";
  if (!options.token_file.empty()) given = "token_file";
  if (!options.url.empty()) given = "url";
  if (given == nullptr) return;
  throw Fail(Code::kInvalidArgument,
             "create '{}': {} has no effect: it is an option of distributed stores", type, given);
}

// Returns the widest scope of options that have an effect on a store of that type.
Scope ScopeOf(std::string_view type, const StoreOptions& options) {
  if (IsLocal(type)) return Scope::kAny;
  return options.bootstrap == "self" ? Scope::kDistributed : Scope::kProcesses;
}

void CheckHasEffect(const OptionInfo& option, std::string_view text, std::string_view type,
                    Scope scope) {
  if (option.scope <= scope || text == option.default_text) return;
  throw Fail(Code::kInvalidArgument, "create '{}': {}={} has no effect: it is an option of {}",
             type, option.name, text,
             scope == Scope::kAny ? "distributed stores" : "jobs of several processes");
}

}  // namespace

std::span<const OptionInfo> OptionTable() noexcept {
  static const auto table = [] {
    std::array<OptionInfo, kRows.size()> infos{};
    std::transform(kRows.begin(), kRows.end(), infos.begin(),
                   [](const Row& row) { return row.info; });
    return infos;
  }();
  return table;
}

std::string TrySetOption(StoreOptions* options, std::string_view name, std::string_view text) {
  const Row& row = RowOf(name);
  StoreOptions changed = *options;
  if (!Set(row, text, &changed)) return Needed(row);
  *options = std::move(changed);
  return {};
}

void SetOption(StoreOptions* options, std::string_view name, std::string_view text) {
  const std::string why = TrySetOption(options, name, text);
  if (why.empty()) return;
  throw Fail(Code::kInvalidArgument, "{}='{}': {} is needed", name, text, why);
}

void SetArguments(StoreOptions* options, std::string_view type,
                  std::span<const NamedText> arguments) {
  StoreOptions changed = *options;
  std::vector<NamedText> texts;
  for (const NamedText& argument : arguments) {
    if (!SetPlace(&changed, VerbOf(type), argument)) texts.push_back(argument);
  }
  const Scope scope = ScopeOf(type, changed);
  for (const auto& [name, text] : texts) {
    try {
      SetOption(&changed, name, text);
    } catch (const Error& error) {
      throw Fail(error.code(), "{}: {}", VerbOf(type), error.what());
    }
    CheckHasEffect(RowOf(name).info, text, type, scope);
  }
  if (IsLocal(type)) CheckNoPlace(type, changed);
  *options = std::move(changed);
}

std::string OptionText(const StoreOptions& options, std::string_view name) {
  return Print(RowOf(name), options);
}

StoreOptions CheckedOptions(const StoreOptions& options) {
  return CheckedOptions("create", options);
}

StoreOptions CheckedOptions(std::string_view verb, const StoreOptions& options) {
  StoreOptions checked = options;
  checked.log = WithoutThrowing(options.log);
  for (const Row& row : kRows) {
    const std::string text = Print(row, options);
    if (options.on_death.empty() && std::string_view(row.info.name) == "on_death") continue;
    const std::string why = TrySetOption(&checked, row.info.name, text);
    if (why.empty()) continue;
    throw Fail(Code::kInvalidArgument, "{}: {}={}: {} is needed", verb, row.info.name, text, why);
  }
  return checked;
}

void CheckEffects(std::string_view type, const StoreOptions& options) {
  const Scope scope = ScopeOf(type, options);
  for (const Row& row : kRows) {
    const std::string text = Print(row, options);
    if (text != EnvironmentText(row)) CheckHasEffect(row.info, text, type, scope);
  }
  if (IsLocal(type)) CheckNoPlace(type, options);
}

}  // namespace tkv
