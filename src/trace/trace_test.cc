#include <gtest/gtest.h>

#include <string>

#include "tkv/error.h"
#include "trace/chrome.h"
#include "trace/recorder.h"

namespace tkv {
namespace {

Span At(int64_t begin, int64_t nanoseconds, Span::Kind kind = Span::Kind::kPush, int32_t rank = 0) {
  Span span;
  span.begin = begin;
  span.nanoseconds = nanoseconds;
  span.kind = kind;
  span.rank = rank;
  return span;
}

TEST(Spans, TravelAsTheyAre) {
  const std::vector<Span> spans = {
      {1, 2, 3, 4, 5, 6, 7, 8, Span::Kind::kUpdate, Span::State::kFailed},
      {-1, INT64_MAX, UINT64_MAX, 0, 1, 2, 3, -1, Span::Kind::kOther, Span::State::kUnderWay}};
  const std::string bytes = EncodeSpans(spans);
  EXPECT_EQ(bytes.size(), 2 * kSpanBytes);
  EXPECT_EQ(DecodeSpans(bytes), spans);
}

TEST(Spans, OtherBytesAreRefused) {
  std::string bytes = EncodeSpans(std::vector<Span>{At(0, 1)});
  for (size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_THROW(DecodeSpans(std::string_view(bytes).substr(0, size)), Error) << size;
  }
  for (const size_t at : {kSpanBytes - 2, kSpanBytes - 1}) {
    std::string other = bytes;
    other[at] = 4;
    EXPECT_THROW(DecodeSpans(other), Error) << at;
  }
}

TEST(Recorder, KeepsTheNewest) {
  Recorder recorder;
  const auto count = static_cast<int64_t>(Recorder::kSpansMax) + 10;
  for (int64_t i = 0; i < count; ++i) recorder.Add(At(i, 0));
  EXPECT_EQ(recorder.next(), static_cast<uint64_t>(count));
  EXPECT_EQ(recorder.first(), 10U);
  const auto oldest = recorder.From(0, 2);
  ASSERT_EQ(oldest.size(), 2U);
  EXPECT_EQ(oldest[0].begin, 10);
  const auto newest = recorder.From(recorder.next() - 1, 100);
  ASSERT_EQ(newest.size(), 1U);
  EXPECT_EQ(newest[0].begin, count - 1);
  EXPECT_TRUE(recorder.From(UINT64_MAX, 5).empty());
  recorder.Clear();
  EXPECT_TRUE(recorder.From(0, 5).empty());
  EXPECT_EQ(recorder.first(), recorder.next()) << "numbers go on";
  recorder.Add(At(77, 0));
  ASSERT_EQ(recorder.From(0, 5).size(), 1U);
  EXPECT_EQ(recorder.From(0, 5)[0].begin, 77);
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ChromeTrace, HasClocksAlignedAndNoLineUsedTwiceAtOnce) {
  const TracedProcess worker{"worker \"0\"\n", 0, 0, 0, {At(5'000, 4'000), At(6'000, 1'000)}};
  const TracedProcess server{
      "server 0", 1'000'000, 500, 3, {At(1'006'500, 500, Span::Kind::kUpdate)}};
  const std::string text =
      ChromeTrace({worker, server}, [](const Span&) { return std::string("a\\b"); });
  EXPECT_TRUE(Has(text, R"("args":{"name":"worker \"0\"\n"})"));
  EXPECT_TRUE(
      Has(text, R"("name":"push a\\b","cat":"push","ts":0.000,"dur":4.000,"pid":1,"tid":1)"));
  EXPECT_TRUE(Has(text, R"("ts":1.000,"dur":1.000,"pid":1,"tid":2)")) << "they overlap";
  EXPECT_TRUE(Has(text, R"("cat":"update","ts":1.500,"dur":0.500,"pid":2,"tid":1)"));
  EXPECT_TRUE(Has(text, R"("lost_spans":{"worker \"0\"\n":0,"server 0":3})"));
  EXPECT_TRUE(Has(text, R"("server 0":0.500)"));
}

TEST(ChromeTrace, OfNothingIsADocumentToo) {
  EXPECT_TRUE(Has(ChromeTrace({}, {}), "\"traceEvents\":[\n]"));
}

}  // namespace
}  // namespace tkv
