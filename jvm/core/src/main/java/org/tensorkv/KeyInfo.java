package org.tensorkv;

import java.util.Arrays;

/**
 * What a key is.
 *
 * @param shape of its value; of a table that of one row
 * @param rowCount of a table, ids are below it; else 0
 */
public record KeyInfo(Shape shape, DType dtype, Context context, boolean byRows, long rowCount) {
  /** The size of a {@code tkv_key_info}. */
  static final int BYTES = 296;

  private static final int RANK_MAX = 32;

  static KeyInfo read(Block info) {
    long[] lengths = new long[RANK_MAX];
    int rank = info.i32();
    for (int i = 0; i < RANK_MAX; i++) {
      lengths[i] = info.i64();
    }
    DType dtype = DType.of(info.i32());
    long device = Integer.toUnsignedLong(info.i32());
    Context context = Context.of((long) info.i32() << 32 | device);
    Shape shape = Shape.of(Arrays.copyOf(lengths, rank));
    return new KeyInfo(shape, dtype, context, info.i32() != 0, info.i64());
  }
}
