#include "measure.h"

#include <sched.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <thread>

#include "tkv/config.h"

namespace tkv::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSampleSeconds = 0.02;
constexpr std::chrono::milliseconds kProbe{10};

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Returns the share of time that a busy thread does not get from the system.
double Missed() {
  const auto begin = Clock::now();
  const double used = ThreadSeconds();
  while (Clock::now() - begin < kProbe) {
  }
  return 1 - (ThreadSeconds() - used) / SecondsSince(begin);
}

// Returns the processors of this process, or none if it may not use each of them completely.
std::vector<int> OwnProcessors() {
  cpu_set_t set;
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  if (processors.size() != static_cast<size_t>(Cores())) processors.clear();
  return processors;
}

// Moves this thread to a processor.  New threads often share one for longer than a probe takes.
void MoveTo(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof(set), &set);  // this thread
}

// Returns the share of all cores' time used by other processes, or denied by a control group.
double ShareOfOthers() {
  const std::vector<int> processors = OwnProcessors();
  std::vector<double> missed(static_cast<size_t>(std::max(1, Cores())));
  std::vector<std::jthread> threads;
  threads.reserve(missed.size());
  for (size_t i = 0; i < missed.size(); ++i) {
    threads.emplace_back([&, i] {
      if (i < processors.size()) MoveTo(processors[i]);
      missed[i] = Missed();
    });
  }
  for (std::jthread& thread : threads) thread.join();
  double sum = 0;
  for (const double one : missed) sum += one;
  return std::max(0.0, sum / static_cast<double>(missed.size()));
}

// A run, repeated often enough for a sample that the clock can measure.
class Sampler {
 public:
  explicit Sampler(Figure::Run run) : run_(std::move(run)) {
    while (Take() * static_cast<double>(times_) < kSampleSeconds) times_ *= 2;
  }
  // Returns the seconds of one repetition.
  double Take() const {
    const auto begin = Clock::now();
    run_(times_);
    return SecondsSince(begin) / static_cast<double>(times_);
  }

 private:
  Figure::Run run_;
  int64_t times_ = 1;
};

class Row {
 public:
  explicit Row(const Figure& figure) : figure_(&figure), run_(figure.run) {
    for (const Figure::Run& limit : figure.limits) limits_.emplace_back(limit);
  }

  void TakeSample() {
    others_.push_back(ShareOfOthers());
    double limit = std::numeric_limits<double>::infinity();
    for (const Sampler& one : limits_) limit = std::min(limit, one.Take());
    const double seconds = run_.Take();
    const double scale = is_rate() ? figure_->bytes / figure_->limit_bytes : 1;
    reached_.push_back(scale * limit / seconds);
    values_.push_back(is_rate() ? figure_->bytes / seconds : seconds);
    limit_values_.push_back(is_rate() ? figure_->limit_bytes / limit : limit);
  }

  Result result() const {
    const auto [lowest, highest] = std::minmax_element(reached_.begin(), reached_.end());
    return {figure_->name,         figure_->limit_name, is_rate(), Median(values_),
            Median(limit_values_), Median(reached_),    *lowest,   *highest,
            Median(others_)};
  }

 private:
  bool is_rate() const { return figure_->bytes > 0; }

  const Figure* figure_;
  Sampler run_;
  std::vector<Sampler> limits_;
  std::vector<double> values_, limit_values_, reached_, others_;
};

}  // namespace

Measurement Measure(const std::vector<Figure>& figures, Clock::time_point deadline,
                    const std::function<void()>& interrupt) {
  std::vector<Row> rows;
  rows.reserve(figures.size());
  for (const Figure& figure : figures) rows.emplace_back(figure);
  Measurement measured;
  Clock::duration longest{};
  do {
    const auto begin = Clock::now();
    for (Row& row : rows) {
      interrupt();
      row.TakeSample();
    }
    longest = std::max(longest, Clock::now() - begin);
    ++measured.rounds;
  } while (Clock::now() + longest < deadline);
  for (const Row& row : rows) measured.results.push_back(row.result());
  return measured;
}

}  // namespace tkv::cli
