package org.tensorkv;

import java.nio.charset.StandardCharsets;

/** The name of a value in a store: an integer, or text. {@code of(3)} and {@code of("3")} differ. */
public final class Key {
  private final String text;
  private final long number;
  private final byte[] bytes;

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
    return new Key(text, 0, Call.encode(KVException.required(text, "Key"), "Key"));
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

  /** UTF-8 that ends with a zero, of a text. */
  byte[] bytes() {
    return bytes;
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
