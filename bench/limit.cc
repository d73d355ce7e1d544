// The limits of this machine's memory: each kernel moves the bytes of one row of the benchmark and
// nothing more.
//
// In: streams that are read and added.  States: streams that are read and written (weight and
// optimizer state).  Out: streams that are written, by temporal or non-temporal stores as
// requested; the caller takes the better.  Threads are started once and sleep on a condition in
// between.

#include <immintrin.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
using Vec = __m512;
inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, Vec v, bool nt) { nt ? _mm512_stream_ps(p, v) : _mm512_store_ps(p, v); }
inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
#else
using Vec = __m256;
inline Vec Load(const float* p) { return _mm256_loadu_ps(p); }
inline void Store(float* p, Vec v, bool nt) { nt ? _mm256_stream_ps(p, v) : _mm256_store_ps(p, v); }
inline Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
#endif
constexpr size_t kLanes = sizeof(Vec) / sizeof(float);

class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Work(i); });
  }
  ~Pool() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
  }
  size_t size() const { return workers_.size() + 1; }
  void Run(const std::function<void(int)>& task) {
    {
      std::lock_guard lock(mutex_);
      task_ = &task;
      left_ = workers_.size();
      ++round_;
    }
    wake_.notify_all();
    task(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  void Work(int index) {
    std::unique_lock lock(mutex_);
    for (size_t seen = 0;;) {
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      lock.unlock();
      (*task_)(index);
      lock.lock();
      if (--left_ == 0) done_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> workers_;
  const std::function<void(int)>* task_ = nullptr;
  size_t round_ = 0, left_ = 0;
  bool stop_ = false;
};

void OnThreads(int threads, size_t count, const std::function<void(size_t, size_t)>& body) {
  static std::unique_ptr<Pool> pool;
  if (threads <= 1) return body(0, count);
  if (!pool || pool->size() != static_cast<size_t>(threads)) pool = std::make_unique<Pool>(threads);
  const size_t part = (count / static_cast<size_t>(threads) + 15) / 16 * 16;
  pool->Run([&](int i) {
    const size_t begin = std::min(count, part * static_cast<size_t>(i));
    body(begin, i == threads - 1 ? count : std::min(count, begin + part));
  });
}

template <int kIn>
void Range(const float* const* in, int state_count, float* const* states, int out_count,
           float* const* outs, size_t begin, size_t end, bool nt) {
  constexpr size_t kBlock = 1024;  // long runs of one stream keep DRAM pages open
  alignas(64) float block[kBlock];
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t length = std::min(kBlock, end - at);
    for (size_t i = 0; i < length; i += kLanes) {
      Vec sum = Load(in[0] + at + i);
      for (int k = 1; k < kIn; ++k) sum = Add(sum, Load(in[k] + at + i));
      for (int s = 0; s < state_count; ++s) {
        sum = Add(sum, Load(states[s] + at + i));
        Store(states[s] + at + i, sum, false);
      }
      Store(block + i, sum, false);
    }
    for (int o = 0; o < out_count; ++o) {
      for (size_t i = 0; i < length; i += kLanes) Store(outs[o] + at + i, Load(block + i), nt);
    }
  }
  if (nt) _mm_sfence();
}

}  // namespace

// Arrays are 64-byte aligned, count is a multiple of 16.
extern "C" void limit_run(int in_count, const float* const* in, int state_count,
                          float* const* states, int out_count, float* const* outs, size_t count,
                          int threads, int nt, int repeats) {
  for (int i = 0; i < repeats; ++i) {
    OnThreads(threads, count, [&](size_t begin, size_t end) {
      if (in_count == 1) Range<1>(in, state_count, states, out_count, outs, begin, end, nt != 0);
      if (in_count == 4) Range<4>(in, state_count, states, out_count, outs, begin, end, nt != 0);
    });
  }
}

extern "C" void limit_copy(const float* in, float* out, size_t count, int threads) {
  OnThreads(threads, count, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += kLanes) Store(out + i, Load(in + i), true);
    _mm_sfence();
  });
}

// Pure arithmetic for the idle check, the same amount on each thread.
extern "C" double limit_compute(int threads, size_t steps) {
  std::vector<double> results(static_cast<size_t>(threads) * 16, 0.0);
  OnThreads(threads, results.size(), [&](size_t begin, size_t) {
    double x = 1.0 + static_cast<double>(begin);
    for (size_t i = 0; i < steps; ++i) x = x * 1.0000001 + 1e-9;
    results[begin] = x;
  });
  double sum = 0;
  for (double r : results) sum += r;
  return sum;
}
