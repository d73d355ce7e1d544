package org.tensorkv;

/** How a table is made and which rows it keeps; see docs/sparse.md. */
public final class TableOptions {
  enum Initializer {
    CONSTANT,
    UNIFORM,
    NORMAL
  }

  /** By what rows go when there are too many: those with the lowest go. */
  public enum Score {
    AGE,
    COUNT,
    NORM
  }

  private final Shape rowShape;
  private DType dtype = DType.FLOAT32;
  private long rowCount = 0;
  private Initializer initializer = Initializer.CONSTANT;
  private double first = 0;
  private double second = 0;
  private long seed = 0;
  private Rows initialRows = null;
  private Optimizer optimizer = null;
  private int admitCount = 0;
  private long ageMax = 0;
  private long rowsMax = 0;
  private Score score = Score.AGE;
  private boolean notes = true;
  private long memoryMax = 0;
  private String mode = null;

  private TableOptions(Shape rowShape) {
    this.rowShape = KVException.required(rowShape, "TableOptions: row shape");
  }

  /** Rows of this shape, of float32 and zero where they are new. */
  public static TableOptions of(Shape rowShape) {
    return new TableOptions(rowShape);
  }

  public TableOptions dtype(DType dtype) {
    this.dtype = KVException.required(dtype, "TableOptions: dtype");
    return this;
  }

  /** Ids are below it; without it they are below 2**63. */
  public TableOptions rowCount(long rowCount) {
    this.rowCount = notNegative(rowCount, "rowCount");
    return this;
  }

  /** New rows are `value`. */
  public TableOptions constant(double value) {
    return initializer(Initializer.CONSTANT, value, 0, 0);
  }

  /** New rows are drawn between `low` and `high`. */
  public TableOptions uniform(double low, double high, long seed) {
    return initializer(Initializer.UNIFORM, low, high, seed);
  }

  /** New rows are drawn with this mean and standard deviation. */
  public TableOptions normal(double mean, double deviation, long seed) {
    return initializer(Initializer.NORMAL, mean, deviation, seed);
  }

  private TableOptions initializer(Initializer initializer, double first, double second, long seed) {
    this.initializer = initializer;
    this.first = first;
    this.second = second;
    this.seed = seed;
    return this;
  }

  /** Rows that are there from the beginning. */
  public TableOptions initialRows(Rows rows) {
    initialRows = rows;
    return this;
  }

  /** Of this table alone; without it the store's. */
  public TableOptions optimizer(Optimizer optimizer) {
    this.optimizer = optimizer;
    return this;
  }

  /** The push of an id that makes its row; without it the first. */
  public TableOptions admitCount(int count) {
    admitCount = (int) notNegative(count, "admitCount");
    return this;
  }

  /** Versions that a row stays without a push; without it always. */
  public TableOptions ageMax(long versions) {
    ageMax = notNegative(versions, "ageMax");
    return this;
  }

  /** At most so many rows. */
  public TableOptions rowsMax(long rows, Score score) {
    rowsMax = notNegative(rows, "rowsMax");
    this.score = KVException.required(score, "TableOptions: score");
    return this;
  }

  /** Whether it is noted when rows were pushed, in 16 bytes a row, for exports of what is new; default true. */
  public TableOptions notes(boolean notes) {
    this.notes = notes;
    return this;
  }

  /** Bytes of rows in memory, the others are on a disk; without it all of them. */
  public TableOptions memoryMax(long bytes) {
    memoryMax = notNegative(bytes, "memoryMax");
    return this;
  }

  /** {@code "sync"} or {@code "async"}; without it the store's. */
  public TableOptions mode(String mode) {
    this.mode = mode;
    return this;
  }

  private static long notNegative(long number, String what) {
    return KVException.notNegative(number, "TableOptions: " + what);
  }

  /** A {@code tkv_table_options}. */
  long write(Call call) {
    long lengths = call.shape(rowShape, "initTable");
    long ids = initialRows == null ? 0 : call.use(initialRows.ids(), "initTable: ids");
    long values = initialRows == null ? 0 : call.use(initialRows.values(), "initTable: values");
    long update = optimizer == null ? 0 : call.use(optimizer.handle());
    long modeText = call.text(mode, "initTable: mode");
    Block struct = call.block(136).i64(0).i64(lengths).i32(rowShape.rank());
    struct.i32(dtype.number()).i64(rowCount).i32(initializer.ordinal()).f64(first).f64(second);
    struct.i64(seed).i64(ids).i64(values).i64(update).i32(admitCount).i64(ageMax).i64(rowsMax);
    struct.i32(score.ordinal()).bool(notes).i64(memoryMax).i64(modeText);
    return struct.sized();
  }
}
