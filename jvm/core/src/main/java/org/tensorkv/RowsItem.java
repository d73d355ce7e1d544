package org.tensorkv;

/** Rows of one table in a call: those to push, or those to pull into. Immutable. */
public final class RowsItem {
  /** The size of a {@code tkv_rows_item}. */
  private static final int BYTES = 40;

  private final Key key;
  private final Rows rows;
  private final int priority;

  private RowsItem(Key key, Rows rows, int priority) {
    this.key = KVException.required(key, "RowsItem: key");
    this.rows = KVException.required(rows, "RowsItem " + key.quoted() + ": rows");
    this.priority = priority;
  }

  public static RowsItem of(Key key, Rows rows) {
    return new RowsItem(key, rows, 0);
  }

  public static RowsItem of(long key, Rows rows) {
    return of(Key.of(key), rows);
  }

  public static RowsItem of(String key, Rows rows) {
    return of(Key.of(key), rows);
  }

  /** What waits for a server leaves in this order, highest first; 0 without it. */
  public RowsItem priority(int priority) {
    return new RowsItem(key, rows, priority);
  }

  /** A list of {@code tkv_rows_item}. */
  static long write(Call call, String verb, RowsItem... items) {
    Block list = call.block((long) BYTES * KVException.required(items, verb).length);
    for (RowsItem item : items) {
      KVException.required(item, verb).write(call, list);
    }
    return list.address;
  }

  private void write(Call call, Block target) {
    key.write(call, target);
    target.i64(call.use(rows.ids().handle())).i64(call.use(rows.values().handle()));
    target.i32(priority).align();
  }
}
