package org.tensorkv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class KVStoreTest {
  private static final Shape SHAPE = Shape.of(2, 3);

  private final KVStore kv = KVStore.create("local");

  @AfterEach
  void close() {
    kv.close();
  }

  private static NDArray full(double value) {
    return NDArray.full(SHAPE, value);
  }

  private void holds(double value, String key) {
    try (NDArray out = kv.pull(Key.of(key))) {
      Expect.all(value, out);
    }
  }

  // ---- verbs

  @Test
  void pullAfterPushSeesTheSum() {
    kv.init("w", full(2));
    holds(2, "w");
    kv.push("w", full(1), full(4));
    holds(5, "w");
    NDArray[] outs = {full(0), full(0)};
    kv.pull("w", outs);
    Expect.all(5, outs[0]);
    Expect.all(5, outs[1]);
  }

  @Test
  void integersAreKeysToo() {
    kv.init(3, full(2));
    kv.push(3, full(8));
    NDArray out = full(0);
    kv.pull(3, out);
    Expect.all(8, out);
    Expect.all(8, kv.pull(3));
    kv.init(-(1L << 40), full(1));
    Expect.all(1, kv.pull(-(1L << 40)));
    assertEquals(List.of(Key.of(3), Key.of(-(1L << 40))), kv.keys());
  }

  @Test
  void aPullWithoutOutputsReturnsTheValue() {
    kv.init("w", NDArray.full(Shape.of(4), 2.5, DType.FLOAT64, Context.cpu(1)));
    NDArray value = kv.pull("w");
    assertEquals(DType.FLOAT64, value.dtype());
    assertEquals(Context.cpu(1), value.context());
    Expect.all(2.5, value);
    value.set(9);
    Expect.all(2.5, kv.pull("w"));
    Expect.fails(Code.NOT_FOUND, "pull 'v': no such key", () -> kv.pull("v"));
    Expect.fails(Code.INVALID_ARGUMENT, "an integer key", () -> kv.pull(4));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> kv.pull((String) null));
  }

  @Test
  void listsOfKeys() {
    int[] keys = {5, 7, 9};
    NDArray[] outs = {full(0), full(0), full(0)};
    kv.init(keys, full(1), full(2), full(3));
    kv.pull(keys, outs);
    Expect.all(3, outs[2]);
    kv.push(keys, full(4), full(5), full(6));
    kv.pull(keys, outs);
    Expect.all(4, outs[0]);
    Expect.all(6, outs[2]);
  }

  @Test
  void listsOfTextKeysWithSeveralArraysEach() {
    kv.init(new String[] {"a", "b"}, full(0), full(0));
    kv.push(Item.of("a", full(1), full(2)), Item.of("b", full(3), full(4)).priority(2));
    NDArray a = full(0);
    NDArray b = full(0);
    kv.pull(new String[] {"a", "b"}, a, b);
    Expect.all(3, a);
    Expect.all(7, b);
  }

  @Test
  void callsWithMoreArgumentsThanTheirBlock() {
    Item[] items = new Item[2000];
    for (int i = 0; i < items.length; i++) {
      items[i] = Item.of("a key with a long name " + i, NDArray.full(Shape.of(1), i));
    }
    kv.init(items);
    assertEquals(2000, kv.size());
    assertEquals(1999, kv.pull(Key.of("a key with a long name 1999")).toScalar());
  }

  @Test
  void pushPullAndBroadcast() {
    NDArray value = full(3);
    kv.init(1, full(0));
    kv.pushPull(1, value);
    Expect.all(3, value);
    NDArray out = full(0);
    kv.pushPull(1, full(4), out);
    Expect.all(4, out);
    NDArray[] outs = {full(0), full(0)};
    kv.broadcast(2, full(6), outs);
    Expect.all(6, outs[1]);
    kv.pushPull(
        new Item[] {Item.of(1, full(1), full(1)), Item.of(2, full(2))},
        new Item[] {Item.of(1, outs[0]), Item.of(2, outs[1])});
    Expect.all(2, outs[0]);
  }

  @Test
  void namesKeepTheirCharacters() {
    String name = "Gewicht-\u00e4\u20ac\ud83d\ude00";
    kv.init(name, full(1));
    assertEquals(List.of(Key.of(name)), kv.keys());
    Expect.fails(Code.NOT_FOUND, "\u00e4", () -> kv.push("\u00e4", full(1)));
  }

  @Test
  void ticketsEnd() {
    kv.init("w", full(0));
    try (Ticket ticket = kv.pushAsync("w", full(1), full(1))) {
      ticket.await(ChronoUnit.FOREVER.getDuration());
      assertTrue(ticket.isDone());
      assertFalse(ticket.cancel());
    }
    NDArray out = full(0);
    kv.pullAsync("w", out).await();
    Expect.all(2, out);
    kv.pushPullAsync(new Item[] {Item.of("w", full(5))}, new Item[] {Item.of("w", out)}).await();
    Expect.all(5, out);
    kv.barrierAsync().await();
  }

  // ---- what it is

  @Test
  void aStoreSaysWhatItIs() {
    kv.init("w", NDArray.zeros(Shape.of(4, 1), DType.FLOAT64, Context.cpu(1)));
    assertEquals("local", kv.type());
    assertEquals(0, kv.rank());
    assertEquals(1, kv.numWorkers());
    assertFalse(kv.hasRejoined());
    assertFalse(kv.isDistributed());
    assertEquals(0, kv.numDeadNode(7));
    Expect.fails(Code.INVALID_ARGUMENT, "8 is server 0, of 0", () -> kv.numDeadNode(8));
    assertEquals(
        new KeyInfo(Shape.of(4, 1), DType.FLOAT64, Context.cpu(1), false, 0),
        kv.describe(Key.of("w")));
    assertTrue(kv.contains(Key.of("w")));
    assertFalse(kv.contains(Key.of("v")));
    kv.push("w", NDArray.zeros(Shape.of(4, 1), DType.FLOAT64, Context.cpu()));
    assertEquals(1, kv.round(Key.of("w")));
    assertTrue(kv.stats().startsWith("{"), kv.stats());
    assertEquals("KVStore local, rank 0 of 1", kv.toString());
    assertEquals("", KVStore.role());
    assertTrue(KVStore.config().contains("version"), KVStore.config());
    kv.barrier();
    kv.delete(Key.of("w"));
    assertEquals(0, kv.size());
  }

  @Test
  void optionsHaveNames() {
    try (KVStore self =
        KVStore.builder("dist_sync").option("bootstrap", "self").option("servers", 2).create()) {
      assertTrue(self.isDistributed());
      self.init("w", full(1));
      self.push("w", full(3));
      Expect.all(3, self.pull(Key.of("w")));
      assertEquals(0, self.numDeadNode(7));
    }
    try (KVStore self = KVStore.builder("p3").option("bootstrap", "self").create()) {
      assertTrue(self.isDistributed());
    }
    Expect.fails(
        Code.INVALID_ARGUMENT,
        "stalenes",
        () -> KVStore.builder("dist_sync").option("stalenes", 1).create());
    Expect.fails(
        Code.INVALID_ARGUMENT, "many", () -> KVStore.builder("local").option("threads", "many").create());
  }

  // ---- optimizers

  @Test
  void anOptimizerUpdatesInTheStore() {
    kv.init("w", full(1));
    Optimizer sgd = Optimizer.create("sgd", Map.of("learning_rate", 0.5));
    kv.setOptimizer(sgd);
    kv.push("w", full(1));
    holds(.5, "w");
    sgd.set("learning_rate", 0.25);
    assertEquals(0.25, sgd.get("learning_rate"));
    kv.push("w", full(1));
    holds(.25, "w");
    sgd.setMultiplier("learning_rate", Key.of("w"), 0);
    kv.push("w", full(1));
    holds(.25, "w");
  }

  @Test
  void aProgramIsAnOptimizer() {
    kv.init("w", full(1));
    kv.setOptimizer(
        Optimizer.program("program twice\ndouble = mul sum 2\nw = add value double\nvalue <- w\n"));
    kv.push("w", full(3));
    holds(7, "w");
    Expect.fails(Code.INVALID_ARGUMENT, "", () -> Optimizer.program("no program"));
    Expect.fails(Code.NOT_FOUND, "sdg", () -> Optimizer.create("sdg"));
    Expect.fails(
        Code.INVALID_ARGUMENT, "momentun", () -> Optimizer.builder("nag").set("momentun", 1).build());
  }

  @Test
  void aHalfFloatKeyKeepsAMaster() {
    Shape one = Shape.of(1);
    kv.init("w", NDArray.full(one, 1, DType.FLOAT16, Context.cpu()));
    kv.setOptimizer(
        Optimizer.builder("sgd").set("learning_rate", 1).multiPrecision(true).lazy(false).build());
    for (int i = 0; i < 4; i++) {
      kv.push("w", NDArray.full(one, 0x1p-12, DType.FLOAT16, Context.cpu()));
    }
    assertEquals(1 - 0x1p-10, kv.pull(Key.of("w")).toScalar());
  }

  // ---- on disk

  @Test
  void snapshotsComeBack(@TempDir Path folder) {
    kv.init("w", full(1));
    assertFalse(KVStore.hasSnapshot(folder));
    kv.push("w", full(4));
    String snapshot = kv.save(folder);
    assertTrue(Files.isDirectory(Path.of(snapshot)), snapshot);
    assertTrue(KVStore.hasSnapshot(folder));
    kv.push("w", full(9));
    kv.load(folder);
    holds(4, "w");
    kv.saveAsync(folder).await();
    try (KVStore other = KVStore.create()) {
      other.restore(folder);
      Expect.all(4, other.pull(Key.of("w")));
    }
    Expect.fails(Code.NOT_FOUND, "nothing", () -> kv.load(folder.resolve("nothing")));
  }

  @Test
  void statesComeBack(@TempDir Path folder) {
    Path file = folder.resolve("states");
    Expect.fails(Code.FAILED_PRECONDITION, "", () -> kv.saveOptimizerStates(file));
    kv.init("w", full(0));
    kv.setOptimizer(Optimizer.create("momentum", Map.of("learning_rate", 1.0, "momentum", 1.0)));
    kv.push("w", full(1));
    kv.saveOptimizerStates(file);
    kv.push("w", full(0));
    holds(-2, "w");
    kv.loadOptimizerStates(file);
    kv.push("w", full(1));
    holds(-4, "w");
  }

  @Test
  void aTraceIsWritten(@TempDir Path folder) throws Exception {
    Path file = folder.resolve("trace.json");
    kv.init("w", full(1));
    kv.startTrace();
    kv.push("w", full(1));
    kv.pauseTrace();
    kv.writeTrace(file);
    assertTrue(Files.readString(file).contains("push"));
  }

  // ---- compression

  @Test
  void pushesAreCompressed() {
    Expect.fails(
        Code.FAILED_PRECONDITION, "local", () -> kv.setGradientCompression("2bit", 0.5));
    try (KVStore device = KVStore.create("device")) {
      device.init("w", full(0));
      device.setGradientCompression("2bit", 0.5);
      device.push("w", full(0.75), full(0.25));
      Expect.all(0.5, device.pull(Key.of("w")));
      device.setGradientCompression("none", 0, 0, "*");
      Expect.fails(
          Code.INVALID_ARGUMENT, "3bit", () -> device.setGradientCompression("3bit", 0.5));
    }
  }

  // ---- bad calls

  @Test
  void badCallsNameWhatWasWrongAndChangeNothing() {
    kv.init("w", full(1));
    NDArray other = NDArray.ones(Shape.of(3, 2));
    Expect.fails(
        Code.INVALID_ARGUMENT,
        "push 'w': shape (3, 2), the key has (2, 3)",
        () -> kv.push("w", full(1), other));
    Expect.fails(Code.INVALID_ARGUMENT, "pull 'w'", () -> kv.pull("w", other));
    Expect.fails(Code.NOT_FOUND, "'v'", () -> kv.push("v", full(1)));
    Expect.fails(Code.ALREADY_EXISTS, "init 'w'", () -> kv.init("w", full(1)));
    Expect.fails(Code.INVALID_ARGUMENT, "push 'w': null", () -> kv.push("w", full(1), null));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> kv.push((String) null, full(1)));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> kv.push("w", (NDArray[]) null));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> kv.push((Item[]) null));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> kv.push(new Item[1]));
    Expect.fails(Code.INVALID_ARGUMENT, "push 'w'", () -> kv.push("w", new NDArray[0]));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> kv.init("x", null));
    Expect.fails(Code.INVALID_ARGUMENT, "1 arrays, one for each of 2", () -> kv.push(new int[2], full(1)));
    Expect.fails(Code.INVALID_ARGUMENT, "zero", () -> kv.push("w\0", full(1)));
    Expect.fails(Code.INVALID_ARGUMENT, "character", () -> kv.push("\ud800", full(1)));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> kv.setOptimizer(null));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> kv.save(null));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> kv.contains(null));
    Expect.fails(Code.INVALID_ARGUMENT, "locl", () -> KVStore.create("locl"));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> KVStore.create(null));
    Expect.fails(Code.FAILED_PRECONDITION, "tkv launch", () -> KVStore.create("dist_sync"));
    Expect.fails(Code.FAILED_PRECONDITION, "", KVStore::runServer);
    holds(1, "w");
  }

  @Test
  void aClosedArrayIsRefusedAndTheOthersAreLetGo() {
    kv.init("w", full(1));
    NDArray open = full(1);
    NDArray closed = full(1);
    closed.close();
    Expect.fails(Code.FAILED_PRECONDITION, "closed", () -> kv.push("w", open, closed));
    open.close();
    assertTrue(open.isClosed());
    holds(1, "w");
  }

  @Test
  void aClosedStoreRefusesEverything() {
    kv.init("w", full(1));
    kv.close();
    kv.close();
    kv.closeAfterFailure();
    assertTrue(kv.isClosed());
    Expect.fails(Code.FAILED_PRECONDITION, "KVStore: closed", () -> kv.push("w", full(1)));
    Expect.fails(Code.FAILED_PRECONDITION, "KVStore: closed", kv::type);
    Expect.fails(Code.FAILED_PRECONDITION, "KVStore: closed", kv::rank);
    assertEquals("KVStore, closed", kv.toString());
  }

  @Test
  void emptyCallsAreRefused() {
    Expect.fails(Code.INVALID_ARGUMENT, "push: the list of keys is empty", () -> kv.push());
  }

  @Test
  void theVersionIsThatOfTheJar() {
    assertEquals(System.getProperty("tkv.version"), KVStore.version());
  }
}
