// Attacks on a server by peers over real sockets, at every stage.  The peers are silent, slow or of
// another user, send too much, connect too often, attach files or do not read.  Afterwards the
// server must still serve, with no more open files and no more memory than before.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/syscall.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "base/arena.h"
#include "base/format.h"
#include "job/node_thread.h"
#include "tests/edges/raw_peer.h"
#include "transport/socket/endpoint.h"

namespace tkv {
namespace {

constexpr int kCrowd = 40;  // connections at once, more than the server admits
constexpr size_t kValueBytes = size_t{1} << 20;

// A head and a server of a job of two workers, each on its own thread, with small budgets.
class SmallJob {
 public:
  explicit SmallJob(Way way) : uses_tls_(way == Way::kTls) {
    auto endpoint = Open("head", nullptr);
    const std::string address = endpoint->address();
    HeadOptions head;
    head.job = "job";
    head.workers = 2;
    head.dead_after = 600 * kSecond;
    head_ = std::make_unique<NodeThread>(
        std::make_unique<HeadNode>(head, &head_pool_, NodeThread::Now()), std::move(endpoint),
        NodeThreadOptions{});
    head_address_ = address;
    auto serving = Open("server 0", arena_);
    server_address_ = serving->address();
    MemberOptions member;
    member.job = "job";
    member.role = Role::kServer;
    member.rank = 0;
    member.process = 1;
    member.address = server_address_;
    ShardOptions shard;
    shard.job = "job";
    NodeThreadOptions thread;
    thread.address_of = [address](const Peer&) { return address; };
    server_ = std::make_unique<NodeThread>(std::make_unique<ServerNode>(member, shard, &pool_),
                                           std::move(serving), thread);
    head_->Start();
    server_->Start();
  }
  const std::string& address() const { return server_address_; }
  size_t pool_bytes() const { return pool_.bytes_in_use() + head_pool_.bytes_in_use(); }

  // Begins the next incarnation of a rank and returns its link to the head, where it has joined.
  std::unique_ptr<RawPeer> Join(Rank rank, Hello* hello) {
    auto tie = std::make_unique<RawPeer>(head_address_, Way::kUnix);
    *hello = Hello{"job", Role::kWorker, rank, 0, ++process_, ""};
    if (!tie->Shake()) return nullptr;
    tie->SayAll(FrameText({MessageOf(Type::kHello, Encode(*hello))}));
    const auto welcome = tie->Hear(Type::kWelcome);
    if (!welcome) return nullptr;
    hello->incarnation = DecodeWelcome(welcome->extra).incarnation;
    return tie;
  }

 private:
  std::unique_ptr<Endpoint> Open(const std::string& who, std::shared_ptr<Arena> arena) const {
    SocketOptions options;
    options.who = who;
    options.token = kRawToken;
    options.listen = {"unix", "tcp:127.0.0.1:0"};
    options.arena = std::move(arena);
    if (uses_tls_) options.tls = UseTls::kAlways;
    options.warn = [](const std::string&) {};
    options.budgets.handshake_nanoseconds = 150'000'000;
    options.budgets.strangers_max = 16;
    options.budgets.hello_nanoseconds = 150'000'000;
    options.budgets.welcome_nanoseconds = 300'000'000;
    options.budgets.guests_max = 16;
    options.budgets.head_bytes_max = size_t{1} << 20;
    options.budgets.body_bytes_max = size_t{8} << 20;
    options.budgets.unread_nanoseconds = 300'000'000;
    return OpenSockets(std::move(options));
  }

  const bool uses_tls_;
  std::string why_;
  std::shared_ptr<Arena> arena_ = Arena::Open(&why_);
  BufferPool head_pool_, pool_{arena_};
  std::string head_address_, server_address_;
  uint64_t process_ = 1;
  std::unique_ptr<NodeThread> head_, server_;
};

// A worker that the server has welcomed.
struct Welcomed {
  Welcomed(SmallJob* job, Way way, Rank rank = 0)
      : tie(job->Join(rank, &hello)), peer(job->address(), way) {
    is_good = tie != nullptr && peer.Shake() &&
              peer.SayAll(FrameText({MessageOf(Type::kHello, Encode(hello))})) &&
              peer.Hear(Type::kWelcome).has_value();
  }
  Hello hello;
  std::unique_ptr<RawPeer> tie;
  RawPeer peer;
  bool is_good = false;
};

KeyMeta MetaOf(const std::string& name, size_t bytes) {
  KeyMeta meta;
  meta.name = CanonicalKey(0, name);
  meta.shape = Shape({static_cast<int64_t>(bytes / 4)});
  meta.chunk_elements = static_cast<uint32_t>(bytes / 4);
  return meta;
}

Message InitOf(const KeyMeta& meta) {
  Message init = MessageOf(Type::kInit, Encode(meta));
  init.key = IdOf(meta.name);
  init.seq = 1;
  init.body.size = meta.bytes_of(0);
  return init;
}

// Returns a frame's head that announces the message's body, without the body.
std::string HeadOnly(Message message) {
  static const std::byte somewhere{};
  message.body.data = &somewhere;
  return FrameText({std::move(message)});
}

std::string HeaderThatAnnounces(uint32_t meta_bytes, uint64_t body_bytes, uint32_t entries) {
  FrameHeader header;
  header.meta_bytes = meta_bytes;
  header.body_bytes = body_bytes;
  header.entry_count = entries;
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

size_t CountFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

// A sanitizer keeps freed memory to detect uses of it, so that resident memory proves nothing.  The
// test then checks only the counted bytes and files.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kKeepsFreedMemory = true;
#else
constexpr bool kKeepsFreedMemory = false;
#endif

size_t ResidentBytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

size_t HeapBytesInUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

using Deed = std::function<void(SmallJob*, Way way)>;

// Brings many peers to the same stage.  The server must keep as many as it has room for, and still
// admit an honest peer.
void Crowd(SmallJob* job, Way way, const std::function<void(RawPeer*)>& get_there) {
  std::vector<std::unique_ptr<RawPeer>> crowd;
  for (int i = 0; i < kCrowd; ++i) {
    crowd.push_back(std::make_unique<RawPeer>(job->address(), way));
    get_there(crowd.back().get());
  }
  EXPECT_TRUE(Welcomed(job, way, 1).is_good) << "an honest peer gets in";
  for (const auto& one : crowd) EXPECT_TRUE(one->IsClosedSoon());
}

std::string HelloOfNobody() {
  return FrameText({MessageOf(Type::kHello, Encode(Hello{"job", Role::kWorker, 0, 1'000'000, 9}))});
}

void AsAnotherUser(SmallJob* job, Way) {
  std::thread([&] {
    ASSERT_EQ(syscall(SYS_setresuid, -1, 65534, -1), 0);  // for this thread only
    for (int i = 0; i < kCrowd; ++i) {
      RawPeer other(job->address(), Way::kUnix);
      EXPECT_FALSE(other.Shake()) << "although it knows the token";
      EXPECT_TRUE(other.IsClosedSoon());
    }
  }).join();
  EXPECT_TRUE(Welcomed(job, Way::kUnix, 1).is_good);
}

// Sends requests without reading the answers.
void AskWithoutReading(SmallJob* job, Way way, const std::function<Message(uint64_t)>& next) {
  Welcomed hostile(job, way);
  ASSERT_TRUE(hostile.is_good);
  uint64_t seq = 1;
  for (int i = 0; i < 20'000; ++i) {  // the kernel's buffers hold some megabytes
    std::vector<Message> messages;
    for (int j = 0; j < 50; ++j) messages.push_back(next(++seq));
    if (!hostile.peer.SayAll(FrameText(std::move(messages)))) break;  // the server has closed it
  }
  EXPECT_TRUE(hostile.peer.IsClosedUnread());
}

Message PullOf(uint64_t seq) {
  Message pull = MessageOf(Type::kPull);
  pull.key = IdOf(CanonicalKey(0, "w"));
  pull.seq = seq;
  return pull;
}

const std::map<std::string, Deed>& Deeds() {
  static const std::map<std::string, Deed> deeds = {
      {"StrangerSilent",
       [](SmallJob* job, Way u) { EXPECT_TRUE(RawPeer(job->address(), u).IsClosedSoon()); }},
      {"StrangerSlow",
       [](SmallJob* job, Way u) {
         Handshake handshake({"worker 0", kRawToken, false, kProtocolVersion, ""}, true);
         EXPECT_TRUE(RawPeer(job->address(), u).IsClosedWhileSaying(handshake.TakeOutput()));
       }},
      {"StrangerTooLong",
       [](SmallJob* job, Way u) {
         RawPeer peer(job->address(), u);
         peer.SayAll(std::string(size_t{4} << 20, 'x'));
         EXPECT_TRUE(peer.IsClosedSoon());
       }},
      {"StrangerTooMany", [](SmallJob* job, Way u) { Crowd(job, u, [](RawPeer*) {}); }},
      {"StrangerWithFiles",
       [](SmallJob* job, Way) {
         RawPeer peer(job->address(), Way::kUnix);
         peer.SayWithFiles("TKVP", 10);
         EXPECT_TRUE(peer.IsClosedSoon());
       }},
      {"StrangerOfAnotherUser", AsAnotherUser},
      {"GuestSilent",
       [](SmallJob* job, Way u) {
         RawPeer peer(job->address(), u);
         EXPECT_TRUE(peer.Shake());
         EXPECT_TRUE(peer.IsClosedSoon());
       }},
      {"GuestSlow",
       [](SmallJob* job, Way u) {
         RawPeer peer(job->address(), u);
         EXPECT_TRUE(peer.Shake());
         EXPECT_TRUE(peer.IsClosedWhileSaying(HelloOfNobody()));
       }},
      {"GuestTooLong",
       [](SmallJob* job, Way u) {
         const size_t before = ResidentBytes();
         std::vector<std::unique_ptr<RawPeer>> peers;
         const std::string head = HeaderThatAnnounces(16U << 20, 0, 1);
         for (int i = 0; i < 8; ++i) {
           peers.push_back(std::make_unique<RawPeer>(job->address(), u));
           EXPECT_TRUE(peers.back()->Shake());
           peers.back()->SayAll(head + std::string(size_t{15} << 20, 'x'));
         }
         if (!kKeepsFreedMemory) {
           EXPECT_LT(ResidentBytes(), before + (size_t{24} << 20));
         }
         for (const auto& peer : peers) EXPECT_TRUE(peer->IsClosedSoon());
       }},
      {"GuestWithABody",
       [](SmallJob* job, Way u) {
         RawPeer peer(job->address(), u);
         EXPECT_TRUE(peer.Shake());
         peer.SayAll(HeadOnly(InitOf(MetaOf("x", kValueBytes))));
         EXPECT_TRUE(peer.IsClosedSoon());
       }},
      {"GuestTooMany",
       [](SmallJob* job, Way u) { Crowd(job, u, [](RawPeer* peer) { peer->Shake(); }); }},
      {"GuestWithFiles",
       [](SmallJob* job, Way) {
         for (const size_t count : {1, 2, 100}) {
           RawPeer peer(job->address(), Way::kUnix);
           EXPECT_TRUE(peer.Shake());
           peer.SayWithFiles(HelloOfNobody(), count);
           EXPECT_TRUE(peer.IsClosedSoon());
         }
       }},
      {"TlsNeverBegun",
       [](SmallJob* job, Way u) {
         RawPeer peer(job->address(), u);
         EXPECT_TRUE(peer.Prove());
         EXPECT_TRUE(peer.IsClosedSoon());
       }},
      {"TlsBegunSlowly",
       [](SmallJob* job, Way u) {
         RawPeer peer(job->address(), u);
         EXPECT_TRUE(peer.Prove());
         const std::string hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
         EXPECT_TRUE(peer.IsClosedWhileSaying(hello + std::string(500, 'x')));
       }},
      {"TlsOfOtherBytes",  // by a peer that knows the secret but continues without TLS
       [](SmallJob* job, Way u) {
         for (const std::string& bytes :
              {HelloOfNobody(), std::string(size_t{4} << 20, 'x'), std::string(100, '\x16')}) {
           RawPeer peer(job->address(), u);
           EXPECT_TRUE(peer.Prove());
           peer.SayAll(bytes);
           EXPECT_TRUE(peer.IsClosedSoon());
         }
       }},
      {"TlsOfRecordsOfOneByte",  // the server reads it, and other peers meanwhile
       [](SmallJob* job, Way u) {
         Welcomed hostile(job, u);
         ASSERT_TRUE(hostile.is_good);
         const std::string ping = FrameText({MessageOf(Type::kPing)});
         for (int i = 0; i < 200; ++i) {
           for (const char& byte : ping) hostile.peer.SayAll({&byte, 1});
         }
         EXPECT_TRUE(hostile.peer.Hear(Type::kPong).has_value());
         EXPECT_TRUE(Welcomed(job, u, 1).is_good);
       }},
      {"TlsLeftByAMember",
       [](SmallJob* job, Way u) {
         Welcomed hostile(job, u);
         ASSERT_TRUE(hostile.is_good);
         hostile.peer.SayBare(FrameText({MessageOf(Type::kPing)}) + std::string(20'000, 'x'));
         EXPECT_TRUE(hostile.peer.IsClosedUnread());
       }},
      {"UnlistedSilent",
       [](SmallJob* job, Way u) {
         RawPeer peer(job->address(), u);
         EXPECT_TRUE(peer.Shake());
         peer.SayAll(HelloOfNobody());
         EXPECT_TRUE(peer.IsClosedSoon());
       }},
      {"UnlistedRepeating",
       [](SmallJob* job, Way u) {
         RawPeer peer(job->address(), u);
         EXPECT_TRUE(peer.Shake());
         std::string hellos;
         for (int i = 0; i < 100; ++i) hellos += HelloOfNobody();
         EXPECT_TRUE(peer.IsClosedWhileSaying(hellos));
       }},
      {"UnlistedTooMany",
       [](SmallJob* job, Way u) {
         Crowd(job, u, [](RawPeer* peer) {
           peer->Shake();
           peer->SayAll(HelloOfNobody());
         });
       }},
      {"MemberGoneInTheMiddle",
       [](SmallJob* job, Way u) {
         Welcomed hostile(job, u);
         ASSERT_TRUE(hostile.is_good);
         hostile.peer.SayAll(HeadOnly(InitOf(MetaOf("x", kValueBytes))));
         hostile.peer.SayAll(std::string(kValueBytes / 2, 'x'));
       }},
      {"MemberWithALargeInit",  // a block that an arena cannot provide at once
       [](SmallJob* job, Way u) {
         for (const size_t bytes : {size_t{256} << 20, size_t{300} << 20, size_t{3} << 30}) {
           Welcomed hostile(job, u);
           ASSERT_TRUE(hostile.is_good);
           hostile.peer.SayAll(HeadOnly(InitOf(MetaOf("x", bytes))));
           hostile.peer.SayAll(std::string(kValueBytes, 'x'));
           EXPECT_TRUE(Welcomed(job, u, 1).is_good) << "the server still answers";
         }
       }},
      {"MemberTooLong",
       [](SmallJob* job, Way u) {
         for (const std::string& head :
              {HeaderThatAnnounces(64U << 20, 0, 1), HeaderThatAnnounces(2U << 20, 0, 2),
               HeaderThatAnnounces(128, uint64_t{1} << 21, 2),
               HeaderThatAnnounces(64, uint64_t{1} << 60, 1)}) {
           Welcomed hostile(job, u);
           ASSERT_TRUE(hostile.is_good);
           hostile.peer.SayAll(head);
           EXPECT_TRUE(hostile.peer.IsClosedSoon());
         }
       }},
      {"MemberTooMany",  // connections of one incarnation: each replaces the previous one
       [](SmallJob* job, Way u) {
         Welcomed first(job, u);
         ASSERT_TRUE(first.is_good);
         std::vector<std::unique_ptr<RawPeer>> crowd;
         for (int i = 0; i < kCrowd; ++i) {
           crowd.push_back(std::make_unique<RawPeer>(job->address(), u));
           EXPECT_TRUE(crowd.back()->Shake());
           crowd.back()->SayAll(FrameText({MessageOf(Type::kHello, Encode(first.hello))}));
           EXPECT_TRUE(crowd.back()->Hear(Type::kWelcome).has_value());
         }
         EXPECT_TRUE(first.peer.IsClosedSoon());
         for (int i = 0; i + 1 < kCrowd; ++i) EXPECT_TRUE(crowd[i]->IsClosedSoon());
       }},
      {"MemberWithFiles",
       [](SmallJob* job, Way) {
         for (int i = 0; i < 3; ++i) {
           Welcomed hostile(job, Way::kUnix);
           ASSERT_TRUE(hostile.is_good);
           const std::string ping = FrameText({MessageOf(Type::kPing)});
           hostile.peer.SayWithFiles(ping, 1);
           hostile.peer.SayWithFiles(ping, static_cast<size_t>(1 + i));
           EXPECT_TRUE(hostile.peer.IsClosedSoon());
         }
       }},
      {"MemberReadsNothingOfAnswers",
       [](SmallJob* job, Way u) {
         AskWithoutReading(job, u, [](uint64_t seq) {
           Message ping = MessageOf(Type::kPing);
           ping.seq = seq;
           return ping;
         });
       }},
      {"MemberReadsNothingOfValues",
       [](SmallJob* job, Way u) { AskWithoutReading(job, u, PullOf); }},
      {"MemberReadsNothingOfAFewValues",  // that are not too many, and time is
       [](SmallJob* job, Way u) {
         Welcomed hostile(job, u);
         ASSERT_TRUE(hostile.is_good);
         for (uint64_t seq = 2; seq < 9; ++seq) hostile.peer.SayAll(FrameText({PullOf(seq)}));
         EXPECT_TRUE(hostile.peer.IsClosedUnread());
       }},
  };
  return deeds;
}

class Hostile : public ::testing::TestWithParam<std::tuple<std::string, Way>> {};

TEST_P(Hostile, LeavesTheServerAsItWas) {
  const auto& [name, way] = GetParam();
  const bool is_unix_alone = name.ends_with("Files") || name.ends_with("User");
  if (is_unix_alone && way != Way::kUnix) GTEST_SKIP() << "TCP carries no files and no user";
  if (name.starts_with("Tls") && way != Way::kTls) GTEST_SKIP() << "there is no TLS";
  if (name.ends_with("User") && geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  SmallJob job(way);
  {
    Welcomed honest(&job, way);
    ASSERT_TRUE(honest.is_good);
    const std::string init = HeadOnly(InitOf(MetaOf("w", kValueBytes)));
    ASSERT_TRUE(honest.peer.SayAll(init + std::string(kValueBytes, '\0')));
    ASSERT_TRUE(honest.peer.Hear(Type::kOk).has_value());
  }
  const auto settled = [&](size_t files, size_t bytes) {
    for (int i = 0; i < 500; ++i) {
      if (CountFiles() == files && job.pool_bytes() == bytes) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // a poll with a deadline
    }
    return false;
  };
  EXPECT_TRUE(Welcomed(&job, way, 1).is_good);
  // Waits until closed connections are released: the number of files is stable for a while.
  size_t files = 0;
  for (int same = 0; same < 30;) {
    same = files == CountFiles() ? same + 1 : 0;
    files = CountFiles();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const size_t bytes = job.pool_bytes();
  size_t resident = 0, in_use = 0;
  for (int i = 1; i <= 5; ++i) {
    Deeds().at(name)(&job, way);
    ASSERT_TRUE(settled(files, bytes)) << CountFiles() << " files, there were " << files << "; "
                                       << job.pool_bytes() << " bytes, there were " << bytes;
    if (i != 2) continue;
    EXPECT_TRUE(Welcomed(&job, way, 1).is_good);
    in_use = HeapBytesInUse();
    resident = ResidentBytes();
  }
  EXPECT_TRUE(Welcomed(&job, way, 1).is_good) << "the server serves";
  EXPECT_LE(HeapBytesInUse(), in_use + (size_t{256} << 10));
  // The allocator keeps some of what was freed.
  if (!kKeepsFreedMemory) {
    EXPECT_LE(ResidentBytes(), resident + (size_t{32} << 20));
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, deed] : Deeds()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(, Hostile,
                         ::testing::Combine(::testing::ValuesIn(Names()),
                                            ::testing::Values(Way::kUnix, Way::kTcp, Way::kTls)),
                         [](const auto& info) {
                           const Way way = std::get<1>(info.param);
                           return std::get<0>(info.param) + (way == Way::kUnix  ? "ByUnix"
                                                             : way == Way::kTcp ? "ByTcp"
                                                                                : "ByTls");
                         });

}  // namespace
}  // namespace tkv
