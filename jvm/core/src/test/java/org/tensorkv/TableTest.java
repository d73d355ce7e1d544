package org.tensorkv;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

final class TableTest {
  private static final Shape ROW = Shape.of(2);

  private final KVStore kv = KVStore.create("local");

  @AfterEach
  void close() {
    kv.close();
  }

  private static NDArray rows(float... elements) {
    return NDArray.array(elements, Shape.of(elements.length / 2, 2));
  }

  /** One row of two numbers, each a real and an imaginary part. */
  private static NDArray complex(float... parts) {
    ByteBuffer bytes = ByteBuffer.allocateDirect(4 * parts.length).order(ByteOrder.nativeOrder());
    bytes.asFloatBuffer().put(parts);
    return NDArray.wrap(bytes, DType.COMPLEX64, Shape.of(1, 2));
  }

  @Test
  void rowsAreSummedEachByItself() {
    Table table = kv.initTable("t", TableOptions.of(ROW).constant(7));
    table.push(new long[] {1L << 40, 3, 3}, rows(1, 2, 3, 4, 5, 6));
    assertArrayEquals(new float[] {8, 10, 1, 2, 7, 7}, table.pull(3, 1L << 40, 9).toArray());
    assertEquals(2, table.stats().rows());
    assertEquals(Key.of("t"), table.key());
    assertTrue(kv.describe(Key.of("t")).byRows());
  }

  @Test
  void rowsOfSeveralTablesInOneCall() {
    kv.initTable("a", TableOptions.of(ROW).rowCount(10));
    kv.initTable("b", TableOptions.of(ROW).dtype(DType.FLOAT64));
    NDArray wide = NDArray.full(Shape.of(1, 2), 3, DType.FLOAT64, Context.cpu());
    kv.pushRows(
        RowsItem.of("a", Rows.of(new long[] {1}, rows(1, 2))),
        RowsItem.of("b", Rows.of(new long[] {2}, wide)).priority(1));
    kv.pushRowsAsync(RowsItem.of("b", Rows.of(new long[] {5}, wide))).await();
    NDArray out = rows(0, 0);
    kv.pullRows(RowsItem.of("a", Rows.of(new long[] {1}, out)));
    assertArrayEquals(new float[] {1, 2}, out.toArray());
    NDArray other = NDArray.zeros(Shape.of(1, 2), DType.FLOAT64, Context.cpu());
    kv.pullRowsAsync(RowsItem.of("b", Rows.of(new long[] {5}, other))).await();
    Expect.all(3, other);
    Expect.fails(
        Code.OUT_OF_RANGE, "10", () -> kv.table("a").push(new long[] {10}, rows(1, 1)));
  }

  @Test
  void integersNameTablesToo() {
    Table table = kv.initTable(3, TableOptions.of(ROW).constant(7));
    assertEquals(Key.of(3), table.key());
    kv.table(3).push(new long[] {5}, rows(1, 2));
    assertArrayEquals(new float[] {1, 2, 7, 7}, table.pull(5, 6).toArray());
    kv.pushRows(RowsItem.of(3, Rows.of(new long[] {6}, rows(3, 4))));
    assertEquals(2, table.stats().rows());
  }

  @Test
  void optionsReachTheTable() {
    Rows first = Rows.of(new long[] {4}, rows(1, 1));
    TableOptions options =
        TableOptions.of(ROW)
            .initialRows(first)
            .optimizer(Optimizer.create("sgd", Map.of("learning_rate", 1.0)))
            .admitCount(2);
    Table table = kv.initTable("t", options);
    table.push(new long[] {4, 5}, rows(1, 1, 1, 1));
    assertArrayEquals(new float[] {0, 0, 0, 0}, table.pull(4, 5).toArray());
    assertEquals(1, table.stats().candidates());
    Table aged = kv.initTable("aged", TableOptions.of(ROW).rowsMax(1, TableOptions.Score.AGE));
    aged.push(new long[] {1}, rows(1, 1));
    aged.push(new long[] {2}, rows(1, 1));
    assertEquals(1, aged.stats().rows());
    assertEquals(1, aged.stats().evicted());
    Table drawn = kv.initTable("drawn", TableOptions.of(ROW).uniform(2, 3, 1).ageMax(5));
    for (float element : drawn.pull(1).toArray()) {
      assertTrue(element >= 2 && element < 3);
    }
    Table normal = kv.initTable("normal", TableOptions.of(ROW).normal(100, 0.5, 3).mode("async"));
    for (float element : normal.pull(1).toArray()) {
      assertEquals(100, element, 5);
    }
    Expect.fails(
        Code.FAILED_PRECONDITION, "rows_dir", () -> kv.initTable("m", TableOptions.of(ROW).memoryMax(1 << 20)));
  }

  @Test
  void complexRowsAreStoredAndHaveNoUpdater() {
    Table table = kv.initTable("t", TableOptions.of(ROW).dtype(DType.COMPLEX64));
    NDArray row = complex(1, 2, 3, 4);
    table.push(new long[] {3}, row);
    assertEquals(DType.COMPLEX64, table.pull(3).dtype());
    assertTrue(table.pull(3).hasElementsOf(row));
    assertTrue(table.pull(4).hasElementsOf(complex(0, 0, 0, 0)));
    assertTrue(table.export().rows().values().hasElementsOf(row));
    Expect.fails(Code.INVALID_ARGUMENT, "real numbers were wanted", () -> table.pull(3).toArray());
    Expect.fails(
        Code.INVALID_ARGUMENT,
        "'drawn': the initializer draws, complex64 rows begin as a constant",
        () -> kv.initTable("drawn", TableOptions.of(ROW).dtype(DType.COMPLEX64).uniform(0, 1, 1)));
    kv.setOptimizer(Optimizer.create("sgd", Map.of("learning_rate", 1.0)));
    Expect.fails(
        Code.INVALID_ARGUMENT,
        "push_rows 't': complex64 values cannot be summed or updated",
        () -> table.push(new long[] {3}, row));
    assertTrue(table.pull(3).hasElementsOf(row));
  }

  @Test
  void rowsAreExportedAndImported() {
    Table table = kv.initTable("t", TableOptions.of(ROW));
    table.push(new long[] {2, 1}, rows(2, 2, 1, 1));
    RowsExport all = table.export();
    assertArrayEquals(new long[] {1, 2}, all.rows().ids().toLongArray());
    assertArrayEquals(new float[] {1, 1, 2, 2}, all.rows().values().toArray());
    table.push(new long[] {2}, rows(9, 9));
    RowsExport fresh = table.exportSince(all.version());
    assertArrayEquals(new long[] {2}, fresh.rows().ids().toLongArray());
    assertArrayEquals(new long[] {1}, table.export(0, 2).rows().ids().toLongArray());
    Table bare = kv.initTable("bare", TableOptions.of(ROW).notes(false));
    Expect.fails(Code.INVALID_ARGUMENT, "'bare'", () -> bare.exportSince(0));
    table.importRows(all.rows());
    assertArrayEquals(new float[] {2, 2}, table.pull(2).toArray());
  }

  @Test
  void negativeNumbersAreRefusedByTheirOwnNumber() {
    Table table = kv.initTable("t", TableOptions.of(ROW));
    Expect.fails(Code.INVALID_ARGUMENT, "export_rows 't': the first id is -5", () -> table.export(-5, 2));
    Expect.fails(Code.INVALID_ARGUMENT, "the end of ids is -1", () -> table.export(0, -1));
    Expect.fails(
        Code.INVALID_ARGUMENT,
        "the first id is -9223372036854775808",
        () -> table.export(Long.MIN_VALUE, Long.MAX_VALUE));
    Expect.fails(Code.INVALID_ARGUMENT, "'t': the version is -1", () -> table.exportSince(-1));
    TableOptions options = TableOptions.of(ROW);
    Expect.fails(Code.INVALID_ARGUMENT, "rowCount is -1", () -> options.rowCount(-1));
    Expect.fails(Code.INVALID_ARGUMENT, "admitCount is -1", () -> options.admitCount(-1));
    Expect.fails(Code.INVALID_ARGUMENT, "ageMax is -2", () -> options.ageMax(-2));
    Expect.fails(
        Code.INVALID_ARGUMENT, "rowsMax is -3", () -> options.rowsMax(-3, TableOptions.Score.AGE));
    Expect.fails(Code.INVALID_ARGUMENT, "memoryMax is -5", () -> options.memoryMax(-5));
    Expect.fails(Code.OUT_OF_RANGE, "id -7 ", () -> table.push(new long[] {-7}, rows(1, 1)));
  }

  @Test
  void badCallsOfTablesNameWhatWasWrong() {
    Table table = kv.initTable("t", TableOptions.of(ROW));
    kv.init("w", NDArray.ones(ROW));
    Expect.fails(Code.INVALID_ARGUMENT, "'t'", () -> table.push(new long[] {1}, rows(1, 1, 1, 1)));
    Expect.fails(Code.INVALID_ARGUMENT, "'w'", () -> kv.table("w").pull(0));
    Expect.fails(Code.NOT_FOUND, "'v'", () -> kv.table("v").pull(0));
    Expect.fails(Code.ALREADY_EXISTS, "'t'", () -> kv.initTable("t", TableOptions.of(ROW)));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> table.push((Rows) null));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> table.push(new long[] {1}, null));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> kv.initTable("u", null));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> table.pull((long[]) null));
  }
}
