package org.tensorkv;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** The name of a value in a store: an integer, or text. {@code of(3)} and {@code of("3")} differ. */
public final class Key {
  /** The size of a {@code tkv_key}. */
  static final int BYTES = 16;

  private final String text;
  private final long number;
  private final byte[] bytes;  // UTF-8 that ends with a zero, of a text

  private Key(String text, long number, byte[] bytes) {
    this.text = text;
    this.number = number;
    this.bytes = bytes;
  }

  public static Key of(long number) {
    return new Key(null, number, null);
  }

  /**
   * A text without the character zero.
   *
   * @throws KVException {@link Code#INVALID_ARGUMENT}
   */
  public static Key of(String text) {
    return new Key(text, 0, Memory.encode(KVException.required(text, "Key"), "Key"));
  }

  public boolean isText() {
    return text != null;
  }

  /** The text of such a key, else null. */
  public String text() {
    return text;
  }

  /** The number of such a key, else 0. */
  public long number() {
    return number;
  }

  /** Writes a {@code tkv_key}. */
  void write(Call call, Block target) {
    target.i64(isText() ? call.bytes(bytes) : 0).i64(number);
  }

  /** The {@code tkv_key} of these fields. */
  static Key read(long text, long number) {
    return text == 0 ? of(number) : of(Memory.text(text));
  }

  /** A list of {@code tkv_key}. */
  static List<Key> list(long address, long count) {
    List<Key> keys = new ArrayList<>();
    ByteBuffer pairs = count == 0 ? null : Memory.view(address, BYTES * count);
    for (int i = 0; i < count; i++) {
      keys.add(read(pairs.getLong(BYTES * i), pairs.getLong(BYTES * i + 8)));
    }
    return keys;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Key key
        && number == key.number
        && (text == null ? key.text == null : text.equals(key.text));
  }

  @Override
  public int hashCode() {
    return text == null ? Long.hashCode(number) : text.hashCode();
  }

  /** As messages name it: {@code 'w'}, {@code 3}. */
  String quoted() {
    return text == null ? toString() : "'" + text + "'";
  }

  @Override
  public String toString() {
    return text == null ? Long.toString(number) : text;
  }
}
