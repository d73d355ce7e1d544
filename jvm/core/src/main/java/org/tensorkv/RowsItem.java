package org.tensorkv;

/** Rows of one table in a call: those to push, or those to pull into. Immutable. */
public final class RowsItem {
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

  Key key() {
    return key;
  }

  Rows rows() {
    return rows;
  }

  int priority() {
    return priority;
  }
}
