// The handshake of two processes, before anything else is read.  They exchange their names and
// protocol versions, and prove that both know the secret of the job.
//
//   dialer                         acceptor
//   Greeting(nonce, who)      ->
//                             <-   Greeting(nonce, who), or a refusal with its reason
//   Proof                     ->                        only if there is a token
//                             <-   Proof
//
// If both sides can use TLS and one of them wants it, TLS follows (tls.h).
//
// A proof is HMAC-SHA256, keyed with the token, over the role of the prover and both greetings.  So
// a proof is valid only for this connection and this direction (RFC 2104; the exchange is mutual
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
  uint8_t code = 0;  // kRefused: the code of the error
  // Bytes of the text that follows: the sender's name, or its reason to refuse.
  uint16_t text_bytes = 0;
  uint32_t package = PackageNumber();  // package of the sender; 0 in version 1
  std::array<uint8_t, 16> nonce{};
};
static_assert(sizeof(Greeting) == 32);

inline constexpr size_t kProofBytes = 32;

struct HandshakeOptions {
  std::string who;  // "worker 2"
  std::string token;
  // The connection needs no token: a Unix socket of the same user, or the user allows it.
  bool is_trusted = false;
  uint32_t version = kProtocolVersion;
  std::string peer;  // address of the other side, for errors
  bool can_tls = false, wants_tls = false;
};

// The handshake of one side of a connection: bytes in, bytes out.  Uses no sockets.
class Handshake {
 public:
  Handshake(HandshakeOptions options, bool is_dialer);

  // Returns the bytes to send now, once.
  std::string TakeOutput() { return std::exchange(output_, {}); }
  // Returns how many more bytes are needed before the handshake can continue; 0 when it has ended.
  size_t wanted() const;
  void Receive(std::string_view bytes);
  bool done() const { return stage_ == Stage::kDone; }
  const std::string& peer_who() const { return peer_who_; }
  // Valid after done(): returns true if TLS follows.  TlsKey returns the key that both sides use
  // for it.
  bool uses_tls() const { return options_.wants_tls || (peer_.flags & Greeting::kWantsTls) != 0; }
  std::string TlsKey() const { return Keyed("tkv tls\n"); }
  // Returns the error for this process's user if the handshake has failed.  Output may still have
  // to be sent, because it tells the peer.
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
