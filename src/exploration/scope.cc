#include "exploration/scope.h"

#include <algorithm>

#include "base/format.h"

namespace tkv::exploration {
namespace {

std::vector<Scope> MakeScopes() {
  std::vector<Scope> scopes;
  using Policy = Epoch::Policy;
  struct Mishap {
    const char* name;
    // Programs that are explored every day; the other programs take longer.
    std::vector<std::string> small;
    void (*change)(Scope*);
  };
  const std::vector<std::string> programs = {"X",    "PL",  "PLPL", "PPL",   "LPLP", "XX",
                                             "PBPL", "IPL", "IX",   "PLCPL", "PCPL", "PPPL"};
  const std::vector<std::string> all(programs.begin(), programs.end() - 1);
  std::vector<std::string> stale = all;
  stale.push_back("PPPL");  // the worker is two rounds ahead
  const std::vector<std::string> few = {"X", "PL", "XX", "IPL", "PLCPL"};
  const Mishap mishaps[] = {
      {"", all, [](Scope*) {}},
      {"-loss", all, [](Scope* s) { s->losses = 1; }},
      {"-two-losses", {}, [](Scope* s) { s->losses = 2; }},
      {"-reader", {"X", "PL", "XX", "IPL"}, [](Scope* s) { s->reader_pulls = 2; }},
      {"-reader-loss", {}, [](Scope* s) { s->reader_pulls = 2, s->losses = 1; }},
      {"-stale", stale, [](Scope* s) { s->staleness = 1; }},
      {"-stale-loss", {"X", "PL"}, [](Scope* s) { s->staleness = 1, s->losses = 1; }},
      {"-death-fail", few, [](Scope* s) { s->kills = 1; }},
      {"-death-continue", few, [](Scope* s) { s->kills = 1, s->policy = Policy::kContinue; }},
      {"-two-deaths", {"PL"}, [](Scope* s) { s->kills = 2, s->policy = Policy::kContinue; }},
      {"-rejoin-fail", {}, [](Scope* s) { s->kills = 1, s->restarts = true; }},
      {"-rejoin-wait",
       {"X"},
       [](Scope* s) { s->kills = 1, s->restarts = true, s->policy = Policy::kWait; }},
      {"-rejoin-continue",
       {"X"},
       [](Scope* s) { s->kills = 1, s->restarts = true, s->policy = Policy::kContinue; }},
      {"-rejoin-loss",
       {},
       [](Scope* s) { s->kills = s->losses = 1, s->restarts = true, s->policy = Policy::kWait; }},
      {"-rejoin-skip",
       {"X"},
       [](Scope* s) {
         s->kills = 1, s->restarts = s->skips_epochs = true, s->policy = Policy::kWait;
       }},
      {"-zombie-fail", {"X"}, [](Scope* s) { s->zombie = s->splits = true; }},
      {"-zombie-continue",
       {"X"},
       [](Scope* s) { s->zombie = s->splits = true, s->policy = Policy::kContinue; }},
      {"-zombie-rejoin",
       {},
       [](Scope* s) { s->zombie = s->restarts = true, s->policy = Policy::kWait; }},
      {"-zombie-rejoin-skip",
       {},
       [](Scope* s) {
         s->zombie = s->restarts = s->skips_epochs = true, s->policy = Policy::kContinue;
       }},
      {"-zombie-rejoin-split",
       {},
       [](Scope* s) { s->zombie = s->restarts = s->splits = true, s->policy = Policy::kWait; }},
      {"-rows", {"X", "PL", "PLPL", "PPL", "XX", "IPL"}, [](Scope* s) { s->by_rows = true; }},
      {"-rows-loss", {"X", "PL", "XX"}, [](Scope* s) { s->by_rows = true, s->losses = 1; }},
      {"-rows-death-continue",
       {"PL", "XX"},
       [](Scope* s) { s->by_rows = true, s->kills = 1, s->policy = Policy::kContinue; }},
      {"-rows-rejoin-wait",
       {"X"},
       [](Scope* s) { s->by_rows = s->restarts = true, s->kills = 1, s->policy = Policy::kWait; }},
      {"-rows-rejoin-continue",
       {},
       [](Scope* s) {
         s->by_rows = s->restarts = true, s->kills = 1, s->policy = Policy::kContinue;
       }},
      {"-rows-zombie-continue",
       {},
       [](Scope* s) { s->by_rows = s->zombie = s->splits = true, s->policy = Policy::kContinue; }},
      {"-rows-admit", {"XX", "PPL"}, [](Scope* s) { s->by_rows = true, s->admit_count = 2; }},
      {"-rows-admit-loss",
       {"XX"},
       [](Scope* s) { s->by_rows = true, s->admit_count = 2, s->losses = 1; }},
      {"-rows-admit-death-continue",
       {"XX"},
       [](Scope* s) {
         s->by_rows = true, s->admit_count = 2, s->kills = 1, s->policy = Policy::kContinue;
       }},
  };
  for (const Mishap& mishap : mishaps) {
    for (const std::string& program : programs) {
      Scope scope;
      scope.name = program + mishap.name;
      scope.program = scope.second_program = program;
      mishap.change(&scope);
      // Sparse keys have no updater in an exploration.
      if (scope.by_rows && program.find('C') != std::string::npos) continue;
      scope.is_large =
          std::find(mishap.small.begin(), mishap.small.end(), program) == mishap.small.end();
      scopes.push_back(std::move(scope));
    }
  }
  return scopes;
}

}  // namespace

std::span<const Scope> Scopes() {
  static const std::vector<Scope> scopes = MakeScopes();
  return scopes;
}

const Scope& ScopeNamed(const std::string& name) {
  const auto scopes = Scopes();
  const auto found = std::find_if(scopes.begin(), scopes.end(),
                                  [&](const Scope& scope) { return scope.name == name; });
  if (found != scopes.end()) return *found;
  std::string names;
  for (const Scope& scope : scopes) names += (names.empty() ? "" : ", ") + scope.name;
  throw Fail(Code::kInvalidArgument, "no scope '{}'; there are: {}", name, names);
}

}  // namespace tkv::exploration
