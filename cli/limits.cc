#include "limits.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

namespace tkv::cli {
namespace {

using Copy = void (*)(char* target, const char* source, size_t bytes);

void CopyByLibrary(char* target, const char* source, size_t bytes) {
  std::memcpy(target, source, bytes);
}

// Copies with non-temporal stores if the processor has them.
void CopyPastCaches(char* target, const char* source, size_t bytes) {
#ifdef __SSE2__
  size_t i = 0;
  for (; i + sizeof(__m128i) <= bytes; i += sizeof(__m128i)) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
    _mm_stream_si128(reinterpret_cast<__m128i*>(target + i), part);
  }
  _mm_sfence();
  std::memcpy(target + i, source + i, bytes - i);
#else
  CopyByLibrary(target, source, bytes);
#endif
}

// Does something to bytes [begin, begin + bytes) of arrays.
using Part = std::function<void(size_t begin, size_t bytes)>;

// Returns a run in which each of `threads` threads handles a part of `bytes`.
Figure::Run OnThreads(int threads, size_t bytes, Part part) {
  return [threads, bytes, part = std::move(part)](int64_t times) {
    const auto work = [&](int index) {
      constexpr size_t kLine = 64;
      const size_t share = (bytes / static_cast<size_t>(threads) + kLine) / kLine * kLine;
      const size_t begin = std::min(bytes, share * static_cast<size_t>(index));
      for (int64_t i = 0; i < times; ++i) {
        part(begin, std::min(bytes - begin, share));
        // Keeps the compiler from merging repetitions.
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
    };
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
    for (std::jthread& thread : others) thread.join();
  };
}

char* BytesOf(const NDArray& array) { return static_cast<char*>(array.HostData()); }

Figure::Run CopyRun(const NDArray& source, const NDArray& target, int threads, Copy copy) {
  return OnThreads(threads, source.bytes(), [source, target, copy](size_t begin, size_t bytes) {
    copy(BytesOf(target) + begin, BytesOf(source) + begin, bytes);
  });
}

// Sums into a block that fits in the cache, and copies the block to the target.
Figure::Run SumRun(const Summands& sources, const NDArray& target, int threads, Copy copy) {
  return OnThreads(threads, target.bytes(), [sources, target, copy](size_t begin, size_t bytes) {
    constexpr size_t kBlock = 1024;
    std::array<float, kBlock> block;
    std::array<const float*, 4> values;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = reinterpret_cast<const float*>(BytesOf(sources[i]) + begin);
    }
    const size_t count = bytes / sizeof(float);
    for (size_t at = 0; at < count; at += kBlock) {
      const size_t length = std::min(kBlock, count - at);
      for (size_t i = 0; i < length; ++i) {
        block[i] = values[0][at + i] + values[1][at + i] + values[2][at + i] + values[3][at + i];
      }
      copy(BytesOf(target) + begin + at * sizeof(float),
           reinterpret_cast<const char*>(block.data()), length * sizeof(float));
    }
  });
}

}  // namespace

std::vector<Figure::Run> Copies(const NDArray& source, const NDArray& target, int threads) {
  return {CopyRun(source, target, threads, CopyByLibrary),
          CopyRun(source, target, threads, CopyPastCaches)};
}

std::vector<Figure::Run> Sums(const Summands& sources, const NDArray& target, int threads) {
  return {SumRun(sources, target, threads, CopyByLibrary),
          SumRun(sources, target, threads, CopyPastCaches)};
}

std::vector<Figure::Run> Exchanges(const RawLink& link, const NDArray& source,
                                   const NDArray& target) {
  return {[&link, source, target](int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
      link.Exchange(BytesOf(source), BytesOf(target), source.bytes());
    }
  }};
}

}  // namespace tkv::cli
