// TLS 1.3 on a connection whose sides have proved that they know the secret of the job (RFC 8446).
//
// There are no certificates: the key of the connection is derived from the secret and from what both
// sides have said in the handshake before (handshake.h), and is used with an exchange of fresh keys
// (psk_dhe_ke), so that who learns the secret later cannot read what has been said.  OpenSSL makes
// the connection.  Records are made here, from where values lie and into where they land, with
// OpenSSL's AES-GCM, or by the kernel where it can.

#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tkv {

class Tls {
 public:
  static constexpr size_t kKeyBytes = 32;

  enum class Step : uint8_t { kDone, kReads, kWrites };

  // What one key of AES-GCM is good for, with a margin (RFC 8446, 5.5); then comes the next one.
  static constexpr uint64_t kRecordsMax = uint64_t{1} << 24;

  // The socket never blocks, and lives longer.
  //   throws  kInternal  OpenSSL does not start
  Tls(int socket, bool is_dialer, std::string key, uint64_t records_max = kRecordsMax);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Goes on until it is done, or the socket has to be readable or writable first.
  //   throws  kUnavailable  why it cannot be done
  Step Shake();
  // Whether the kernel encrypts: then what is to be sent is given to the socket as it is.
  bool kernel_seals() const { return kernel_seals_; }

  // As sendmsg, where nothing waits here: how many of the bytes have been encrypted, which wait here
  // now; their memory is not referred to any more.
  ssize_t Send(const std::vector<iovec>& pieces);
  // What waits here, as send.
  bool has_output() const { return sent_ < sealed_bytes_; }
  ssize_t Flush();
  // As recvmsg, into memory that nobody looks at before it returns.
  //   throws  kDataLoss  what has come is not what was sent
  ssize_t Receive(const std::vector<iovec>& pieces);
  // Whether the last Receive has left bytes here: the socket may not tell of any more.
  bool has_input() const { return has_input_; }

 private:
  class Key;      // of one direction
  struct Making;  // of the connection

  size_t Open(const std::byte* record, size_t bytes, const std::vector<iovec>& pieces,
              size_t* piece, size_t* offset);

  const int socket_;
  const uint64_t records_max_;
  std::unique_ptr<Making> making_;  // until it is made
  std::unique_ptr<Key> seals_, opens_;
  bool kernel_seals_ = false;
  std::unique_ptr<std::byte[]> sealed_;  // records on their way out
  size_t sealed_bytes_ = 0, sent_ = 0;   // of them
  std::vector<std::byte> received_;      // the beginning of what is still to be opened
  std::vector<std::byte> opened_;        // the end of a record for which there was no room
  size_t opened_begin_ = 0;
  bool has_input_ = false;
};

// Of these bytes with a secret: HMAC-SHA256.
std::string KeyedHash(const std::string& secret, const std::string& bytes);

}  // namespace tkv
