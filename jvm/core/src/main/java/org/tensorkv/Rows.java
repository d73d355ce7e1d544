package org.tensorkv;

/** Rows of a table with their ids. */
public final class Rows {
  private final NDArray ids;
  private final NDArray values;

  private Rows(NDArray ids, NDArray values) {
    this.ids = KVException.required(ids, "Rows: ids");
    this.values = KVException.required(values, "Rows: values");
  }

  /**
   * @param ids (n,) of int64
   * @param values (n, ...) of the table's dtype; row i is that of {@code ids[i]}
   */
  public static Rows of(NDArray ids, NDArray values) {
    return new Rows(ids, values);
  }

  /** As the other, with ids as numbers. */
  public static Rows of(long[] ids, NDArray values) {
    return new Rows(NDArray.array(KVException.required(ids, "Rows: ids"), Shape.of(ids.length)), values);
  }

  public NDArray ids() {
    return ids;
  }

  public NDArray values() {
    return values;
  }
}
