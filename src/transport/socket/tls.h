// TLS 1.3 on a connection whose sides have proved that they know the secret of the job (RFC 8446).
//
// There are no certificates.  The key of the connection is derived from the secret and from both
// sides' greetings (handshake.h).  TLS combines it with an exchange of fresh keys (psk_dhe_ke).  So
// somebody who learns the secret later cannot decrypt recorded traffic.  OpenSSL makes the
// connection.  Afterwards this code reads and writes the records, directly from and into the memory
// of the values, with OpenSSL's AES-GCM.  If the kernel can encrypt, the kernel writes the records.

#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tkv {

class PieceCursor;

// A TLS connection on a socket: the handshake, then encrypted reads and writes.
class Tls {
 public:
  static constexpr size_t kKeyBytes = 32;

  enum class Step : uint8_t { kDone, kReads, kWrites };

  // The most records that one AES-GCM key may encrypt, with a margin (RFC 8446, 5.5); then the key
  // is renewed.
  static constexpr uint64_t kRecordsMax = uint64_t{1} << 24;

  // Starts TLS on a non-blocking socket, which has to outlive this object.
  //   throws  kInternal  OpenSSL does not start
  Tls(int socket, bool is_dialer, std::string key, uint64_t records_max = kRecordsMax);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Continues the TLS handshake.  kReads, kWrites: call it again when the socket is readable or
  // writable.
  //   throws  kUnavailable  the reason of the failure
  Step Shake();
  // Returns true if the kernel encrypts: output is then written to the socket as it is.
  bool kernel_seals() const { return kernel_seals_; }

  // Like sendmsg; call it only if has_output() is false.  Encrypts and returns how many of the
  // bytes it has encrypted.  They wait here for Flush; their memory is not used any more.
  ssize_t Send(const std::vector<iovec>& pieces);
  // Returns true if encrypted bytes wait here.  Flush sends them, like send.
  bool has_output() const { return sent_ < sealed_bytes_; }
  ssize_t Flush();
  // Like recvmsg.  The memory may hold unverified bytes until this returns, so no other thread may
  // read it before.
  //   throws  kDataLoss  the received bytes differ from those sent
  ssize_t Receive(const std::vector<iovec>& pieces);
  // Returns true if the last Receive has left bytes here.  The socket may not report them as
  // readable.
  bool has_input() const { return has_input_; }

 private:
  class Key;      // of one direction
  struct Making;  // of the connection
  class RecordWriter;
  class ReceivedRecords;

  size_t Open(const std::byte* record, size_t bytes, PieceCursor* to);
  size_t TakeOpened(PieceCursor* to);

  const int socket_;
  const uint64_t records_max_;
  std::unique_ptr<Making> making_;  // until the TLS handshake is done
  std::unique_ptr<Key> seals_, opens_;
  bool kernel_seals_ = false;
  std::unique_ptr<std::byte[]> sealed_;  // encrypted records that wait for the socket
  // Bytes of sealed_ that exist, and that the socket has taken.
  size_t sealed_bytes_ = 0, sent_ = 0;
  std::vector<std::byte> received_;  // the beginning of a record that has not arrived completely
  // The decrypted end of a record that did not fit into the caller's memory.
  std::vector<std::byte> opened_;
  size_t opened_begin_ = 0;
  bool has_input_ = false;
};

// Returns HMAC-SHA256 of these bytes, keyed with a secret.
std::string KeyedHash(const std::string& secret, const std::string& bytes);

}  // namespace tkv
