#include "tkv/storage.h"

#include <gtest/gtest.h>

#include "tkv/error.h"

namespace tkv {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(1);

// An operation that ends when the test says so and records that somebody waited.
class FakeOperation final : public Pending {
 public:
  bool done() const noexcept override { return done_; }
  void Wait(std::chrono::nanoseconds) override {
    ++waits;
    if (!done_) throw Error(Code::kDeadlineExceeded, "still running");
  }
  void Finish() { done_ = true; }
  int waits = 0;

 private:
  bool done_ = false;
};

TEST(Storage, ReadingWaitsForTheWriterOnly) {
  auto storage = Storage::Allocate(8);
  auto reader = std::make_shared<FakeOperation>();
  auto writer = std::make_shared<FakeOperation>();
  storage->AddReader(reader);
  storage->SetWriter(writer);
  EXPECT_THROW(storage->WaitReadable(kPatience), Error);
  EXPECT_EQ(writer->waits, 1);
  EXPECT_EQ(reader->waits, 0);
}

TEST(Storage, WritingWaitsForReadersToo) {
  auto storage = Storage::Allocate(8);
  auto reader = std::make_shared<FakeOperation>();
  storage->AddReader(reader);
  storage->WaitReadable(kPatience);
  EXPECT_THROW(storage->WaitWritable(kPatience), Error);
  reader->Finish();
  storage->WaitWritable(kPatience);
  storage->WaitWritable(kPatience);
  EXPECT_EQ(reader->waits, 2) << "a finished reader is forgotten";
}

TEST(Storage, ExportWaitsForTheWriterAndMarksForGood) {
  auto storage = Storage::Allocate(8);
  auto writer = std::make_shared<FakeOperation>();
  storage->SetWriter(writer);
  EXPECT_THROW(storage->MarkForeign(kPatience), Error);
  EXPECT_FALSE(storage->foreign());
  writer->Finish();
  storage->MarkForeign(kPatience);
  EXPECT_TRUE(storage->foreign());
}

TEST(Storage, ForeignMemoryIsNeverFreedButItsOwnerIs) {
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = owner;
  double value = 0;
  auto storage = Storage::Adopt(&value, sizeof(value), true, std::move(owner));
  EXPECT_TRUE(storage->foreign());
  EXPECT_TRUE(storage->read_only());
  storage.reset();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace tkv
