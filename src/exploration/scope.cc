#include "exploration/scope.h"

#include <algorithm>

#include "base/format.h"

namespace tkv::exploration {
namespace {

std::vector<Scope> MakeScopes() {
  std::vector<Scope> scopes;
  const auto add = [&](std::string name, std::string program, auto change) {
    Scope scope;
    scope.name = std::move(name);
    scope.program = scope.second_program = std::move(program);
    change(&scope);
    scopes.push_back(std::move(scope));
  };
  using Policy = Epoch::Policy;
  struct Mishap {
    const char* name;
    void (*change)(Scope*);
  };
  static constexpr Mishap kMishaps[] = {
      {"", [](Scope*) {}},
      {"-loss", [](Scope* s) { s->losses = 1; }},
      {"-two-losses", [](Scope* s) { s->losses = 2, s->is_large = true; }},
      {"-reader", [](Scope* s) { s->reader_pulls = 2; }},
      {"-reader-loss", [](Scope* s) { s->reader_pulls = 2, s->losses = 1, s->is_large = true; }},
      {"-stale", [](Scope* s) { s->staleness = 1; }},
      {"-stale-loss", [](Scope* s) { s->staleness = 1, s->losses = 1; }},
      {"-death-fail", [](Scope* s) { s->kills = 1; }},
      {"-death-continue", [](Scope* s) { s->kills = 1, s->policy = Policy::kContinue; }},
      {"-two-deaths", [](Scope* s) { s->kills = 2, s->policy = Policy::kContinue; }},
      {"-rejoin-fail", [](Scope* s) { s->kills = 1, s->restarts = true; }},
      {"-rejoin-wait",
       [](Scope* s) { s->kills = 1, s->restarts = true, s->policy = Policy::kWait; }},
      {"-rejoin-continue",
       [](Scope* s) { s->kills = 1, s->restarts = true, s->policy = Policy::kContinue; }},
      {"-rejoin-skip",
       [](Scope* s) {
         s->kills = 1, s->restarts = s->skips_epochs = true, s->policy = Policy::kWait;
       }},
      {"-zombie-fail", [](Scope* s) { s->zombie = s->splits = true; }},
      {"-zombie-continue",
       [](Scope* s) { s->zombie = s->splits = true, s->policy = Policy::kContinue; }},
      {"-zombie-rejoin",
       [](Scope* s) { s->zombie = s->restarts = true, s->policy = Policy::kWait; }},
      {"-zombie-rejoin-skip",
       [](Scope* s) {
         s->zombie = s->restarts = s->skips_epochs = true, s->policy = Policy::kContinue;
       }},
      {"-zombie-rejoin-split",
       [](Scope* s) {
         s->zombie = s->restarts = s->splits = true, s->policy = Policy::kWait, s->is_large = true;
       }},
      {"-rejoin-loss",
       [](Scope* s) {
         s->kills = s->losses = 1, s->restarts = true, s->policy = Policy::kWait,
         s->is_large = true;
       }},
  };
  for (const Mishap& mishap : kMishaps) {
    for (const char* program : {"PL", "PLPL", "PPL", "LPLP", "XX", "PBPL", "IPL", "PLCPL"}) {
      add(std::string(program) + mishap.name, program, mishap.change);
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
