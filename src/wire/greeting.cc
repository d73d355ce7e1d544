// HELLO and WELCOME, which open a session.

#include "base/byte_io.h"
#include "wire/checked_fields.h"
#include "wire/message.h"

namespace tkv {
namespace {

constexpr size_t kJobBytesMax = 256;

void Write(const Protocol& value, ByteWriter* writer) {
  writer->Number(value.version);
  writer->Number(value.features);
  writer->Number(value.required);
  writer->Text(value.package);
}

// Reads the protocol at the end of a HELLO or WELCOME.  A message of version 1 has no protocol.
// Bytes that a later version appends are ignored, so that the error which refuses the peer names
// the versions.
Protocol ReadProtocol(ByteReader* reader) {
  Protocol protocol;
  if (reader->left() == 0) {
    protocol.version = 1;
    return protocol;
  }
  protocol.version = reader->Number<uint32_t>();
  if (protocol.version < 2) {
    throw Fail(Code::kInvalidArgument, "protocol {} where later ones say theirs", protocol.version);
  }
  protocol.features = reader->Number<uint64_t>();
  protocol.required = reader->Number<uint64_t>();
  protocol.package = reader->Text(Protocol::kPackageBytesMax);
  if (protocol.version == kProtocolVersion) reader->End();
  return protocol;
}

}  // namespace

std::string Encode(const Hello& value) {
  ByteWriter writer;
  writer.Text(value.job);
  writer.Number(value.role);
  writer.Number(value.rank);
  writer.Number(value.incarnation);
  writer.Number(value.known);
  writer.Text(value.address);
  Write(value.protocol, &writer);
  return writer.Take();
}

Hello DecodeHello(std::string_view bytes) {
  ByteReader reader(bytes);
  Hello hello;
  hello.job = reader.Text(kJobBytesMax);
  hello.role = static_cast<Role>(reader.Number<uint8_t>());
  hello.rank = ReadRank(&reader);
  hello.incarnation = reader.Number<uint64_t>();
  hello.known = reader.Number<uint64_t>();
  hello.address = reader.Text(kAddressBytesMax);
  hello.protocol = ReadProtocol(&reader);
  // A later version may have more roles.  Such a peer is refused because of its version.
  if (hello.role > Role::kServer && hello.protocol.version == kProtocolVersion) {
    throw Fail(Code::kInvalidArgument, "there is no role {}", static_cast<int>(hello.role));
  }
  return hello;
}

std::string Encode(const Welcome& value) {
  ByteWriter writer;
  writer.Number(value.server_incarnation);
  writer.Number(static_cast<uint8_t>(value.resumed));
  writer.Number(value.credit_bytes);
  writer.Number(value.rank);
  writer.Number(value.incarnation);
  writer.Number(static_cast<uint8_t>(value.rejoined));
  Write(value.protocol, &writer);
  return writer.Take();
}

Welcome DecodeWelcome(std::string_view bytes) {
  ByteReader reader(bytes);
  Welcome welcome;
  welcome.server_incarnation = reader.Number<uint64_t>();
  welcome.resumed = ReadBool(&reader);
  welcome.credit_bytes = reader.Number<uint64_t>();
  welcome.rank = ReadRank(&reader);
  welcome.incarnation = reader.Number<uint64_t>();
  welcome.rejoined = ReadBool(&reader);
  welcome.protocol = ReadProtocol(&reader);
  return welcome;
}

}  // namespace tkv
