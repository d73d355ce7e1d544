#include "transport/socket/handshake.h"

#include <openssl/crypto.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/format.h"
#include "transport/socket/tls.h"

namespace tkv {
namespace {

// Returns text of another process with control characters replaced, so that it is safe to show.
std::string Printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return text;
}

// Fills bytes from the system.  A generator of our own would need a seed from the system at each
// start.
void FillRandom(std::span<uint8_t> bytes) {
  constexpr size_t kOnceMax = 256;  // the limit of getentropy
  for (size_t begin = 0; begin < bytes.size(); begin += kOnceMax) {
    if (getentropy(bytes.data() + begin, std::min(kOnceMax, bytes.size() - begin)) != 0) {
      throw Fail(Code::kInternal, "the system has no random numbers");
    }
  }
}

bool IsRefusalCode(uint8_t code) {
  return code == static_cast<uint8_t>(Code::kUnauthenticated) ||
         code == static_cast<uint8_t>(Code::kFailedPrecondition);
}

}  // namespace

std::string RandomHex(size_t bytes) {
  std::vector<uint8_t> random(bytes);
  FillRandom(random);
  std::string text;
  for (const uint8_t byte : random) text += Format("{:02x}", byte);
  return text;
}

Handshake::Handshake(HandshakeOptions options, bool is_dialer)
    : options_(std::move(options)), is_dialer_(is_dialer) {
  Greeting greeting;
  greeting.version = options_.version;
  if (!options_.token.empty()) greeting.flags |= Greeting::kHasToken;
  if (options_.can_tls) greeting.flags |= Greeting::kCanTls;
  if (options_.wants_tls) greeting.flags |= Greeting::kWantsTls;
  FillRandom(greeting.nonce);
  const std::string who = options_.who.substr(0, Greeting::kWhoMax);
  greeting.text_bytes = static_cast<uint16_t>(who.size());
  sent_greeting_.assign(reinterpret_cast<const char*>(&greeting), sizeof(greeting));
  sent_greeting_ += who;
  if (is_dialer_) output_ = sent_greeting_;
}

size_t Handshake::wanted() const {
  if (failed_) return 0;
  size_t whole = 0;
  switch (stage_) {
    case Stage::kGreeting:
      whole = sizeof(Greeting);
      break;
    case Stage::kText:
      whole = peer_.text_bytes;
      break;
    case Stage::kProof:
      whole = kProofBytes;
      break;
    case Stage::kDone:
      return 0;
  }
  return whole - std::min(whole, input_.size());
}

void Handshake::Receive(std::string_view bytes) {
  input_ += bytes;
  if (failed_ || wanted() > 0) return;
  switch (stage_) {
    case Stage::kGreeting:
      OnGreeting();
      break;
    case Stage::kText:
      OnText();
      break;
    case Stage::kProof:
      OnProof();
      break;
    case Stage::kDone:
      break;
  }
}

void Handshake::OnGreeting() {
  std::memcpy(&peer_, input_.data(), sizeof(peer_));
  const bool refuses = (peer_.flags & Greeting::kRefused) != 0;
  const size_t text_max = refuses ? Greeting::kReasonMax : Greeting::kWhoMax;
  if (peer_.magic != Greeting::kMagic || peer_.text_bytes > text_max ||
      (refuses && (!is_dialer_ || !IsRefusalCode(peer_.code)))) {
    failed_ = Fail(Code::kUnavailable, "{} does not speak TensorKV's protocol", options_.peer);
    return;
  }
  peer_greeting_ = std::exchange(input_, {});
  stage_ = Stage::kText;
  if (peer_.text_bytes == 0) OnText();
}

void Handshake::OnText() {
  const std::string bytes = std::exchange(input_, {});
  peer_greeting_ += bytes;
  const std::string text = Printable(bytes);
  const bool speak_alike = peer_.version == options_.version;
  if ((peer_.flags & Greeting::kRefused) != 0) {
    // A peer of another version may be too old to name both versions and the remedy.
    failed_ = speak_alike ? Error(static_cast<Code>(peer_.code), text)
                          : Error(Code::kFailedPrecondition, Differs(options_.peer));
    return;
  }
  peer_who_ = text;
  if (!speak_alike) {
    return Refuse(Code::kFailedPrecondition, Differs(Format("{} ({})", peer_who_, options_.peer)));
  }
  const bool peer_has_token = (peer_.flags & Greeting::kHasToken) != 0;
  if (peer_has_token != !options_.token.empty()) {
    return Refuse(Code::kUnauthenticated,
                  peer_has_token ? Format("{} ({}) has the token of a job, this {} has none; {}",
                                          peer_who_, options_.peer, options_.who, kHowToGiveAToken)
                                 : Format("{} ({}) has no token, this {} has one; {}", peer_who_,
                                          options_.peer, options_.who, kHowToGiveAToken));
  }
  if (options_.token.empty() && !options_.is_trusted) {
    return Refuse(Code::kUnauthenticated,
                  Format("{} and {} ({}) have no token, which TCP needs; {}", options_.who,
                         peer_who_, options_.peer, kHowToMakeAToken));
  }
  if (const auto why = WhyNoTls()) return Refuse(Code::kFailedPrecondition, *why);
  if (!is_dialer_) output_ += sent_greeting_;
  stage_ = options_.token.empty() ? Stage::kDone : Stage::kProof;
  if (is_dialer_ && stage_ == Stage::kProof) output_ += Proof(true);
}

std::string Handshake::Differs(std::string_view peer) const {
  Protocol theirs, ours;
  theirs.version = peer_.version;
  theirs.package = PackageNameOf(peer_.package);
  ours.version = options_.version;
  ours.package = PackageName();
  return VersionsDiffer(peer, theirs, options_.who, ours);
}

void Handshake::OnProof() {
  const std::string expected = Proof(!is_dialer_);
  const std::string proof = std::exchange(input_, {});
  if (CRYPTO_memcmp(proof.data(), expected.data(), kProofBytes) != 0) {
    failed_ = Fail(Code::kUnauthenticated, "{} ({}) has another token than this {}", peer_who_,
                   options_.peer, options_.who);
    // Rejects a dialer, which waits for a proof.
    if (!is_dialer_) output_ = std::string(kProofBytes, '\0');
    return;
  }
  if (!is_dialer_) output_ += Proof(false);
  stage_ = Stage::kDone;
}

void Handshake::Refuse(Code code, const std::string& reason) {
  failed_ = Error(code, reason);
  if (is_dialer_) return;
  Greeting refusal;
  refusal.version = options_.version;
  refusal.flags = Greeting::kRefused;
  refusal.code = static_cast<uint8_t>(code);
  const std::string text = reason.substr(0, Greeting::kReasonMax);
  refusal.text_bytes = static_cast<uint16_t>(text.size());
  output_.assign(reinterpret_cast<const char*>(&refusal), sizeof(refusal));
  output_ += text;
}

// Returns the reason if one side wants TLS and the other has it off.
std::optional<std::string> Handshake::WhyNoTls() const {
  const std::string peer = Format("{} ({})", peer_who_, options_.peer);
  const bool peer_can = (peer_.flags & Greeting::kCanTls) != 0;
  const bool peer_wants = (peer_.flags & Greeting::kWantsTls) != 0;
  const bool is_ours = peer_wants && !options_.can_tls;
  if (!is_ours && (!options_.wants_tls || peer_can)) return std::nullopt;
  return Format("{} has TLS off, {} wants it; set the option tls (TKV_TLS) alike in all processes",
                is_ours ? options_.who : peer, is_ours ? peer : options_.who);
}

// Returns a hash that only processes with the token can compute, valid for this connection and this
// purpose alone.
std::string Handshake::Keyed(std::string_view purpose) const {
  std::string text(purpose);
  text += is_dialer_ ? sent_greeting_ : peer_greeting_;
  text += is_dialer_ ? peer_greeting_ : sent_greeting_;
  return KeyedHash(options_.token, text);
}

std::string Handshake::Proof(bool of_dialer) const {
  return Keyed(of_dialer ? "tkv dialer\n" : "tkv acceptor\n");
}

}  // namespace tkv
