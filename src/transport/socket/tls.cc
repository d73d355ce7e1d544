#include "transport/socket/tls.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "base/without_write_signals.h"
#include "transport/socket/memory_pieces.h"

namespace tkv {
namespace {

constexpr const char* kIdentity = "tkv";
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kCipherId = {0x13, 0x01};
constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;  // plain bytes in one record
constexpr size_t kHeaderBytes = SSL3_RT_HEADER_LENGTH, kTagBytes = EVP_GCM_TLS_TAG_LEN;
constexpr size_t kAddedBytes = 1 + kTagBytes;  // added to the plain bytes: the type and the tag
constexpr size_t kWholeRecordBytes = kHeaderBytes + kRecordBytes + kAddedBytes;  // at most
// "From the next record on I use the next key; you need not" (RFC 8446, 4.6.3).
constexpr std::array<unsigned char, 5> kKeyUpdate = {24, 0, 0, 1, 0};
constexpr size_t kCipherKeyBytes = 16, kNonceBytes = 12;
constexpr size_t kSealedPerTurn = 16 * kRecordBytes;  // before the socket has to take some
constexpr size_t kReceivedPerTurn = size_t{1} << 20;
constexpr size_t kReceivedAtOnce = size_t{256} << 10;

// Reads no configuration file, so that no file of the machine changes how things are computed.
// OpenSSL's state is not destroyed at exit, because a thread may still use it while the process
// ends.
void StartOpenSsl() {
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr);
}

std::string LastError() {
  const unsigned long code = ERR_get_error();
  const char* const reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason != nullptr ? reason : "the connection has ended";
}

// Returns the key in the form of an external pre-shared key, not of a ticket from an earlier
// connection.
SSL_SESSION* SessionOf(SSL* ssl, const std::string& key) {
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kCipherId.data());
  SSL_SESSION* const session = SSL_SESSION_new();
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                  key.size()) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

// The secrets of a connection during its TLS handshake.
struct Secrets {
  std::string key;                 // the pre-shared key of both sides
  std::string dialers, acceptors;  // secrets of the traffic that each side sends
};

Secrets* SecretsOf(const SSL* ssl) { return static_cast<Secrets*>(SSL_get_app_data(ssl)); }

int UseKey(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* id_bytes,
           SSL_SESSION** session) {
  *session = SessionOf(ssl, SecretsOf(ssl)->key);
  *id = reinterpret_cast<const unsigned char*>(kIdentity);
  *id_bytes = std::strlen(kIdentity);
  return *session != nullptr ? 1 : 0;
}

int FindKey(SSL* ssl, const unsigned char* id, size_t id_bytes, SSL_SESSION** session) {
  const bool is_ours =
      id_bytes == std::strlen(kIdentity) && std::memcmp(id, kIdentity, id_bytes) == 0;
  *session = is_ours ? SessionOf(ssl, SecretsOf(ssl)->key) : nullptr;
  return 1;
}

// Stores the traffic secret of one direction.  OpenSSL reports it in the format of its key log,
// which is meant for network analyzers.
void NoteSecret(const SSL* ssl, const char* line);

// Returns the OpenSSL context that all connections share; it lives as long as the process.
SSL_CTX* Shared() {
  static SSL_CTX* const shared = [] {
    StartOpenSsl();
    SSL_CTX* const made = SSL_CTX_new(TLS_method());
    if (made == nullptr) throw Fail(Code::kInternal, "TLS: {}", LastError());
    SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(made, kCipher);
    SSL_CTX_set1_groups_list(made, "X25519");
    SSL_CTX_set_psk_use_session_callback(made, UseKey);
    SSL_CTX_set_psk_find_session_callback(made, FindKey);
    SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(made, 0);  // after the handshake only data follows
    SSL_CTX_set_options(made, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
#if OPENSSL_VERSION_NUMBER < 0x30200000L  // later versions would let the kernel decrypt, too
    SSL_CTX_set_options(made, SSL_OP_ENABLE_KTLS);
#endif
    SSL_CTX_set_keylog_callback(made, NoteSecret);
    return made;
  }();
  return shared;
}

void NoteSecret(const SSL* ssl, const char* line) {
  Secrets* const secrets = SecretsOf(ssl);
  const std::string_view text(line);
  const bool is_dialers = text.starts_with("CLIENT_TRAFFIC_SECRET_0 ");
  if (!is_dialers && !text.starts_with("SERVER_TRAFFIC_SECRET_0 ")) return;
  std::string* const secret = is_dialers ? &secrets->dialers : &secrets->acceptors;
  long bytes = 0;
  unsigned char* const read = OPENSSL_hexstr2buf(line + text.rfind(' ') + 1, &bytes);
  if (read == nullptr) return;
  secret->assign(reinterpret_cast<const char*>(read), static_cast<size_t>(bytes));
  OPENSSL_clear_free(read, static_cast<size_t>(bytes));
}

}  // namespace

struct Tls::Making {
  Making(std::string key, bool dials) : secrets{std::move(key), "", ""}, is_dialer(dials) {
    // A callback of OpenSSL fills them and must not throw.
    for (std::string* const secret : {&secrets.dialers, &secrets.acceptors}) {
      secret->reserve(EVP_MAX_MD_SIZE);
    }
  }
  ~Making() { SSL_free(ssl); }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;
  Secrets secrets;
  const bool is_dialer;
  SSL* ssl = nullptr;
};

// A key that encrypts or decrypts the records of one direction, in their order (RFC 8446, 5.2 and
// 5.3).
class Tls::Key {
 public:
  Key(std::string secret, bool seals)
      : secret_(std::move(secret)), context_(EVP_CIPHER_CTX_new()), seals_(seals) {
    if (context_ != nullptr && Start()) return;
    EVP_CIPHER_CTX_free(context_);
    throw Fail(Code::kInternal, "TLS: {}", LastError());
  }
  ~Key() { EVP_CIPHER_CTX_free(context_); }
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;

  uint64_t number() const { return number_; }  // records so far by this key
  // Replaces the key by its successor, which the next record uses (RFC 8446, 7.2).
  bool Renew() {
    secret_ = Expand("traffic upd", secret_.size());
    return Start();
  }
  // Begins a record.  The caller then adds the content and the type behind it, and calls End.
  bool Begin(const std::byte* header) {
    std::array<unsigned char, kNonceBytes> nonce = nonce_;
    for (size_t i = 0; i < sizeof(number_); ++i) {
      nonce[kNonceBytes - 1 - i] ^= static_cast<unsigned char>(number_ >> (8 * i));
    }
    ++number_;
    int bytes = 0;
    return EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, nonce.data(), -1) == 1 &&
           EVP_CipherUpdate(context_, nullptr, &bytes,
                            reinterpret_cast<const unsigned char*>(header), kHeaderBytes) == 1;
  }
  bool Add(void* to, const void* from, size_t count) {
    int bytes = 0;
    return EVP_CipherUpdate(context_, static_cast<unsigned char*>(to), &bytes,
                            static_cast<const unsigned char*>(from), static_cast<int>(count)) == 1;
  }
  // Ends a record: writes the tag, or compares it.  Returns false if the tag is wrong.
  bool End(std::byte* tag) {
    const auto control = [&](int what) {
      return EVP_CIPHER_CTX_ctrl(context_, what, static_cast<int>(kTagBytes), tag) == 1;
    };
    unsigned char none = 0;
    int bytes = 0;
    if (!seals_ && !control(EVP_CTRL_AEAD_SET_TAG)) return false;
    if (EVP_CipherFinal_ex(context_, &none, &bytes) != 1) return false;
    return !seals_ || control(EVP_CTRL_AEAD_GET_TAG);
  }

 private:
  bool Start() {
    const std::string key = Expand("key", kCipherKeyBytes), nonce = Expand("iv", kNonceBytes);
    std::copy(nonce.begin(), nonce.end(), nonce_.begin());
    number_ = 0;
    return EVP_CipherInit_ex(context_, EVP_aes_128_gcm(), nullptr,
                             reinterpret_cast<const unsigned char*>(key.data()), nullptr,
                             seals_ ? 1 : 0) == 1;
  }
  // Returns HKDF-Expand-Label with an empty context (RFC 8446, 7.1); `bytes` is at most one hash.
  std::string Expand(const std::string& label, size_t bytes) const {
    std::string info;
    info += static_cast<char>(bytes >> 8);
    info += static_cast<char>(bytes & 0xFF);
    info += static_cast<char>(6 + label.size());
    info += "tls13 " + label;
    info += '\0';
    info += '\1';  // the first block
    return KeyedHash(secret_, info).substr(0, bytes);
  }

  std::string secret_;
  EVP_CIPHER_CTX* const context_;
  const bool seals_;
  std::array<unsigned char, kNonceBytes> nonce_{};
  uint64_t number_ = 0;  // of the next record
};

Tls::Tls(int socket, bool is_dialer, std::string key, uint64_t records_max)
    : socket_(socket),
      records_max_(records_max),
      making_(std::make_unique<Making>(std::move(key), is_dialer)) {
  SSL* const ssl = making_->ssl = SSL_new(Shared());
  if (ssl == nullptr || SSL_set_app_data(ssl, &making_->secrets) != 1 ||
      SSL_set_fd(ssl, socket) != 1) {
    throw Fail(Code::kInternal, "TLS: {}", LastError());
  }
  if (is_dialer) {
    SSL_set_connect_state(ssl);
  } else {
    SSL_set_accept_state(ssl);
  }
}

Tls::~Tls() = default;

Tls::Step Tls::Shake() {
  SSL* const ssl = making_->ssl;
  const WithoutWriteSignals guard;  // OpenSSL's writes do not set MSG_NOSIGNAL
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl);
  if (result != 1) {
    const int error = SSL_get_error(ssl, result);
    if (error == SSL_ERROR_WANT_READ) return Step::kReads;
    if (error == SSL_ERROR_WANT_WRITE) return Step::kWrites;
    throw Fail(Code::kUnavailable, "TLS: {}", LastError());
  }
  // OpenSSL does not read ahead: bytes that follow the handshake are still in the socket.
  const auto& [key, dialers, acceptors] = making_->secrets;
  const bool is_known = SSL_session_reused(ssl) == 1 && !dialers.empty() && !acceptors.empty() &&
                        SSL_get_current_cipher(ssl) == SSL_CIPHER_find(ssl, kCipherId.data());
  if (!is_known) throw Fail(Code::kUnavailable, "TLS: not by the secret of the job");
  seals_ = std::make_unique<Key>(making_->is_dialer ? dialers : acceptors, true);
  opens_ = std::make_unique<Key>(making_->is_dialer ? acceptors : dialers, false);
  kernel_seals_ = BIO_get_ktls_send(SSL_get_wbio(ssl));
  making_.reset();
  return Step::kDone;
}

// Writes encrypted records one behind the other.
class Tls::RecordWriter {
 public:
  // The memory has to have room for all records.
  RecordWriter(Key* key, std::byte* memory) : key_(*key), to_(memory) {}

  // Begins a record of so many plain bytes, which Add then encrypts.
  void Begin(size_t bytes) {
    const size_t sealed = bytes + kAddedBytes;
    to_[0] = std::byte{SSL3_RT_APPLICATION_DATA};
    to_[1] = to_[2] = std::byte{3};
    to_[3] = static_cast<std::byte>(sealed >> 8);
    to_[4] = static_cast<std::byte>(sealed & 0xFF);
    is_good_ &= key_.Begin(to_);
    to_ += kHeaderBytes;
  }
  void Add(const void* data, size_t bytes) {
    is_good_ &= key_.Add(to_, data, bytes);
    to_ += bytes;
  }
  void End(unsigned char type) {
    Add(&type, 1);
    is_good_ &= key_.End(to_);
    to_ += kTagBytes;
  }
  // Tells the peer to renew its key, and renews this one.
  void RenewKey() {
    Begin(kKeyUpdate.size());
    Add(kKeyUpdate.data(), kKeyUpdate.size());
    End(SSL3_RT_HANDSHAKE);
    is_good_ &= key_.Renew();
  }

  // Returns false if OpenSSL has failed; the records are then useless.
  bool is_good() const { return is_good_; }
  std::byte* end() const { return to_; }

 private:
  Key& key_;
  std::byte* to_;  // the address of the next byte
  bool is_good_ = true;
};

ssize_t Tls::Send(const std::vector<iovec>& pieces) {
  size_t left = std::min(BytesOf(pieces), kSealedPerTurn);
  const size_t taken = left, records = (left + kRecordBytes - 1) / kRecordBytes;
  constexpr size_t kFrameBytes = kHeaderBytes + kAddedBytes;
  sealed_ = std::make_unique_for_overwrite<std::byte[]>(
      left + records * (kFrameBytes + kFrameBytes + kKeyUpdate.size()));
  RecordWriter writer(seals_.get(), sealed_.get());
  PieceCursor from(pieces);
  while (left > 0) {
    if (seals_->number() >= records_max_) writer.RenewKey();
    size_t rest = std::min(left, kRecordBytes);  // left of the record
    writer.Begin(rest);
    left -= rest;
    while (rest > 0) {
      const size_t part = std::min(rest, from.bytes());
      if (part > 0) writer.Add(from.data(), part);
      rest -= part;
      from.Advance(part);
    }
    writer.End(SSL3_RT_APPLICATION_DATA);
  }
  if (!writer.is_good()) {  // the peer could not decrypt anything after this
    shutdown(socket_, SHUT_RDWR);
    errno = EPIPE;
    return -1;
  }
  sealed_bytes_ = static_cast<size_t>(writer.end() - sealed_.get());
  return static_cast<ssize_t>(taken);
}

ssize_t Tls::Flush() {
  size_t flushed = 0;
  while (has_output()) {
    const ssize_t sent =
        ::send(socket_, sealed_.get() + sent_, sealed_bytes_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return flushed > 0 ? static_cast<ssize_t>(flushed) : -1;
    sent_ += static_cast<size_t>(sent);
    flushed += static_cast<size_t>(sent);
  }
  sealed_.reset();  // an idle connection keeps no buffer
  sealed_bytes_ = sent_ = 0;
  return static_cast<ssize_t>(flushed);
}

// Decrypts a record into the memory at the cursor, which advances.  Keeps the bytes that do not
// fit.  Returns the number of bytes that went there.
size_t Tls::Open(const std::byte* record, size_t bytes, PieceCursor* to) {
  const size_t whole = bytes - kHeaderBytes - kAddedBytes;
  size_t left = whole;
  bool is_good = opens_->Begin(record);
  const std::byte* from = record + kHeaderBytes;
  const auto open = [&](void* plain, size_t count) {
    if (count > 0) is_good &= opens_->Add(plain, from, count);
    from += count;
  };
  // A record that may be a key update is not written into the caller's memory.
  const bool may_be_key_update = left == kKeyUpdate.size();
  while (left > 0 && !to->is_at_end() && !may_be_key_update) {
    const size_t part = std::min(left, to->bytes());
    open(to->data(), part);
    left -= part;
    to->Advance(part);
  }
  opened_.resize(left);
  opened_begin_ = 0;
  open(opened_.data(), left);
  unsigned char type = 0;
  std::byte tag[kTagBytes];
  open(&type, 1);
  std::memcpy(tag, from, kTagBytes);
  is_good = is_good && opens_->End(tag);
  if (is_good && type == SSL3_RT_APPLICATION_DATA) return whole - left;
  // A key update is accepted only for a key that has been used a lot, because each update costs as
  // much as hundreds of records.
  const bool is_key_update = is_good && type == SSL3_RT_HANDSHAKE && may_be_key_update &&
                             opens_->number() >= records_max_ / 2 &&
                             std::memcmp(opened_.data(), kKeyUpdate.data(), kKeyUpdate.size()) == 0;
  opened_.clear();
  if (!is_key_update) throw Fail(Code::kDataLoss, "TLS: a record is not what was sent");
  if (!opens_->Renew()) throw Fail(Code::kInternal, "TLS: {}", LastError());
  return 0;
}

// Copies kept decrypted bytes to the memory at the cursor, up to the end of a piece.  Returns their
// number.
size_t Tls::TakeOpened(PieceCursor* to) {
  const size_t part = std::min(opened_.size() - opened_begin_, to->bytes());
  if (part > 0) std::memcpy(to->data(), opened_.data() + opened_begin_, part);
  opened_begin_ += part;
  to->Advance(part);
  return part;
}

// The encrypted bytes of one call of Receive: those kept from the last call, then those received.
class Tls::ReceivedRecords {
 public:
  // Takes over the kept bytes.
  ReceivedRecords(std::vector<std::byte>* kept, size_t more_bytes_max)
      : kept_(kept),
        capacity_(kept->size() + more_bytes_max),
        memory_(std::make_unique_for_overwrite<std::byte[]>(capacity_)),
        end_(kept->size()) {
    std::copy(kept->begin(), kept->end(), memory_.get());
    kept->clear();
  }

  const std::byte* first() const { return memory_.get() + begin_; }
  // Returns the bytes of the first record; 0: it has not arrived completely.
  //   throws  kDataLoss  not a record
  size_t first_bytes() const {
    if (end_ - begin_ < kHeaderBytes) return 0;
    const std::byte* const record = first();
    const size_t bytes =
        kHeaderBytes + (static_cast<size_t>(record[3]) << 8 | static_cast<size_t>(record[4]));
    const bool is_record = record[0] == std::byte{SSL3_RT_APPLICATION_DATA} &&
                           record[1] == std::byte{3} && record[2] == std::byte{3} &&
                           bytes > kHeaderBytes + kAddedBytes && bytes <= kWholeRecordBytes;
    if (!is_record) throw Fail(Code::kDataLoss, "TLS: not a record");
    return end_ - begin_ >= bytes ? bytes : 0;
  }
  void Drop(size_t bytes) { begin_ += bytes; }

  // Like recv, of at most `wanted` bytes as far as there is room.
  ssize_t Receive(int socket, size_t wanted) {
    std::memmove(memory_.get(), memory_.get() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
    const ssize_t got =
        ::recv(socket, memory_.get() + end_, std::min(capacity_ - end_, wanted), MSG_DONTWAIT);
    if (got > 0) end_ += static_cast<size_t>(got);
    return got;
  }
  // Keeps the bytes that are left for the next call.
  void Keep() { kept_->assign(memory_.get() + begin_, memory_.get() + end_); }

 private:
  std::vector<std::byte>* const kept_;
  const size_t capacity_;
  const std::unique_ptr<std::byte[]> memory_;
  size_t begin_ = 0, end_;
};

ssize_t Tls::Receive(const std::vector<iovec>& pieces) {
  const size_t room = BytesOf(pieces);
  // Read at most the room and one record, so that little has to be kept for the next call.
  ReceivedRecords records(&received_, std::min(kReceivedAtOnce, room + kWholeRecordBytes));
  PieceCursor to(pieces);
  size_t total = 0, taken = 0;
  has_input_ = false;
  while (!to.is_at_end()) {
    if (opened_.size() > opened_begin_) {
      total += TakeOpened(&to);
      continue;
    }
    if (const size_t bytes = records.first_bytes(); bytes > 0) {
      total += Open(records.first(), bytes, &to);
      records.Drop(bytes);
      continue;
    }
    if (taken >= kReceivedPerTurn) {  // read from the socket: records may be small, or no data
      has_input_ = true;
      records.Keep();
      errno = EAGAIN;
      return total > 0 ? static_cast<ssize_t>(total) : -1;
    }
    const ssize_t got = records.Receive(socket_, room - total + kWholeRecordBytes);
    if (got > 0) {
      taken += static_cast<size_t>(got);
      continue;
    }
    const int error = errno;
    records.Keep();
    errno = error;
    if (total == 0) return got;
    const bool is_empty = got < 0 && (error == EAGAIN || error == EWOULDBLOCK || error == EINTR);
    has_input_ = !is_empty;  // the next call reports the end or the error
    return static_cast<ssize_t>(total);
  }
  has_input_ = true;
  records.Keep();
  return static_cast<ssize_t>(total);
}

std::string KeyedHash(const std::string& secret, const std::string& bytes) {
  StartOpenSsl();
  std::string hash(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
           reinterpret_cast<unsigned char*>(hash.data()), &size) == nullptr) {
    throw Fail(Code::kInternal, "OpenSSL does not compute HMAC-SHA256");
  }
  hash.resize(size);
  return hash;
}

}  // namespace tkv
