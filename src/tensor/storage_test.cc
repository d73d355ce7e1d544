#include "tkv/storage.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/arrays.h"
#include "tkv/dlpack.h"
#include "tkv/error.h"

namespace tkv {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(1);

// An operation that ends when the test ends it, and records whether a thread has waited.
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

// An operation that runs until a thread waits for it.
class EndsWhenWaitedFor final : public Pending {
 public:
  bool done() const noexcept override { return done_; }
  void Wait(std::chrono::nanoseconds) override { done_ = true; }

 private:
  bool done_ = false;
};

TEST(Storage, ReadingWaitsForTheWriterOnly) {
  auto storage = Storage::Allocate(8);
  auto reader = std::make_shared<FakeOperation>();
  auto writer = std::make_shared<FakeOperation>();
  storage->AddReader(reader);
  storage->AddWriter(writer);
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
  EXPECT_EQ(reader->waits, 1) << "a finished reader is forgotten";
}

TEST(Storage, EveryWriterIsWaitedForUntilItHasEnded) {
  auto storage = Storage::Allocate(8);
  auto first = std::make_shared<FakeOperation>();
  auto second = std::make_shared<FakeOperation>();
  storage->AddWriter(first);
  storage->AddWriter(second);
  second->Finish();
  EXPECT_THROW(storage->WaitReadable(kPatience), Error);
  first->Finish();
  storage->WaitReadable(kPatience);
}

TEST(Storage, AnExportForReadingWaitsForTheWriterAndMarksForGood) {
  auto storage = Storage::Allocate(8);
  auto writer = std::make_shared<FakeOperation>();
  storage->AddWriter(writer);
  EXPECT_THROW(storage->MarkForeign(Access::kRead, kPatience), Error);
  EXPECT_FALSE(storage->foreign());
  writer->Finish();
  storage->AddReader(std::make_shared<FakeOperation>());
  storage->MarkForeign(Access::kRead, kPatience);
  EXPECT_TRUE(storage->foreign());
}

TEST(Storage, AnExportForWritingWaitsForReadersToo) {
  auto storage = Storage::Allocate(8);
  auto reader = std::make_shared<FakeOperation>();
  storage->AddReader(reader);
  EXPECT_THROW(storage->MarkForeign(Access::kWrite, kPatience), Error);
  EXPECT_FALSE(storage->foreign());
  reader->Finish();
  storage->MarkForeign(Access::kWrite, kPatience);
  EXPECT_TRUE(storage->foreign());
}

TEST(Storage, NobodyReadsForeignMemoryOnAfterTheCall) {
  auto storage = Storage::Allocate(8);
  EXPECT_TRUE(storage->AddReader(std::make_shared<FakeOperation>()));
  auto shared = Storage::Allocate(8);
  shared->MarkForeign(Access::kWrite);
  EXPECT_FALSE(shared->AddReader(std::make_shared<FakeOperation>()));
  shared->WaitWritable(kPatience);
}

TEST(Storage, WaitingForAllMeansEveryArrayOfTheProcess) {
  auto first = Storage::Allocate(8);
  auto second = Storage::Allocate(8);
  auto reader = std::make_shared<FakeOperation>();
  auto writer = std::make_shared<FakeOperation>();
  first->AddReader(reader);
  second->AddWriter(writer);
  EXPECT_THROW(WaitAll(kPatience), Error);
  reader->Finish();
  EXPECT_THROW(WaitAll(kPatience), Error);
  writer->Finish();
  WaitAll(kPatience);
}

// Every read of an array must wait for its pending writer, and every write for its pending reader.
// Each case has one pending operation.
TEST(Hazards, EveryUseOfAnArrayWaitsForWhatIsUnderWay) {
  NDArray array;
  const NDArray other = test::Floats({5, 6, 7, 8});
  const auto give_back = [](DLManagedTensorVersioned* managed) { managed->deleter(managed); };
  const std::vector<std::pair<const char*, std::function<void()>>> reads = {
      {"Copy", [&] { array.Copy(); }},
      {"CopyFrom, the source", [&] { other.CopyFrom(array); }},
      {"Binary", [&] { Binary(BinaryOp::kAdd, array, other); }},
      {"Binary, the right side", [&] { Binary(BinaryOp::kAdd, other, array); }},
      {"BinaryInto, an operand", [&] { BinaryInto(BinaryOp::kAdd, other, array, other); }},
      {"Unary", [&] { Unary(UnaryOp::kNeg, array); }},
      {"ConvertFloat", [&] { ConvertFloat(array, DType::kF16); }},
      {"a view of it", [&] { array.Slice(1, 2).Reshape({1, 1}).Copy(); }},
      {"LendByDLPack", [&] { give_back(LendByDLPack(array, Access::kRead)); }}};
  const std::vector<std::pair<const char*, std::function<void()>>> writes = {
      {"CopyFrom", [&] { array.CopyFrom(other); }},
      {"BinaryInto", [&] { BinaryInto(BinaryOp::kAdd, other, other, array); }},
      {"Fill", [&] { Fill(array, 1); }},
      {"a view of it", [&] { Fill(array.At(3), 1); }},
      {"LendByDLPack", [&] { give_back(LendByDLPack(array, Access::kWrite)); }},
      {"ToDLPackVersioned", [&] { give_back(ToDLPackVersioned(array)); }},
      {"ToDLPack", [&] {
         auto* const managed = ToDLPack(array);
         managed->deleter(managed);
       }}};
  for (const auto* const table : {&reads, &writes}) {
    for (const bool is_written : {false, true}) {
      for (const auto& [name, use] : *table) {
        array = test::Floats({1, 2, 3, 4});  // a new array: some uses make it foreign
        const auto operation = std::make_shared<EndsWhenWaitedFor>();
        if (is_written) {
          array.storage()->AddWriter(operation);
        } else {
          ASSERT_TRUE(array.storage()->AddReader(operation)) << name;
        }
        const bool has_to_wait = is_written || table == &writes;
        use();
        EXPECT_EQ(operation->done(), has_to_wait) << name << (is_written ? " W" : " R");
        operation->Wait(kPatience);
      }
    }
  }
}

// An operation that some streams can wait for.
class StreamOperation final : public Pending {
 public:
  explicit StreamOperation(Stream* known) : known_(known) {}
  bool done() const noexcept override { return false; }
  void Wait(std::chrono::nanoseconds) override { throw Error(Code::kDeadlineExceeded, "waits"); }
  bool Order(Stream* stream) override { return stream == known_; }

 private:
  Stream* const known_;
};

TEST(Storage, TheHostWaitsForWhatAStreamCannotWaitFor) {
  auto* const known = reinterpret_cast<Stream*>(0x10);
  auto* const other = reinterpret_cast<Stream*>(0x20);
  auto storage = Storage::Allocate(8);
  const auto reader = std::make_shared<StreamOperation>(known);
  storage->AddReader(reader);
  EXPECT_EQ(storage->Order(other, Access::kRead), nullptr);
  EXPECT_EQ(storage->Order(known, Access::kWrite), nullptr);
  EXPECT_EQ(storage->Order(other, Access::kWrite), reader);
  EXPECT_THROW(storage->WaitWritable(kPatience), Error);
  const auto writer = std::make_shared<FakeOperation>();
  storage->AddWriter(writer);
  EXPECT_EQ(storage->Order(known, Access::kRead), writer) << "an operation of the host";
}

// An operation on a stream that is known to be done only after a caller has asked.
class InOrder final : public Pending {
 public:
  InOrder(const Stream* stream, int number) : stream_(stream), number_(number) {}
  bool done() const noexcept override {
    ++asked;
    return false;
  }
  void Wait(std::chrono::nanoseconds) override { throw Error(Code::kDeadlineExceeded, "waits"); }
  bool Order(Stream*) override { return false; }
  bool is_known_done() const noexcept override { return false; }
  bool IsBefore(const Stream* stream) const noexcept override { return stream == stream_; }
  bool IsCoveredBy(const Pending& later) const noexcept override {
    const auto& other = dynamic_cast<const InOrder&>(later);
    return stream_ == other.stream_ && number_ < other.number_;
  }
  mutable int asked = 0;

 private:
  const Stream* const stream_;
  const int number_;
};

TEST(Storage, AStreamComesAfterItsOwnWorkWithoutAQuestionToTheDevice) {
  auto* const stream = reinterpret_cast<Stream*>(0x10);
  auto* const other = reinterpret_cast<Stream*>(0x20);
  auto storage = Storage::Allocate(8);
  const auto writer = std::make_shared<InOrder>(stream, 1);
  storage->AddWriter(writer);
  EXPECT_EQ(storage->Order(stream, Access::kWrite), nullptr);
  EXPECT_EQ(writer->asked, 0);
  EXPECT_EQ(storage->Order(other, Access::kWrite), writer);
}

TEST(Storage, OfTheWorkOfAStreamTheLastIsRememberedAndItsLastWriter) {
  const auto* const stream = reinterpret_cast<const Stream*>(0x10);
  auto* const other = reinterpret_cast<Stream*>(0x20);
  auto storage = Storage::Allocate(8);
  std::vector<std::weak_ptr<InOrder>> all;
  const auto add = [&](bool writes) {
    const auto operation = std::make_shared<InOrder>(stream, static_cast<int>(all.size()));
    all.push_back(operation);
    writes ? storage->AddWriter(operation) : void(storage->AddReader(operation));
  };
  const auto kept = [&] {
    std::vector<size_t> numbers;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i].expired()) numbers.push_back(i);
    }
    return numbers;
  };
  // A use that ends together with a later one is removed when the next use is added.
  for (const bool writes : {false, true, false, false, false}) add(writes);
  EXPECT_EQ(kept(), (std::vector<size_t>{1, 3, 4}));
  EXPECT_EQ(storage->Order(other, Access::kRead), all[1].lock());
  for (const bool writes : {true, true}) add(writes);
  EXPECT_EQ(kept(), (std::vector<size_t>{5, 6}));
}

TEST(Storage, MemoryIsTheHosts) {
  auto storage = Storage::Allocate(8);
  EXPECT_EQ(storage->memory(), Memory());
  EXPECT_EQ(storage->HostData(), storage->data());
  EXPECT_FAILS(Code::kUnimplemented, Storage::Allocate(8, {Memory::Kind::kPinned, 0}));
  EXPECT_FAILS(Code::kUnimplemented, Storage::Allocate(8, {Memory::Kind::kDevice, 1}));
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

// ---- foreign code that runs when an operation is destroyed

// An operation with the last handle on foreign memory, whose deleter uses arrays.
class OwnsForeignMemory final : public Pending {
 public:
  explicit OwnsForeignMemory(std::function<void()> deleter) : deleter_(std::move(deleter)) {}
  ~OwnsForeignMemory() override { deleter_(); }
  bool done() const noexcept override {
    if (when_asked) when_asked();
    return true;
  }
  void Wait(std::chrono::nanoseconds) override {}
  std::function<void()> when_asked;

 private:
  const std::function<void()> deleter_;
};

TEST(Storage, WhatAnOperationOwnedMayUseArraysWhenItGoes) {
  int dropped = 0;
  auto others = std::make_shared<OwnsForeignMemory>([&] {
    ++dropped;
    Storage::Allocate(8)->AddReader(std::make_shared<FakeOperation>());
    WaitAll(kPatience);
  });
  Storage::Allocate(8)->AddWriter(others);
  // The operation's user drops it while the library looks at it; the library then has the last
  // handle.
  OwnsForeignMemory* const looked_at = others.get();
  looked_at->when_asked = [&] {
    looked_at->when_asked = nullptr;
    others.reset();
  };
  for (int i = 0; i < 100'000 && dropped == 0; ++i) {  // until the registry tidies up
    const auto ended = std::make_shared<EndsWhenWaitedFor>();
    ended->Wait(kPatience);
    Storage::Allocate(8)->AddReader(ended);
  }
  EXPECT_EQ(dropped, 1);
}

// ---- fork

// An operation that holds the storage's lock while another thread asks whether it is done.
class HoldsTheLock final : public Pending {
 public:
  bool done() const noexcept override {
    is_held.store(true);
    is_held.notify_all();
    may_go.wait(false);
    return true;
  }
  void Wait(std::chrono::nanoseconds) override {}
  mutable std::atomic<bool> is_held{false};
  std::atomic<bool> may_go{false};
};

TEST(Storage, AChildOfForkUsesAStorageThatAThreadOfTheParentHadLocked) {
  const auto storage = Storage::Allocate(8);
  const auto operation = std::make_shared<HoldsTheLock>();
  storage->AddWriter(operation);
  std::thread other([&] { storage->IsInUse(Access::kWrite); });
  operation->is_held.wait(false);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    storage->WaitWritable(kPatience);
    const auto mine = std::make_shared<FakeOperation>();
    bool ok = !storage->IsInUse(Access::kWrite) && storage->AddReader(mine) &&
              storage->IsInUse(Access::kWrite);
    mine->Finish();
    storage->MarkForeign(Access::kWrite, kPatience);
    _exit(ok && storage->foreign() ? 0 : 1);
  }
  operation->may_go.store(true);
  operation->may_go.notify_all();
  other.join();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace tkv
