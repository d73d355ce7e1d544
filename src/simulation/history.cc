#include "simulation/history.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/format.h"

namespace tkv::simulation {
namespace {

// Pushes of unknown outcome; with more of them a sum proves nothing.
constexpr size_t kOpenMax = 12;

class Judge {
 public:
  explicit Judge(const History& history) : history_(history) {}

  std::string Run() {
    for (const auto& [object, lanes] : history_.initial) values_[object][0] = lanes;
    for (const HistoryEvent& event : history_.events) {
      (event.kind == HistoryEvent::Kind::kPush ? pushes_ : pulls_)[event.object].push_back(&event);
    }
    for (const auto& [object, pushes] : pushes_) CheckRounds(object, pushes);
    for (const auto& [object, pulls] : pulls_) {
      CheckAgreement(object, pulls);
      CheckOrder(object, pulls);
      CheckSums(object);
    }
    return wrong_;
  }

 private:
  using Events = std::vector<const HistoryEvent*>;

  void Wrong(std::string text) {
    if (wrong_.empty()) wrong_ = std::move(text);
  }

  // Checks that each push of a worker gets a round of its own, in the order in which the pushes
  // began.
  void CheckRounds(uint64_t object, const Events& pushes) {
    std::map<uint64_t, uint64_t> last;  // last round of each worker
    Events sorted = pushes;
    std::sort(sorted.begin(), sorted.end(),
              [](const auto* a, const auto* b) { return a->begin < b->begin; });
    for (const HistoryEvent* push : sorted) {
      if (push->failed || push->end == 0 || push->round == 0) continue;
      if (push->round <= last[push->worker]) {
        Wrong(Format("object {}: worker {} pushed round {} after round {}", object, push->worker,
                     push->round, last[push->worker]));
      }
      last[push->worker] = push->round;
    }
  }

  // Checks that all workers see the same value in the same round.
  void CheckAgreement(uint64_t object, const Events& pulls) {
    for (const HistoryEvent* pull : pulls) {
      if (pull->failed || pull->end == 0) continue;
      const auto [at, is_new] = values_[object].emplace(pull->round, pull->value);
      if (!is_new && !Same(at->second, pull->value)) {
        Wrong(Format("object {}: worker {} saw another value of round {} than somebody else",
                     object, pull->worker, pull->round));
      }
    }
  }

  // Checks that a worker never reads an older round than it has pushed or read before.
  void CheckOrder(uint64_t object, const Events& pulls) {
    for (const HistoryEvent* pull : pulls) {
      if (pull->failed || pull->end == 0) continue;
      for (const auto* events : {&pushes_[object], &pulls_[object]}) {
        for (const HistoryEvent* earlier : *events) {
          const bool before = earlier->worker == pull->worker && earlier->end != 0 &&
                              !earlier->failed && earlier->end < pull->begin;
          if (before && earlier->round > pull->round) {
            Wrong(Format("object {}: worker {} read round {} after it had {} round {}", object,
                         pull->worker, pull->round,
                         earlier->kind == HistoryEvent::Kind::kPush ? "written" : "read",
                         earlier->round));
          }
        }
      }
    }
  }

  // Checks that the value of a round contains every accepted push once, and any of the failed ones.
  void CheckSums(uint64_t object) {
    Events open;
    std::map<uint64_t, Events> by_round;
    for (const HistoryEvent* push : pushes_[object]) {
      if (push->failed || push->end == 0 || push->round == 0) {
        open.push_back(push);
      } else {
        by_round[push->round].push_back(push);
      }
    }
    if (open.size() > kOpenMax) return;
    for (const auto& [round, value] : values_[object]) {
      if (round == 0) continue;
      const auto before = values_[object].find(round - 1);
      if (!IsExplained(value, by_round[round], open,
                       before == values_[object].end() ? nullptr : &before->second)) {
        Wrong(Format("object {}: the value of round {} is no sum of its {} accepted pushes", object,
                     round, by_round[round].size()));
      }
    }
  }

  bool IsExplained(const Lanes& value, const Events& accepted, const Events& open,
                   const Lanes* before) const {
    for (size_t subset = 0; subset < (size_t{1} << open.size()); ++subset) {
      Lanes sum{};
      const auto is_replaced = [&](const HistoryEvent* push) {
        for (size_t i = 0; i < open.size(); ++i) {
          const bool is_in = (subset >> i & 1) != 0;
          if (is_in && push->rank != kNoRank && open[i]->rank == push->rank &&
              IsEarlier(*open[i], *push)) {
            return true;
          }
        }
        return false;
      };
      for (const HistoryEvent* push : accepted) {
        if (!is_replaced(push)) Add(push->value, &sum);
      }
      for (size_t i = 0; i < open.size(); ++i) {
        if ((subset >> i & 1) != 0) Add(open[i]->value, &sum);
      }
      if (Same(value, sum)) return true;
      // The updater may add to the previous value; if that value is unknown, the sum proves
      // nothing.
      if (before == nullptr) return true;
      Add(*before, &sum);
      if (Same(value, sum)) return true;
    }
    return false;
  }

  // Returns true if a push is of an earlier incarnation, or an earlier one of the same incarnation.
  static bool IsEarlier(const HistoryEvent& push, const HistoryEvent& other) {
    return push.worker < other.worker || (push.worker == other.worker && push.begin < other.begin);
  }
  static void Add(const Lanes& value, Lanes* sum) {
    for (size_t i = 0; i < sum->size(); ++i) {
      (*sum)[i] =
          static_cast<int64_t>(static_cast<uint64_t>((*sum)[i]) + static_cast<uint64_t>(value[i]));
    }
  }
  bool Same(const Lanes& a, const Lanes& b) const {
    for (size_t i = 0; i < history_.lanes; ++i) {
      if (Wrap(history_.dtype, a[i]) != Wrap(history_.dtype, b[i])) return false;
    }
    return true;
  }

  const History& history_;
  std::map<uint64_t, Events> pushes_, pulls_;
  std::map<uint64_t, std::map<uint64_t, Lanes>> values_;  // values of each object, by round
  std::string wrong_;
};

}  // namespace

std::string JudgeHistory(const History& history) { return Judge(history).Run(); }

}  // namespace tkv::simulation
