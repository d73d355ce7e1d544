// The actions of a launcher after each event, as a text.

#include "launch_plan.h"

#include <gtest/gtest.h>

#include <csignal>
#include <optional>
#include <string>

namespace tkv::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A job whose launcher is played by the test.
class LaunchPlanTest : public ::testing::Test {
 protected:
  static LaunchRules Rules(int workers = 2, int servers = 1) {
    LaunchRules rules;
    rules.workers = workers;
    rules.servers = servers;
    rules.host_of = [](Job::Role, int) { return std::string(); };
    rules.on_death = "fail";
    rules.grace = seconds(10);
    return rules;
  }

  // Starts the job, and returns its actions.
  std::string Begin(LaunchRules rules, const std::string& snapshot = {}) {
    plan_.emplace(std::move(rules));
    return Do([&](auto* out) { plan_->Begin(snapshot, now_, out); });
  }
  std::string Ended(size_t seat, int code, bool job_is_over = false) {
    const std::string how = code > 128 ? "was killed by signal " + std::to_string(code - 128)
                                       : "ended with status " + std::to_string(code);
    return Do([&](auto* out) { plan_->Ended(seat, {code, how, job_is_over}, now_, out); });
  }
  std::string EndedAfterItsLeave(size_t seat, int code, bool job_is_over = false) {
    const SeatEnd end{code, "ended with status " + std::to_string(code), job_is_over, true};
    return Do([&](auto* out) { plan_->Ended(seat, end, now_, out); });
  }
  std::string Asked(int signal) {
    return Do([&](auto* out) { plan_->Asked(signal, now_, out); });
  }
  std::string Restored(size_t seat) {
    return Do([&](auto* out) { plan_->Restored(seat, now_, out); });
  }
  std::string Judged(size_t seat, bool is_silent) {
    return Do([&](auto* out) { plan_->Judged(seat, is_silent, false, now_, out); });
  }
  std::string After(milliseconds time, bool do_others_live = false) {
    now_ += time;
    return Do([&](auto* out) { plan_->Tick(now_, do_others_live, out); });
  }
  // The actions of an event: "start worker 0, kill server 1, gone worker 1"; notes in brackets.
  template <typename Event>
  std::string Do(Event event) {
    LaunchPlan::Actions actions;
    event(&actions);
    std::string text;
    for (const LaunchAction& action : actions) {
      using Kind = LaunchAction::Kind;
      if (action.kind == Kind::kLog) continue;
      if (!text.empty()) text += ", ";
      const auto name = [&] { return plan_->seats()[action.seat].name(); };
      if (action.kind == Kind::kStart) text += "start " + name();
      if (action.kind == Kind::kSignal) {
        text += (action.signal == SIGKILL   ? "kill "
                 : action.signal == SIGTERM ? "end "
                                            : "signal ") +
                name();
      }
      if (action.kind == Kind::kGone) text += (action.has_failed ? "lost " : "gone ") + name();
      if (action.kind == Kind::kNote) {
        text += "[" + action.text + (action.tells_variables ? " ...]" : "]");
      }
    }
    return text;
  }

  std::optional<LaunchPlan> plan_;
  LaunchTime now_ = LaunchTime() + seconds(1000);
};

TEST_F(LaunchPlanTest, AUsersSignalGoesToTheScriptsOfWorkers) {
  LaunchRules rules = Rules(2);
  rules.observers = 1;
  rules.host_of = [](Job::Role, int rank) { return std::string(rank == 1 ? "b" : ""); };
  Begin(std::move(rules));
  const auto passed = [&] { return Do([&](auto* out) { plan_->Passed(SIGUSR1, out); }); };
  EXPECT_EQ(passed(), "signal worker 0") << "the agent of worker 1 has started no script yet";
  plan_->Greeted(2);
  EXPECT_EQ(passed(), "signal worker 0, signal worker 1");
  Ended(1, 0);
  EXPECT_EQ(passed(), "signal worker 1");
}

TEST_F(LaunchPlanTest, AUsersSignalReachesNoRestorer) {
  Begin(Rules(1), "snapshot");
  const auto passed = [&] { return Do([&](auto* out) { plan_->Passed(SIGUSR2, out); }); };
  EXPECT_EQ(passed(), "");
  EXPECT_EQ(Restored(1), "start worker 0");
  EXPECT_EQ(passed(), "signal worker 0");
}

TEST_F(LaunchPlanTest, AStopReachesAllProcesses) {
  Begin(Rules(2));
  EXPECT_EQ(Do([&](auto* out) { plan_->Paused(SIGTSTP, out); }),
            "signal server 0, signal worker 0, signal worker 1");
}

TEST_F(LaunchPlanTest, AJobThatSucceedsEndsByItself) {
  EXPECT_EQ(Begin(Rules()), "start server 0, start worker 0, start worker 1");
  EXPECT_EQ(Ended(1, 0), "gone worker 0");
  EXPECT_EQ(After(seconds(100)), "");
  EXPECT_EQ(Ended(2, 0), "gone worker 1");
  EXPECT_EQ(After(milliseconds(1)), "");
  EXPECT_EQ(Ended(0, 0), "gone server 0");
  EXPECT_FALSE(plan_->IsAnyRunning());
  EXPECT_EQ(plan_->Status(), 0);
}

TEST_F(LaunchPlanTest, AServerThatLingersAfterAllWorkersIsEndedAndThenKilled) {
  Begin(Rules(1));
  Ended(1, 0);
  EXPECT_EQ(After(seconds(0)), "");
  EXPECT_EQ(After(seconds(2)), "");
  EXPECT_EQ(After(milliseconds(1)), "end server 0");
  EXPECT_EQ(After(seconds(3)), "");
  EXPECT_EQ(After(milliseconds(1)), "kill server 0");
  EXPECT_EQ(After(seconds(10)), "") << "a signal is sent once";
  EXPECT_EQ(plan_->Status(), 0);
}

TEST_F(LaunchPlanTest, AFailureEndsTheOthersAfterTheGracePeriod) {
  Begin(Rules());
  EXPECT_EQ(Ended(1, 3), "lost worker 0, [worker 0 ended with status 3]");
  EXPECT_TRUE(plan_->is_timed());
  EXPECT_EQ(After(milliseconds(9'999)), "");
  EXPECT_EQ(After(milliseconds(1)),
            "[worker 1 still runs after the grace period of 10 s; it is ended], end server 0, end "
            "worker 1");
  EXPECT_EQ(Ended(2, 128 + SIGTERM), "lost worker 1") << "an end that was asked for is no news";
  EXPECT_EQ(plan_->Status(), 3) << "of the first that has failed";
}

TEST_F(LaunchPlanTest, UnderContinueTheOthersGoOn) {
  LaunchRules rules = Rules();
  rules.on_death = "continue";
  Begin(rules);
  EXPECT_EQ(Ended(1, 137), "lost worker 0, [worker 0 was killed by signal 9]");
  EXPECT_EQ(After(seconds(1000)), "");
  EXPECT_EQ(Ended(2, 0), "gone worker 1");
  EXPECT_EQ(plan_->Status(), 137);
}

TEST_F(LaunchPlanTest, AWorkerIsStartedAgainAsOftenAsAllowed) {
  LaunchRules rules = Rules(1);
  rules.restarts = 2;
  rules.on_death = "wait";
  Begin(rules);
  EXPECT_EQ(Ended(1, 1),
            "[worker 0 ended with status 1; it is started again (1 of 2)], start worker 0");
  EXPECT_EQ(Ended(1, 137),
            "[worker 0 was killed by signal 9; it is started again (2 of 2)], start worker 0");
  EXPECT_EQ(Ended(1, 137), "lost worker 0, [worker 0 was killed by signal 9]");
}

TEST_F(LaunchPlanTest, AWorkerIsNotStartedIntoAJobThatIsOver) {
  LaunchRules rules = Rules(1);
  rules.restarts = 2;
  Begin(rules);
  EXPECT_EQ(Ended(1, 1, true),
            "lost worker 0, [worker 0 ended with status 1; it is not started again, because the "
            "job has ended]");
}

TEST_F(LaunchPlanTest, AWorkerIsNotStartedAgainAfterTheDeathOfAServer) {
  for (const std::string policy : {"wait", "fail", "continue"}) {
    LaunchRules rules = Rules();
    rules.restarts = 3;
    rules.on_death = policy;
    Begin(rules);
    EXPECT_EQ(Ended(0, 137), "lost server 0, [server 0 was killed by signal 9]");
    EXPECT_EQ(Ended(1, 1),
              "lost worker 0, [worker 0 ended with status 1; it is not started again, because the "
              "job cannot go on]");
    EXPECT_EQ(Ended(2, 0), "gone worker 1") << "a worker that ends well does so as before";
    EXPECT_FALSE(plan_->IsAnyRunning());
    EXPECT_EQ(plan_->Status(), 137);
  }
}

TEST_F(LaunchPlanTest, AWorkerIsNotStartedAgainWhileAServerIsSilent) {
  LaunchRules rules = Rules();
  rules.restarts = 3;
  rules.on_death = "wait";
  Begin(rules);
  EXPECT_EQ(Judged(0, true),
            "[server 0 is silent and counts as dead; its process is ended in 10 s]");
  EXPECT_EQ(Ended(1, 1),
            "lost worker 0, [worker 0 ended with status 1; it is not started again, because the "
            "job cannot go on]");
}

// Its next process finds the values, and may save them within the grace period.
TEST_F(LaunchPlanTest, AWorkerIsStartedAgainAfterOneThatHasNoRestartLeft) {
  for (const std::string policy : {"wait", "fail", "continue"}) {
    LaunchRules rules = Rules();
    rules.restarts = 1;
    rules.on_death = policy;
    Begin(rules);
    Ended(1, 3);
    EXPECT_EQ(Ended(1, 3), "lost worker 0, [worker 0 ended with status 3]");
    EXPECT_EQ(Ended(2, 1),
              "[worker 1 ended with status 1; it is started again (1 of 1)], start worker 1");
  }
}

TEST_F(LaunchPlanTest, NobodyIsAskedToStartAWorkerAfterTheDeathOfAServer) {
  LaunchRules rules = Rules();
  rules.on_death = "wait";
  Begin(rules);
  Ended(0, 137);
  EXPECT_EQ(Ended(1, 1), "lost worker 0, [worker 0 ended with status 1]");
}

TEST_F(LaunchPlanTest, AWorkerThatHadLeftIsNotStartedAgainAndTheOthersGoOn) {
  for (const std::string policy : {"wait", "continue"}) {
    for (const int restarts : {0, 2}) {
      LaunchRules rules = Rules();
      rules.restarts = restarts;
      rules.on_death = policy;
      Begin(rules);
      const std::string why =
          restarts > 0 ? "; it is not started again, because it had left the job" : "";
      EXPECT_EQ(EndedAfterItsLeave(2, 3),
                "lost worker 1, [worker 1 ended with status 3" + why + "]");
      EXPECT_EQ(After(seconds(1000)), "");
      EXPECT_EQ(Ended(1, 0), "gone worker 0");
      EXPECT_EQ(plan_->Status(), 3);
    }
  }
}

TEST_F(LaunchPlanTest, UnderFailAWorkerThatHadLeftEndsTheOthers) {
  LaunchRules rules = Rules();
  rules.restarts = 2;
  Begin(rules);
  EXPECT_EQ(EndedAfterItsLeave(2, 3),
            "lost worker 1, [worker 1 ended with status 3; it is not started again, because it had "
            "left the job]");
  EXPECT_EQ(After(seconds(10)),
            "[worker 0 still runs after the grace period of 10 s; it is ended], end server 0, end "
            "worker 0");
}

TEST_F(LaunchPlanTest, NobodyIsAskedToStartTheLastWorkerAfterItsLeave) {
  LaunchRules rules = Rules(1);
  rules.on_death = "wait";
  Begin(rules);
  EXPECT_EQ(EndedAfterItsLeave(1, 3, true), "lost worker 0, [worker 0 ended with status 3]");
  EXPECT_EQ(plan_->Status(), 3);
}

TEST_F(LaunchPlanTest, SomebodyElseMayStartAWorkerThatRoundsWaitFor) {
  LaunchRules rules = Rules();
  rules.on_death = "wait";
  Begin(rules);
  EXPECT_EQ(Ended(1, 1),
            "[worker 0 ended with status 1; rounds wait for its next life, at most their patience: "
            "start it with ...]");
  EXPECT_EQ(After(seconds(1000)), "");
}

TEST_F(LaunchPlanTest, ServersStayForAWorkerThatSomebodyElseHasStarted) {
  constexpr bool kLives = true;
  LaunchRules rules = Rules();
  rules.on_death = "wait";
  Begin(rules);
  Ended(2, 137);
  EXPECT_FALSE(plan_->AwaitsOthers()) << "worker 0 runs";
  Ended(1, 0);
  EXPECT_TRUE(plan_->AwaitsOthers());
  EXPECT_EQ(After(seconds(0)), "");
  EXPECT_EQ(After(seconds(2)), "") << "it has not joined yet";
  EXPECT_EQ(After(milliseconds(0), kLives), "");
  EXPECT_EQ(After(seconds(1000), kLives), "");
  EXPECT_EQ(After(milliseconds(0)), "") << "it has left, or is dead";
  EXPECT_EQ(After(seconds(2)), "");
  EXPECT_EQ(After(milliseconds(1)), "end server 0");
  EXPECT_EQ(plan_->Status(), 137);
}

TEST_F(LaunchPlanTest, ASignalEndsTheServersOfAWorkerThatSomebodyElseHasStarted) {
  constexpr bool kLives = true;
  LaunchRules rules = Rules(1);
  rules.on_death = "wait";
  Begin(rules);
  Ended(1, 137);
  EXPECT_EQ(After(seconds(100), kLives), "");
  EXPECT_EQ(Asked(SIGINT), "[ending the job; once more kills it]");
  EXPECT_EQ(After(milliseconds(0), kLives), "");
  EXPECT_EQ(After(milliseconds(2'001), kLives), "end server 0");
}

TEST_F(LaunchPlanTest, ALostServerStartsTheJobAgainFromItsSnapshot) {
  LaunchRules rules = Rules();
  rules.restarts = 1;
  rules.has_snapshots = true;
  EXPECT_EQ(Begin(rules), "start server 0, start worker 0, start worker 1");
  EXPECT_EQ(Ended(0, 137),
            "lost server 0, [server 0 was killed by signal 9; the job is started again (1 of 1)], "
            "kill worker 0, kill worker 1");
  EXPECT_EQ(Ended(1, 137), "");
  EXPECT_FALSE(plan_->MustBegin());
  EXPECT_EQ(Ended(2, 137), "");
  ASSERT_TRUE(plan_->MustBegin());
  EXPECT_EQ(Do([&](auto* out) { plan_->Begin("runs", now_, out); }),
            "start server 0, [goes on from the snapshot in runs], start worker 0, start worker 1");
  EXPECT_EQ(Restored(1), "");
  EXPECT_EQ(Restored(2), "start worker 0, start worker 1") << "after the last restorer";
  EXPECT_EQ(Ended(1, 0), "");
  EXPECT_EQ(Ended(0, 137), "lost server 0, [server 0 was killed by signal 9]") << "none is left";
  EXPECT_EQ(plan_->Status(), 137);
}

// A job that has lost a server, and in turn each of its processes.
class LostSnapshotTest : public LaunchPlanTest {
 protected:
  static LaunchRules WithSnapshots(const std::string& own) {
    LaunchRules rules = Rules(1);
    rules.restarts = 2;
    rules.has_snapshots = true;
    rules.snapshots = own;
    return rules;
  }
  // Ends all processes because the server has died, and starts the job again.
  std::string AgainFrom(const std::string& snapshot) {
    for (size_t i = 0; i < plan_->seats().size(); ++i) {
      if (plan_->seats()[i].state != Seat::State::kOver) Ended(i, 137);
    }
    EXPECT_TRUE(plan_->MustBegin());
    return Do([&](auto* out) { plan_->Begin(snapshot, now_, out); });
  }
  void ExpectTheEnd() {
    EXPECT_FALSE(plan_->IsAnyRunning());
    EXPECT_FALSE(plan_->MustBegin());
    EXPECT_EQ(plan_->Status(), 2);
  }
};

TEST_F(LostSnapshotTest, AJobWithoutASaveBeginsAnew) {
  Begin(WithSnapshots("runs"));
  EXPECT_TRUE(plan_->AwaitsSave());
  EXPECT_EQ(AgainFrom(""),
            "start server 0, [there is no snapshot yet; the job begins anew], start worker 0");
  EXPECT_EQ(plan_->Status(), 0);
}

TEST_F(LostSnapshotTest, AJobThatHasSavedDoesNotBeginAnew) {
  Begin(WithSnapshots("runs"));
  plan_->Saved();
  EXPECT_FALSE(plan_->AwaitsSave());
  EXPECT_EQ(AgainFrom(""),
            "[the job cannot go on: there is no snapshot in runs any more; put it back and give "
            "the same command again, which otherwise begins anew]");
  ExpectTheEnd();
}

TEST_F(LostSnapshotTest, AJobThatHasGoneOnFromASnapshotDoesNotBeginAnew) {
  for (const std::string own : {"", "runs"}) {
    Begin(WithSnapshots(own), "runs");
    EXPECT_FALSE(plan_->AwaitsSave());
    const std::string otherwise = own.empty() ? "" : ", which otherwise begins anew";
    EXPECT_EQ(AgainFrom(""),
              "[the job cannot go on: there is no snapshot in runs any more; put it back and give "
              "the same command again" +
                  otherwise + "]");
    ExpectTheEnd();
  }
}

TEST_F(LostSnapshotTest, AJobThatHasSavedDoesNotGoBackToTheFirstSnapshot) {
  Begin(WithSnapshots("new"), "old");
  EXPECT_TRUE(plan_->AwaitsSave());
  plan_->Saved();
  EXPECT_EQ(AgainFrom("old"),
            "[the job cannot go on: there is no snapshot in new any more; put it back and give the "
            "same command again, which otherwise goes on from the older one in old]");
  ExpectTheEnd();
}

TEST_F(LostSnapshotTest, AJobGoesOnFromItsOwnSnapshotsAfterTheFirstOne) {
  Begin(WithSnapshots("new"), "old");
  EXPECT_EQ(AgainFrom("old"), "start server 0, [goes on from the snapshot in old], start worker 0");
  EXPECT_TRUE(plan_->AwaitsSave());
  EXPECT_EQ(AgainFrom("new"), "start server 0, [goes on from the snapshot in new], start worker 0");
  EXPECT_FALSE(plan_->AwaitsSave());
  EXPECT_EQ(plan_->Status(), 0);
}

// Workers fail when a server hangs.  The launcher asks the head before it reports such an end.
TEST_F(LaunchPlanTest, ASilentServerStartsTheJobAgainBeforeWorkersUseUpTheirRestarts) {
  LaunchRules rules = Rules();
  rules.restarts = 1;
  rules.has_snapshots = true;
  Begin(rules);
  EXPECT_EQ(Judged(0, true),
            "[server 0 is silent and counts as dead; the job is started again (1 of 1)], kill "
            "server 0, kill worker 0, kill worker 1");
  EXPECT_EQ(Ended(1, 1), "");
  EXPECT_EQ(Ended(2, 1), "");
  EXPECT_EQ(Ended(0, 137), "");
  EXPECT_TRUE(plan_->MustBegin());
  EXPECT_EQ(plan_->Status(), 0);
}

TEST_F(LaunchPlanTest, ARestorerThatFailsByItselfEndsTheJob) {
  LaunchRules rules = Rules(1);
  rules.restarts = 1;
  rules.has_snapshots = true;
  Begin(rules, "runs");
  EXPECT_EQ(Ended(1, 1), "lost worker 0, [worker 0 has not restored runs: status 1]");
  EXPECT_EQ(After(seconds(10)), "end server 0");
  EXPECT_EQ(plan_->Status(), 1);
}

TEST_F(LaunchPlanTest, RestorersThatFindDamageSayOnceWhatElseThereIs) {
  LaunchRules rules = Rules();
  rules.restarts = 1;
  rules.has_snapshots = true;
  Begin(rules, "runs");
  SeatEnd end{.code = 65, .how = "ended with status 65"};
  end.advice = "; `--restore runs/000001` goes on from the snapshot before it";
  const auto ended = [&](size_t seat) {
    return Do([&](auto* out) { plan_->Ended(seat, end, now_, out); });
  };
  EXPECT_EQ(ended(1),
            "lost worker 0, [worker 0 has not restored runs: it is damaged; `--restore "
            "runs/000001` goes on from the snapshot before it]");
  EXPECT_EQ(ended(2), "lost worker 1, [worker 1 has not restored runs: it is damaged]");
  EXPECT_EQ(plan_->Status(), 2);
}

TEST_F(LaunchPlanTest, ARestorerThatLosesAServerStartsTheJobAgain) {
  LaunchRules rules = Rules(1);
  rules.restarts = 1;
  rules.has_snapshots = true;
  Begin(rules, "runs");
  EXPECT_EQ(Ended(1, 75),
            "[worker 0 has not restored runs: status 75; the job is started again (1 of 1)], kill "
            "server 0");
}

TEST_F(LaunchPlanTest, TheFirstSignalLetsServersEndLastAndTheSecondKills) {
  Begin(Rules());
  EXPECT_EQ(Asked(SIGINT),
            "[ending the job; once more kills it], signal worker 0, signal worker 1");
  EXPECT_FALSE(plan_->is_killed());
  EXPECT_EQ(Asked(SIGINT), "kill server 0, kill worker 0, kill worker 1");
  EXPECT_TRUE(plan_->is_killed());
  EXPECT_EQ(plan_->Status(), 128 + SIGINT);
}

TEST_F(LaunchPlanTest, NothingIsStartedAgainAfterASignal) {
  LaunchRules rules = Rules(1);
  rules.restarts = 5;
  rules.has_snapshots = true;
  Begin(rules);
  Asked(SIGTERM);
  EXPECT_EQ(Ended(1, 143), "lost worker 0");
  EXPECT_EQ(Ended(0, 143), "lost server 0");
  EXPECT_FALSE(plan_->IsAnyRunning());
  EXPECT_FALSE(plan_->MustBegin());
}

TEST_F(LaunchPlanTest, ASignalEndsAJobThatWasToBeStartedAgain) {
  LaunchRules rules = Rules(1);
  rules.restarts = 1;
  rules.has_snapshots = true;
  Begin(rules);
  Ended(0, 137);
  Asked(SIGTERM);
  Ended(1, 137);
  EXPECT_FALSE(plan_->MustBegin());
  EXPECT_FALSE(plan_->IsAnyRunning());
}

TEST_F(LaunchPlanTest, ASilentProcessHasTheGracePeriodAndMayComeBack) {
  Begin(Rules());
  EXPECT_EQ(Judged(2, true),
            "[worker 1 is silent and counts as dead; its process is ended in 10 s]");
  EXPECT_EQ(Judged(2, false), "") << "it has joined again";
  now_ += seconds(20);
  EXPECT_EQ(Judged(2, true),
            "[worker 1 is silent and counts as dead; its process is ended in 10 s]");
  now_ += seconds(10);
  EXPECT_EQ(Judged(2, true), "end worker 1");
  EXPECT_EQ(Judged(2, true), "");
  now_ += seconds(3);
  EXPECT_EQ(Judged(2, true), "kill worker 1");
}

TEST_F(LaunchPlanTest, AnObserverThatFailsEndsNobodyAndCountsIfTheJobWentOn) {
  LaunchRules rules = Rules(1);
  rules.observers = 1;
  Begin(rules);
  EXPECT_EQ(Ended(2, 4), "lost observer 0, [observer 0 ended with status 4]");
  EXPECT_EQ(After(seconds(3)), "");
  Ended(1, 0);
  After(milliseconds(1));
  EXPECT_EQ(plan_->Status(), 4);
}

TEST_F(LaunchPlanTest, AnObserverThatFailedBeforeTheJobWasStartedAgainDoesNotCount) {
  LaunchRules rules = Rules(1);
  rules.observers = 1;
  rules.restarts = 1;
  rules.has_snapshots = true;
  Begin(rules);
  Ended(2, 4);
  After(seconds(10));
  Ended(0, 137);
  Ended(1, 137);
  ASSERT_TRUE(plan_->MustBegin());
  Do([&](auto* out) { plan_->Begin("", now_, out); });
  After(seconds(10));
  EXPECT_EQ(Ended(2, 0), "gone observer 0");
  Ended(1, 0);
  After(seconds(1));
  EXPECT_EQ(plan_->Status(), 0);
}

TEST_F(LaunchPlanTest, AnObserverThatFailsAtTheEndOfTheJobDoesNotCount) {
  LaunchRules rules = Rules(1);
  rules.observers = 1;
  Begin(rules);
  Ended(2, 4);
  Ended(1, 0);
  After(seconds(1));
  EXPECT_EQ(plan_->Status(), 0);
}

// ---- other hosts --------------------------------------------------------------------------------

TEST_F(LaunchPlanTest, AHostGetsAFewAgentsAtATime) {
  LaunchRules rules = Rules(10, 0);
  rules.host_of = [](Job::Role, int) { return std::string("far"); };
  EXPECT_EQ(Begin(rules),
            "start worker 0, start worker 1, start worker 2, start worker 3, start worker 4, start "
            "worker 5, start worker 6, start worker 7");
  EXPECT_EQ(After(seconds(1)), "");
  plan_->Greeted(3);
  EXPECT_EQ(After(seconds(1)), "start worker 8");
  EXPECT_EQ(After(seconds(1)), "");
}

TEST_F(LaunchPlanTest, AHostThatWasNeverReachedIsAMistakeInTheList) {
  LaunchRules rules = Rules(1, 0);
  rules.host_of = [](Job::Role, int) { return std::string("far"); };
  rules.restarts = 3;
  Begin(rules);
  EXPECT_EQ(Ended(0, 127), "lost worker 0, [worker 0: ended with status 127]");
  EXPECT_EQ(plan_->Status(), 2);
}

TEST_F(LaunchPlanTest, AHostThatIsLostForAWhileIsTriedAgainLaterAndLater) {
  LaunchRules rules = Rules(1, 0);
  rules.host_of = [](Job::Role, int) { return std::string("far"); };
  rules.restarts = 3;
  Begin(rules);
  plan_->Greeted(0);
  EXPECT_EQ(Ended(0, 1),
            "[worker 0 ended with status 1; it is started again (1 of 3)], start worker 0");
  EXPECT_EQ(Ended(0, 255),
            "[worker 0: was killed by signal 127; it is started again in 4 s (2 of 3)]");
  EXPECT_EQ(After(milliseconds(3'999)), "");
  EXPECT_EQ(After(milliseconds(1)), "start worker 0");
  EXPECT_EQ(Ended(0, 255),
            "[worker 0: was killed by signal 127; it is started again in 8 s (3 of 3)]");
  EXPECT_EQ(After(seconds(8)), "start worker 0");
  EXPECT_EQ(Ended(0, 255), "lost worker 0, [worker 0: was killed by signal 127]");
}

TEST_F(LaunchPlanTest, AHeadThatCanDoNothingMoreEndsTheJob) {
  Begin(Rules());
  EXPECT_EQ(Do([&](auto* out) { plan_->HeadFailed("head: there is no memory", now_, out); }),
            "[the job ends: head: there is no memory]");
  EXPECT_EQ(After(milliseconds(0)), "end server 0, end worker 0, end worker 1");
  EXPECT_EQ(Ended(1, 143), "lost worker 0");
  EXPECT_EQ(After(seconds(4)),
            "[server 0, worker 1 do not end; they are killed], kill server 0, kill worker 1");
  EXPECT_EQ(plan_->Status(), 2);
}

}  // namespace
}  // namespace tkv::cli
