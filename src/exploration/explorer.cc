// Explores all possible events breadth first, so the first violation has a shortest trace.

#include <algorithm>
#include <boost/unordered/unordered_flat_set.hpp>

#include "base/format.h"
#include "exploration/world.h"
#include "tkv/exploration.h"

namespace tkv::testing {
namespace {

using exploration::Action;
using exploration::Fingerprint;
using exploration::World;

struct Step {  // the event by which a state was first reached
  uint32_t from = 0;
  Action action;
};

std::vector<std::string> TraceTo(const exploration::Scope& scope, const std::vector<Step>& steps,
                                 uint32_t last, const Action* final) {
  std::vector<Action> actions;
  if (final != nullptr) actions.push_back(*final);
  for (uint32_t at = last; at != 0; at = steps[at].from) actions.push_back(steps[at].action);
  std::reverse(actions.begin(), actions.end());
  World world(&scope);
  std::vector<std::string> trace;
  for (const Action& next : actions) {
    trace.push_back(world.Describe(next));
    world.Apply(next);
  }
  return trace;
}

}  // namespace

std::vector<std::string> ExplorationNames(bool large) {
  std::vector<std::string> names;
  for (const exploration::Scope& scope : exploration::Scopes()) {
    if (large || !scope.is_large) names.push_back(scope.name);
  }
  return names;
}

ExplorationReport Explore(const std::string& name, uint64_t states_max) {
  const exploration::Scope& scope = exploration::ScopeNamed(name);
  ExplorationReport report;
  report.scope = name;
  boost::unordered_flat_set<Fingerprint> known;
  std::vector<Step> steps(1);
  std::vector<std::pair<uint32_t, World>> frontier;
  frontier.emplace_back(0, World(&scope));
  known.insert(frontier.front().second.fingerprint());
  const auto fail = [&](std::string violation, uint32_t from, const Action* action) {
    report.violation = std::move(violation);
    report.trace = TraceTo(scope, steps, from, action);
  };
  while (!frontier.empty() && report.violation.empty()) {
    std::vector<std::pair<uint32_t, World>> next;
    for (auto& [number, world] : frontier) {
      const std::vector<Action> actions = world.Actions();
      if (actions.empty()) {
        ++report.ends;
        const std::string wrong = world.CheckEnd();
        if (!wrong.empty()) fail(wrong, number, nullptr);
      }
      for (const Action& action : actions) {
        World after = world;
        std::string violation = after.Apply(action);
        ++report.transitions;
        if (!violation.empty()) {
          fail(std::move(violation), number, &action);
          break;
        }
        if (!known.insert(after.fingerprint()).second) continue;
        steps.push_back({number, action});
        next.emplace_back(static_cast<uint32_t>(steps.size() - 1), std::move(after));
      }
      if (!report.violation.empty()) break;
      if (steps.size() > states_max) {
        throw Fail(Code::kResourceExhausted, "explore {}: more than {} states", name, states_max);
      }
    }
    frontier = std::move(next);
    ++report.depth;
  }
  report.states = steps.size();
  report.passed = report.violation.empty();
  return report;
}

}  // namespace tkv::testing
