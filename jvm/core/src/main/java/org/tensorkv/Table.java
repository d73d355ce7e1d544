package org.tensorkv;

/**
 * A key of a store that is kept row by row: memory grows with the rows that are pushed. Thread-safe,
 * as its store.
 */
public final class Table {
  private final KVStore store;
  private final Key key;

  Table(KVStore store, Key key) {
    this.store = store;
    this.key = KVException.required(key, "table");
  }

  public Key key() {
    return key;
  }

  /** Sums rows, each id by itself, and hands them to the updater or stores them. */
  public void push(Rows rows) {
    store.pushRows(RowsItem.of(key, rows));
  }

  /** As the other, with ids as numbers. */
  public void push(long[] ids, NDArray values) {
    push(Rows.of(ids, values));
  }

  /** Writes the rows of {@code rows.ids()} into {@code rows.values()}. */
  public void pull(Rows rows) {
    store.pullRows(RowsItem.of(key, rows));
  }

  /** The rows of these ids, (n, ...), as a new array. */
  public NDArray pull(long... ids) {
    KVException.required(ids, "pull_rows " + key.quoted() + ": ids");
    KeyInfo info = store.describe(key);
    long[] row = info.shape().toArray();
    long[] lengths = new long[row.length + 1];
    lengths[0] = ids.length;
    System.arraycopy(row, 0, lengths, 1, row.length);
    NDArray values = NDArray.empty(Shape.of(lengths), info.dtype(), info.context());
    try (NDArray numbers = NDArray.array(ids, Shape.of(ids.length))) {
      pull(Rows.of(numbers, values));
    }
    return values;
  }

  /** All rows that are there. */
  public RowsExport export() {
    return export(0, 0, false, 0);
  }

  /** Rows with ids from {@code first} to before {@code end}; an {@code end} of 0 is beyond all. */
  public RowsExport export(long first, long end) {
    return export(first, end, false, 0);
  }

  /** Rows that a later version than this one has brought; the table has notes. */
  public RowsExport exportSince(long version) {
    return export(0, 0, true, version);
  }

  private RowsExport export(long first, long end, boolean isNew, long since) {
    String verb = "export_rows " + key.quoted();
    KVException.notNegative(first, verb + ": the first id");
    KVException.notNegative(end, verb + ": the end of ids");
    KVException.notNegative(since, verb + ": the version");
    try (Call call = new Call()) {
      Block filter = call.block(40).i64(0).i64(first).i64(end).bool(isNew).i64(since);
      Block outs = call.block(24);
      call.check(
          Native.tkv_store_export_rows(
              store.use(call),
              call.key(key, "export_rows"),
              filter.sized(),
              outs.address,
              outs.address + 8,
              outs.address + 16,
              call.error()));
      Rows rows = Rows.of(NDArray.owner(outs.i64()), NDArray.owner(outs.i64()));
      return new RowsExport(rows, outs.i64());
    }
  }

  /** Rows begin anew with these values. In a job the lowest rank that lives calls it. */
  public void importRows(Rows rows) {
    KVException.required(rows, "import_rows " + key.quoted());
    try (Call call = new Call()) {
      call.check(
          Native.tkv_store_import_rows(
              store.use(call),
              call.key(key, "import_rows"),
              call.use(rows.ids(), "import_rows"),
              call.use(rows.values(), "import_rows"),
              call.error()));
    }
  }

  /** What it holds, on all servers. */
  public TableStats stats() {
    try (Call call = new Call()) {
      Block stats = call.block(64).i64(64);
      call.check(
          Native.tkv_store_table_stats(
              store.use(call), call.key(key, "table_stats"), stats.address, call.error()));
      return new TableStats(
          stats.i64(), stats.i64(), stats.i64(), stats.i64(), stats.i64(), stats.i64(), stats.i64());
    }
  }
}
