package org.tensorkv;

import java.nio.ByteBuffer;

/** A struct, or a list of them, that is written or read field by field, each aligned to its size. */
final class Block {
  final ByteBuffer buffer;
  final int base;
  final long address;
  private int next;

  Block(ByteBuffer buffer, int base, long address) {
    this.buffer = buffer;
    this.base = base;
    this.address = address;
    next = base;
  }

  Block i64(long value) {
    buffer.putLong(place(8), value);
    return this;
  }

  Block i32(int value) {
    buffer.putInt(place(4), value);
    return this;
  }

  Block bool(boolean value) {
    return i32(value ? 1 : 0);
  }

  Block f64(double value) {
    buffer.putDouble(place(8), value);
    return this;
  }

  Block bytes(byte[] bytes) {
    buffer.put(place(1), bytes);
    next += bytes.length - 1;
    return this;
  }

  long i64() {
    return buffer.getLong(place(8));
  }

  int i32() {
    return buffer.getInt(place(4));
  }

  /** Writes the size of the struct that has been written into its first field. */
  long sized() {
    buffer.putLong(base, (next + 7 & ~7) - base);
    return address;
  }

  /** To where the next struct of a list begins. */
  Block align() {
    next = next + 7 & ~7;
    return this;
  }

  private int place(int bytes) {
    int place = next + bytes - 1 & -bytes;
    next = place + bytes;
    return place;
  }
}
