#include "tests/gpu/fake/machine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/format.h"
#include "base/round_up.h"

namespace tkv::fake {
namespace {

constexpr Number kIllegalAddress = 700;
constexpr Number kLaunchFailed = 719;
constexpr size_t kPage = 4096;
// Between blocks, so that an access past the end of a block hits no other.
constexpr size_t kGap = 4096;
constexpr uint64_t kReserved = uint64_t{1} << 28;  // of addresses at a time

size_t FromEnvironment(const char* name, size_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

uint64_t Clock::Advance(size_t actor) {
  if (actor >= times_.size()) times_.resize(actor + 1);
  return ++times_[actor];
}

void Clock::Join(const Clock& other) {
  if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
  for (size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
}

// ---------------------------------------------------------------------------------------- machine
Machine& Machine::Get() {
  static auto* const machine = new Machine;
  return *machine;
}

Machine::Machine() {
  const size_t count = FromEnvironment("FAKE_DEVICES", 1);
  const bool has_peers = FromEnvironment("FAKE_PEERS", 1) != 0;
  device_bytes = FromEnvironment("FAKE_MIB", 64) << 20;
  for (size_t i = 0; i < count; ++i) {
    auto device = std::make_unique<Device>();
    device->number = static_cast<int>(i);
    device->reaches.assign(count, false);
    device->reaches[i] = true;
    devices.push_back(std::move(device));
  }
  can_reach_peers = has_peers;
  Seed(FromEnvironment("FAKE_SEED", 1));
}

void Machine::Seed(uint64_t seed) {
  random_.seed(seed);
  constexpr uint32_t kSteps[] = {0, 1, 4, 16};
  steps_of_16_ = kSteps[random_() % std::size(kSteps)];
}

void Machine::Report(int device, const Violation& violation) {
  ++violations;
  std::fprintf(stderr, "fake driver: gpu %d: %s\n", device, violation.text.c_str());
  if (device >= 0 && devices[static_cast<size_t>(device)]->error == 0) {
    devices[static_cast<size_t>(device)]->error = violation.result;
  }
}

// -------------------------------------------------------------------------------------- scheduler
void Machine::Turn() {
  while (random_() % 16 < steps_of_16_ && random_() % 4 != 0) {
    if (!Step()) return;
  }
}

bool Machine::Step() {
  std::vector<Stream*> ready;
  for (const auto& stream : streams_) {
    if (stream->queue.empty()) continue;
    if (std::ranges::all_of(stream->queue.front().waits_for,
                            [](const auto& record) { return record->has_happened; })) {
      ready.push_back(stream.get());
    }
  }
  if (ready.empty()) return false;
  Run(ready[random_() % ready.size()]);
  return true;
}

void Machine::Run(Stream* stream) {
  const Operation operation = std::move(stream->queue.front());
  stream->queue.pop_front();
  stream->clock.Join(operation.host);
  for (const auto& record : operation.waits_for) stream->clock.Join(record->clock);
  const Moment now{stream->actor, stream->clock.Advance(stream->actor)};
  const bool is_lost = devices[static_cast<size_t>(stream->device)]->error != 0;
  if (operation.run && !is_lost) {
    try {
      operation.run(now, stream->clock);
    } catch (const Violation& violation) {
      Report(stream->device, {violation.result, operation.name + ": " + violation.text});
    }
  }
  if (operation.pinned != nullptr) operation.pinned->end = now;
  for (const auto& record : operation.records) {
    record->clock = stream->clock;
    record->has_happened = true;
  }
}

void Machine::HostSees(const Record& record) {
  host_.Join(record.clock);
  std::erase_if(pinned_uses_,
                [&](const auto& use) { return use->end && IsBefore(*use->end, host_); });
  Protect();
}

// Sets page protections of pinned memory.  The host must not touch the target of a running copy,
// nor write its source.
void Machine::Protect() {
  for (const auto& [address, block] : blocks_) {
    if (block->device >= 0) continue;
    int allowed = PROT_READ | PROT_WRITE;
    for (const auto& use : pinned_uses_) {
      if (use->block == block.get()) allowed &= use->writes ? PROT_NONE : PROT_READ;
    }
    mprotect(reinterpret_cast<void*>(address), RoundUp(block->bytes, kPage), allowed);
  }
}

// ----------------------------------------------------------------------------------------- memory
uint64_t Machine::Allocate(Device* device, size_t bytes) {
  if (bytes > device_bytes - device->used_bytes) return 0;
  const uint64_t span = RoundUp(bytes + kGap, 512);
  if (span > device->reserved) {
    device->reserved = std::max(kReserved, RoundUp(span, kPage));
    void* const begin = mmap(nullptr, device->reserved, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) {
      std::perror("fake driver: no addresses are left");
      std::abort();
    }
    device->next = reinterpret_cast<uint64_t>(begin);
  }
  const uint64_t address = device->next;
  device->next += span;
  device->reserved -= span;
  auto block = std::make_unique<Block>();
  block->begin = address;
  block->bytes = bytes;
  block->device = device->number;
  block->own.assign(bytes, std::byte{0xA5});
  block->is_written.reset(static_cast<bool*>(std::calloc(bytes, sizeof(bool))));
  block->touched_by.reset(static_cast<Block::Threads*>(std::calloc(bytes, sizeof(Block::Threads))));
  block->inside = block->own.data();
  blocks_[address] = std::move(block);
  device->used_bytes += bytes;
  return address;
}

void* Machine::AllocatePinned(size_t bytes) {
  const size_t span = RoundUp(bytes, kPage);
  const int file = memfd_create("fake_pinned", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(span)) != 0) return nullptr;
  void* const outside = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  void* const inside = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (outside == MAP_FAILED || inside == MAP_FAILED) return nullptr;
  auto block = std::make_unique<Block>();
  block->begin = reinterpret_cast<uint64_t>(outside);
  block->bytes = bytes;
  block->inside = static_cast<std::byte*>(inside);
  blocks_[block->begin] = std::move(block);
  return outside;
}

Block* Machine::Find(uint64_t address) {
  auto found = blocks_.upper_bound(address);
  if (found == blocks_.begin()) return nullptr;
  Block* const block = std::prev(found)->second.get();
  return address - block->begin < block->bytes ? block : nullptr;
}

// Frees a block.  The host must know that all uses of the block have ended.
bool Machine::Free(uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return false;
  Block& block = *found->second;
  try {
    CheckRaces(&block, block.begin, block.begin + block.bytes, true, {kHost, 0}, host_);
  } catch (const Violation& violation) {
    Report(block.device, {violation.result, "free: " + violation.text});
  }
  for (const auto& stream : streams_) {
    for (const Operation& operation : stream->queue) {
      if (operation.pinned != nullptr && operation.pinned->block == &block) {
        Report(stream->device, {kLaunchFailed, "free: of pinned memory that a copy uses"});
      }
    }
  }
  if (block.device >= 0) devices[static_cast<size_t>(block.device)]->used_bytes -= block.bytes;
  blocks_.erase(found);
  return true;
}

void Machine::CheckRaces(Block* block, uint64_t begin, uint64_t end, bool writes,
                         const Moment& moment, const Clock& clock) {
  for (const Block::Access& old : block->history) {
    if (old.begin >= end || begin >= old.end || !(writes || old.writes)) continue;
    if (IsBefore(old.moment, clock)) continue;
    throw Violation{kLaunchFailed,
                    Format("race: {} by stream {} of {} bytes at {:x}, {} by stream {}",
                           writes ? "written" : "read", moment.actor, end - begin, begin,
                           old.writes ? "written" : "read", old.moment.actor)};
  }
  std::erase_if(block->history, [&](const Block::Access& old) {
    return old.begin >= begin && old.end <= end && (writes || !old.writes) &&
           IsBefore(old.moment, clock);
  });
  block->history.push_back({begin, end, moment, writes});
}

Block& Machine::Use(int device, uint64_t address, size_t bytes, bool writes, const Moment& moment,
                    const Clock& clock) {
  Block* const block = Find(address);
  if (block == nullptr || bytes > block->bytes - (address - block->begin)) {
    throw Violation{kIllegalAddress, Format("{} bytes at {:x} are out of bounds", bytes, address)};
  }
  if (block->device >= 0 && device >= 0 &&
      !devices[static_cast<size_t>(device)]->reaches[static_cast<size_t>(block->device)]) {
    throw Violation{kIllegalAddress, Format("{:x} is on gpu {}", address, block->device)};
  }
  CheckRaces(block, address, address + bytes, writes, moment, clock);
  return *block;
}

// ------------------------------------------------------------------------------------- operations
Stream* Machine::NewStream(int device, StreamKind kind) {
  auto stream = std::make_unique<Stream>();
  stream->actor = actors_++;
  stream->device = device;
  stream->kind = kind;
  streams_.push_back(std::move(stream));
  return streams_.back().get();
}

bool Machine::Delete(Stream* stream) {
  return std::erase_if(streams_, [&](const auto& own) { return own.get() == stream; }) == 1;
}

Stream* Machine::StreamOf(Stream* handle, Device* device) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number > 2) return handle;
  Stream*& stream = number == 2 ? device->of_threads[std::this_thread::get_id()] : device->legacy;
  if (stream == nullptr) {
    stream = NewStream(device->number, number == 2 ? StreamKind::kBlocking : StreamKind::kLegacy);
  }
  return stream;
}

bool Machine::IsDisturbed(const Stream& stream) const {
  if (stream.is_captured) return true;
  return stream.kind == StreamKind::kLegacy &&
         std::ranges::any_of(streams_, [&](const auto& other) {
           return other->device == stream.device && other->is_captured &&
                  other->kind == StreamKind::kBlocking;
         });
}

void Machine::Give(Stream* stream, Operation operation) {
  host_.Advance(kHost);
  operation.host = host_;
  for (const auto& other : streams_) {
    const bool are_ordered =
        other->device == stream->device && other->kind != StreamKind::kNonBlocking &&
        (stream->kind == StreamKind::kLegacy) != (other->kind == StreamKind::kLegacy);
    if (stream->kind == StreamKind::kNonBlocking || !are_ordered || !other->last) continue;
    operation.waits_for.push_back(other->last);
  }
  if (stream->kind != StreamKind::kNonBlocking) {
    stream->last = operation.records.emplace_back(std::make_shared<Record>());
  }
  if (operation.pinned != nullptr) {
    pinned_uses_.push_back(operation.pinned);
    Protect();
  }
  stream->queue.push_back(std::move(operation));
}

void Machine::Copy(Stream* stream, const char* name, uint64_t target, uint64_t source,
                   size_t bytes) {
  GiveCopy(stream, name, stream->device, target, source, bytes);
}

void Machine::CopyToPeer(Stream* stream, uint64_t target, uint64_t source, size_t bytes) {
  GiveCopy(stream, "copy to another device", -1, target, source, bytes);
}

void Machine::GiveCopy(Stream* stream, const char* name, int device, uint64_t target,
                       uint64_t source, size_t bytes) {
  Operation copy;
  copy.name = name;
  for (const uint64_t address : {target, source}) {
    Block* const block = Find(address);
    if (block == nullptr || block->device >= 0) continue;
    copy.pinned = std::make_shared<PinnedUse>(PinnedUse{block, address == target, {}});
  }
  copy.run = [=, this](const Moment& now, const Clock& clock) {
    CopyNow(device, target, source, bytes, now, clock);
  };
  Give(stream, std::move(copy));
}

void Machine::CopyNow(int device, uint64_t target, uint64_t source, size_t bytes, const Moment& now,
                      const Clock& clock) {
  Block& from = Use(device, source, bytes, false, now, clock);
  Block& to = Use(device, target, bytes, true, now, clock);
  const size_t first = source - from.begin;
  for (size_t i = 0; i < bytes && from.is_written != nullptr; ++i) {
    if (!from.is_written[first + i]) {
      throw Violation{kLaunchFailed, Format("byte {} of {:x} was never written", i, source)};
    }
  }
  const size_t place = target - to.begin;
  if (&from == &to && first < place + bytes && place < first + bytes) {
    throw Violation{kLaunchFailed, "the two overlap"};
  }
  std::memcpy(to.inside + place, from.inside + first, bytes);
  if (to.is_written != nullptr) std::fill_n(&to.is_written[place], bytes, true);
}

void Machine::CopyPlane(Stream* stream, const PlaneCopy& copy) {
  Operation rows;
  rows.name = "copy of rows";
  rows.run = [=, this, device = stream->device](const Moment& now, const Clock& clock) {
    for (size_t row = 0; row < copy.height; ++row) {
      const auto at = [&](const Plane& plane) {
        return plane.device + plane.x_bytes + (plane.y + row) * plane.pitch;
      };
      CopyNow(device, at(copy.target), at(copy.source), copy.width_bytes, now, clock);
    }
  };
  Give(stream, std::move(rows));
}

void Machine::Fill(Stream* stream, uint64_t target, std::byte value, size_t bytes) {
  Operation fill;
  fill.name = "fill";
  fill.run = [=, this, device = stream->device](const Moment& now, const Clock& clock) {
    Block& block = Use(device, target, bytes, true, now, clock);
    for (size_t i = target - block.begin; i < target - block.begin + bytes; ++i) {
      block.inside[i] = value;
      block.is_written[i] = true;
    }
  };
  Give(stream, std::move(fill));
}

// ---------------------------------------------------------------------------------------- kernels
// The memory of one launch, which records the touched bytes.
class LaunchMemory final : public test::PtxMemory {
 public:
  LaunchMemory(Machine* machine, int device) : machine_(*machine), device_(device) {}

  void BeginLaunch() override { ++machine_.launch_; }

  void Load(uint64_t address, void* target, size_t bytes, uint32_t thread) override {
    Block& block = At(address, bytes, false);
    const size_t first = address - block.begin;
    for (size_t i = first; i < first + bytes; ++i) {
      if (!block.is_written[i]) throw Wrong(address, "nobody has written what is read");
      Block::Threads& threads = ThreadsOf(&block, i);
      if (threads.writer != 0 && threads.writer != thread) throw Wrong(address, "two threads meet");
      threads.reader = threads.reader == 0 || threads.reader == thread ? thread : UINT32_MAX;
    }
    std::memcpy(target, block.inside + first, bytes);
  }

  void Store(uint64_t address, const void* source, size_t bytes, uint32_t thread) override {
    Block& block = At(address, bytes, true);
    const size_t first = address - block.begin;
    for (size_t i = first; i < first + bytes; ++i) {
      Block::Threads& threads = ThreadsOf(&block, i);
      for (const uint32_t other : {threads.writer, threads.reader}) {
        if (other != 0 && other != thread) throw Wrong(address, "two threads meet");
      }
      block.is_written[i] = true;
      threads.writer = thread;
    }
    std::memcpy(block.inside + first, source, bytes);
  }

  // Visits contiguous touched ranges, by kind of access.
  void ForEachTouched(const std::function<void(Block*, uint64_t, uint64_t, bool)>& visit) {
    for (auto& [place, ranges] : touched_) {
      std::ranges::sort(ranges);
      for (size_t i = 0; i < ranges.size();) {
        auto [begin, end] = ranges[i];
        for (; i < ranges.size() && ranges[i].first <= end; ++i)
          end = std::max(end, ranges[i].second);
        visit(place.first, begin, end, place.second);
      }
    }
  }

 private:
  static test::PtxError Wrong(uint64_t address, const char* text) {
    return test::PtxError(Format("{} at {:x}", text, address));
  }

  Block& At(uint64_t address, size_t bytes, bool writes) {
    Block* const block = machine_.Find(address);
    if (block == nullptr || block->device < 0 || bytes > block->bytes - (address - block->begin)) {
      throw Wrong(address, "out of bounds");
    }
    if (!machine_.devices[static_cast<size_t>(device_)]
             ->reaches[static_cast<size_t>(block->device)]) {
      throw Wrong(address, "out of reach: another device's, without peer access");
    }
    if (address % bytes != 0) throw Wrong(address, "misaligned");
    touched_[{block, writes}].emplace_back(address, address + bytes);
    return *block;
  }

  Block::Threads& ThreadsOf(Block* block, size_t place) {
    Block::Threads& threads = block->touched_by[place];
    if (threads.launch != machine_.launch_) threads = {machine_.launch_, 0, 0};
    return threads;
  }

  Machine& machine_;
  const int device_;
  std::map<std::pair<Block*, bool>, std::vector<std::pair<uint64_t, uint64_t>>> touched_;
};

void Machine::Launch(Stream* stream, const Module* module, uint32_t blocks,
                     std::vector<std::byte> parameter) {
  ++launches;
  Operation launch;
  launch.name = "launch";
  launch.run = [=, this, device = stream->device](const Moment& now, const Clock& clock) {
    LaunchMemory memory(this, device);
    try {
      module->kernel.Launch(blocks, parameter, &memory);
    } catch (const test::PtxError& error) {
      throw Violation{kIllegalAddress, error.what()};
    }
    memory.ForEachTouched([&](Block* block, uint64_t begin, uint64_t end, bool writes) {
      CheckRaces(block, begin, end, writes, now, clock);
    });
  };
  Give(stream, std::move(launch));
}

}  // namespace tkv::fake
