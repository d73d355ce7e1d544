// The way of a process's output: which part is passed on when, and how a page shows it.

#include "lines.h"

#include <gtest/gtest.h>

#include <string>

#include "page.h"

namespace tkv::cli {
namespace {

using std::chrono::milliseconds;

class LinesTest : public ::testing::Test {
 protected:
  std::string Live(std::string_view bytes = {}) { return Get(true, bytes); }
  std::string Whole(std::string_view bytes = {}) { return Get(false, bytes); }
  void After(int time) { now_ += milliseconds(time); }

  Lines lines_;
  Lines::Time now_ = Lines::Time() + milliseconds(1000);

 private:
  std::string Get(bool is_live, std::string_view bytes) {
    if (!bytes.empty()) lines_.Add(bytes, now_);
    return lines_.Take(is_live, now_);
  }
};

TEST_F(LinesTest, WholeLinesArePassedOnAtOnce) {
  EXPECT_EQ(Whole("a\nb\nc"), "a\nb\n");
  After(1000);
  EXPECT_EQ(Whole(), "");
  EXPECT_EQ(Whole("d\n"), "cd\n");
  EXPECT_EQ(lines_.due(), Lines::kNever);
}

TEST_F(LinesTest, ALiveReaderGetsAnUnfinishedLineWhenItIsOld) {
  EXPECT_EQ(Live("a\nb"), "a\n");
  EXPECT_EQ(lines_.due(), now_ + milliseconds(100));
  After(99);
  EXPECT_EQ(Live("c"), "") << "later bytes do not make the first one younger, nor older";
  After(1);
  EXPECT_EQ(Live(), "bc");
  EXPECT_EQ(lines_.due(), Lines::kNever);
  EXPECT_EQ(Live("d\n"), "d\n");
}

// The launcher does not read from a process whose output nobody takes.
TEST_F(LinesTest, ALineIsNotOldWhileItsRestIsNotRead) {
  EXPECT_EQ(Live("a"), "");
  After(90);
  lines_.Renew(now_);
  After(90);
  EXPECT_EQ(Live(), "");
  After(20);
  EXPECT_EQ(Live(), "a");
}

TEST_F(LinesTest, ALiveReaderGetsAFrameOfAProgressBarAtOnce) {
  EXPECT_EQ(Live("10%\r20"), "10%\r");
  EXPECT_EQ(lines_.due(), now_ + milliseconds(100));
  EXPECT_EQ(Whole("%\r30%\r"), "");
}

TEST_F(LinesTest, ALineThatIsTooLongIsPassedOnInPieces) {
  const std::string much(Lines::kBytesMax + 1, 'x');
  EXPECT_EQ(Whole(much), much + "\n");
  EXPECT_EQ(Live(much), much);
  EXPECT_EQ(lines_.size(), 0U);
  const std::string less(Lines::kLiveBytesMax, 'x');
  EXPECT_EQ(Live(less), "");
  EXPECT_EQ(Live("y"), less + "y");
}

TEST_F(LinesTest, OfTextThatIsLostTheLaterLinesStayAndPiecesAreShort) {
  lines_.Add("long\nshort\nun", now_);
  lines_.LoseLine();
  EXPECT_EQ(Live(), "short\n");
  lines_.LoseLine();
  EXPECT_EQ(lines_.size(), 0U);
  lines_.LoseLine();
  const std::string piece(Lines::kShortBytesMax + 1, 'x');
  EXPECT_EQ(Live(piece), piece);
}

TEST_F(LinesTest, TheEndOfAStreamEndsItsLine) {
  lines_.End();
  EXPECT_EQ(Live(), "") << "there is no line";
  EXPECT_EQ(Live("a"), "");
  lines_.End();
  EXPECT_EQ(Live(), "a\n");
  EXPECT_EQ(Live("b\r"), "b\r");
  lines_.End();
  EXPECT_EQ(Live(), "\n") << "of the part that was passed on";
  lines_.End();
  EXPECT_EQ(Live(), "");
}

TEST(WithoutInfoTest, LinesOfALogAtLevelInfoAreLeftOut) {
  const std::string info = "2026-01-02T03:04:05.678 info tensorkv pid=9: server 0 event=joined\n";
  const std::string warning =
      "2026-01-02T03:04:05.678 warning tensorkv pid=9: no info tensorkv pid=\n";
  EXPECT_EQ(WithoutInfo(info + warning + info + "other\n"), warning + "other\n");
  EXPECT_EQ(WithoutInfo("unfinished"), "unfinished");
  EXPECT_EQ(WithoutInfo("info tensorkv pid=\n\n"), "info tensorkv pid=\n\n");
  EXPECT_EQ(WithoutInfo(""), "");
}

TEST(PageTest, EachLineHasTheNameOfItsWriter) {
  Page page;
  EXPECT_EQ(page.Shown(1, "[a] ", "1\n\n2\n"), "[a] 1\n[a] \n[a] 2\n");
  EXPECT_EQ(page.Shown(2, "[b] ", "3\n"), "[b] 3\n");
  EXPECT_EQ(page.EndLine(), "");
}

TEST(PageTest, AnUnfinishedLineGoesOnOnlyByItsOwnWriter) {
  Page page;
  EXPECT_EQ(page.Shown(1, "[a] ", "1"), "[a] 1");
  EXPECT_EQ(page.Shown(1, "[a] ", "2"), "2");
  EXPECT_EQ(page.Shown(2, "[b] ", ""), "");
  EXPECT_EQ(page.Shown(2, "[b] ", "3"), "\n[b] 3");
  EXPECT_EQ(page.Shown(1, "[a] ", "4\n"), "\n[a] 4\n");
  EXPECT_EQ(page.Shown(1, "[a] ", "5"), "[a] 5");
  EXPECT_EQ(page.EndLine(), "\n");
}

TEST(PageTest, EachFrameOfAProgressBarHasTheName) {
  Page page;
  EXPECT_EQ(page.Shown(1, "[a] ", "\r10%"), "[a] 10%");
  EXPECT_EQ(page.Shown(1, "[a] ", "\r20%"), "\r[a] 20%");
  EXPECT_EQ(page.Shown(1, "[a] ", "\r\r30%\r"), "\r\r[a] 30%\r");
  EXPECT_EQ(page.Shown(1, "[a] ", "40%\n"), "[a] 40%\n");
}

TEST(PageTest, OnATerminalAProgressBarIsOverwritten) {
  Page page(true);
  EXPECT_EQ(page.Shown(1, "[a] ", "\r10%"), "[a] 10%");
  EXPECT_EQ(page.Shown(1, "[a] ", "\r20%"), "\r[a] 20%");
  EXPECT_EQ(page.Shown(2, "[b] ", "\r30%"), "\r\x1b[K[b] 30%");
  EXPECT_EQ(page.Shown(2, "[b] ", "\r40%"), "\r[b] 40%");
  EXPECT_EQ(page.Shown(3, "", "a line\n"), "\r\x1b[Ka line\n");
  EXPECT_EQ(page.Shown(1, "[a] ", "\r50%\r100%\n"), "[a] 50%\r[a] 100%\n") << "the last one stays";
  EXPECT_EQ(page.Shown(2, "[b] ", "a prompt: "), "[b] a prompt: ");
  EXPECT_EQ(page.Shown(1, "[a] ", "\r60%"), "\n[a] 60%") << "a prompt stays";
}

TEST(PageTest, InAFileNothingIsOverwritten) {
  Page page(false);
  page.Shown(1, "[a] ", "\r10%\r20%");
  EXPECT_EQ(page.Shown(2, "[b] ", "\r30%"), "\n[b] 30%");
}

TEST(PageTest, ALineMayEndInACarriageReturnAndANewline) {
  Page page;
  EXPECT_EQ(page.Shown(1, "[a] ", "1\r\n2\r"), "[a] 1\r\n[a] 2\r");
  EXPECT_EQ(page.Shown(1, "[a] ", "\n3\n"), "\n[a] 3\n");
}

TEST(PageTest, ATypedLineEndsThePrompt) {
  Page page;
  EXPECT_EQ(page.Shown(1, "[a] ", "name: "), "[a] name: ");
  page.LineIsTyped();
  EXPECT_EQ(page.Shown(1, "[a] ", "hello\n"), "[a] hello\n");
}

}  // namespace
}  // namespace tkv::cli
