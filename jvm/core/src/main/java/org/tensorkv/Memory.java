package org.tensorkv;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import org.bytedeco.javacpp.BytePointer;
import org.bytedeco.javacpp.Pointer;

/** Memory that the library and Java both see. */
final class Memory {
  private Memory() {}

  /** Bytes of the library's memory, in the machine's byte order. */
  static ByteBuffer view(long address, long bytes) {
    return new Foreign(address, bytes).asByteBuffer().order(ByteOrder.nativeOrder());
  }

  private static final class Foreign extends BytePointer {
    Foreign(long address, long bytes) {
      super((Pointer) null);
      this.address = address;
      this.limit = bytes;
      this.capacity = bytes;
    }
  }

  /** Where the memory of a direct buffer begins, whatever its position. */
  static long addressOf(Buffer buffer) {
    return new Pointer(buffer).address();
  }

  /** Text of the library's, which ends with a zero. */
  static String text(long address) {
    byte[] bytes = new byte[(int) Native.strlen(address)];
    if (bytes.length > 0) {
      view(address, bytes.length).get(bytes);
    }
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /**
   * Text for the library: UTF-8 that ends with a zero.
   *
   * @throws KVException {@link Code#INVALID_ARGUMENT}: a zero or half of a character in it
   */
  static byte[] encode(String text, String what) {
    byte[] bytes = new byte[text.length() + 1];
    for (int i = 0; i < text.length(); i++) {
      char character = text.charAt(i);
      if (character == 0 || character >= 0x80) {
        return encodeAny(text, what);
      }
      bytes[i] = (byte) character;
    }
    return bytes;
  }

  private static byte[] encodeAny(String text, String what) {
    if (text.indexOf('\0') >= 0 || !StandardCharsets.UTF_8.newEncoder().canEncode(text)) {
      throw KVException.invalid(what + " '" + text + "': a zero or half of a character in the text");
    }
    return (text + '\0').getBytes(StandardCharsets.UTF_8);
  }
}
