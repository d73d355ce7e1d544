// What two processes say to each other before anything else is read: who they are, which version
// they speak, and that both know the secret of the job.
//
//   dialer                         acceptor
//   Greeting(nonce, who)      ->
//                             <-   Greeting(nonce, who), or a refusal with its reason
//   Proof                     ->                        only where there is a token
//                             <-   Proof
//
// Where both can and one of them wants it, TLS follows (tls.h).
//
// A proof is HMAC-SHA256 with the token over the role of who proves and both greetings, so that it
// is good for this connection and this direction alone (RFC 2104; the exchange is that of mutual
// challenge and response, ISO/IEC 9798-4).  The layout of the greeting is the same in all versions.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tkv/error.h"
#include "transport/factory.h"
#include "wire/version.h"

namespace tkv {

inline constexpr const char* kHowToMakeAToken =
    "make one with `(umask 077; head -c 32 /dev/urandom | base64 > job.token)` and "
    "`export TKV_TOKEN_FILE=$PWD/job.token` in every process of the job, or set "
    "TKV_INSECURE_NETWORK=1 in all of them";

inline constexpr const char* kHowToGiveAToken =
    "TKV_TOKEN_FILE, token_file= or --token-file names the file with the token of the job, the "
    "same in all of its processes and in those that look at it";

struct Greeting {                                 // wire layout of all versions
  static constexpr uint32_t kMagic = 0x50564B54;  // "TKVP"
  static constexpr size_t kWhoMax = 64;
  static constexpr size_t kReasonMax = 1024;
  enum Flag : uint8_t { kHasToken = 1, kRefused = 2, kCanTls = 4, kWantsTls = 8 };

  uint32_t magic = kMagic;
  uint32_t version = kProtocolVersion;
  uint8_t flags = 0;
  uint8_t code = 0;                    // kRefused: of the error
  uint16_t text_bytes = 0;             // who speaks, or why it refuses; follows
  uint32_t package = PackageNumber();  // of the sender; 0 in version 1
  std::array<uint8_t, 16> nonce{};
};
static_assert(sizeof(Greeting) == 32);

inline constexpr size_t kProofBytes = 32;

struct HandshakeOptions {
  std::string who;  // "worker 2"
  std::string token;
  bool is_trusted = false;  // the connection needs no token: a Unix socket of the same user, or the
                            // user has said so
  uint32_t version = kProtocolVersion;
  std::string peer;  // where the other side is, for errors
  bool can_tls = false, wants_tls = false;
};

// One side of one connection: bytes in, bytes out.  No sockets.
class Handshake {
 public:
  Handshake(HandshakeOptions options, bool is_dialer);

  // What has to be sent now.
  std::string TakeOutput() { return std::exchange(output_, {}); }
  // How many bytes more are needed before it can go on; 0 when it is done.
  size_t wanted() const;
  void Receive(std::string_view bytes);
  bool done() const { return stage_ == Stage::kDone; }
  const std::string& peer_who() const { return peer_who_; }
  // When it is done: whether TLS follows, and the key of both sides for it.
  bool uses_tls() const { return options_.wants_tls || (peer_.flags & Greeting::kWantsTls) != 0; }
  std::string TlsKey() const { return Keyed("tkv tls\n"); }
  // Why it has failed, for the user of this process.  Output may have to be sent all the same.
  const std::optional<Error>& failed() const { return failed_; }

 private:
  enum class Stage : uint8_t { kGreeting, kText, kProof, kDone };

  void OnGreeting();
  void OnText();
  void OnProof();
  void Refuse(Code code, const std::string& reason);
  std::string Differs(std::string_view peer) const;
  std::optional<std::string> WhyNoTls() const;
  std::string Keyed(std::string_view purpose) const;
  std::string Proof(bool of_dialer) const;

  const HandshakeOptions options_;
  const bool is_dialer_;
  Stage stage_ = Stage::kGreeting;
  std::string output_;
  std::string input_;
  Greeting peer_;
  std::string sent_greeting_;
  std::string peer_greeting_;
  std::string peer_who_;
  std::optional<Error> failed_;
};

}  // namespace tkv
