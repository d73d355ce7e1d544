package org.tensorkv;

/** What the elements of an array are. */
public enum DType {
  FLOAT32(0, 4),
  FLOAT64(1, 8),
  FLOAT16(2, 2),
  BFLOAT16(3, 2),
  INT8(4, 1),
  UINT8(5, 1),
  INT16(6, 2),
  INT32(7, 4),
  INT64(8, 8),
  BOOL(9, 1),
  FLOAT8_E4M3FN(10, 1),
  FLOAT8_E5M2(11, 1),
  UINT16(12, 2),
  UINT32(13, 4),
  UINT64(14, 8),
  COMPLEX64(15, 8);

  private static final DType[] BY_NUMBER = values();

  private final int number;
  private final int bytes;

  DType(int number, int bytes) {
    this.number = number;
    this.bytes = bytes;
  }

  /** The number in tkv.h. */
  public int number() {
    return number;
  }

  /** Bytes of an element. */
  public int bytes() {
    return bytes;
  }

  /** {@code "float32"}. */
  @Override
  public String toString() {
    return name().toLowerCase(java.util.Locale.ROOT);
  }

  static DType of(int number) {
    return BY_NUMBER[number];
  }
}
