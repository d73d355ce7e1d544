package org.tensorkv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

final class UpdaterTest {
  private static final Shape SHAPE = Shape.of(2, 3);

  private final KVStore kv = KVStore.create("local");

  @AfterEach
  void close() {
    kv.close();
  }

  private static NDArray full(double value) {
    return NDArray.full(SHAPE, value);
  }

  private void holds(double value, Key key) {
    Expect.all(value, kv.pull(key));
  }

  @Test
  void anUpdaterCombinesTheSumWithTheValue() {
    List<String> calls = new ArrayList<>();
    Thread caller = Thread.currentThread();
    kv.init(new int[] {5, 7}, full(1), full(1));
    kv.setUpdater(
        (key, sum, stored) -> {
          assertSame(caller, Thread.currentThread());
          calls.add("update on key " + key);
          stored.addInPlace(sum.mul(2));
        });
    kv.push(Item.of(5, full(1), full(1)), Item.of(7, full(1)));
    holds(5, Key.of(5));
    holds(3, Key.of(7));
    assertEquals(List.of("update on key 5", "update on key 7"), calls);
    kv.setUpdater(null);
    kv.push(5, full(1));
    holds(1, Key.of(5));
  }

  @Test
  void updatersThatRunInEachOtherEndInAnError() {
    int count = 100;
    for (int i = 0; i < count; i++) {
      kv.init(i, full(1));
    }
    kv.setUpdater((key, sum, stored) -> kv.push((key.number() + 1) % count, sum));
    Expect.fails(Code.RESOURCE_EXHAUSTED, "run in each other", () -> kv.push(0, full(1)));
    holds(1, Key.of(0));
    kv.setUpdater((key, sum, stored) -> stored.addInPlace(sum));
    kv.push(0, full(1));
    holds(2, Key.of(0));
  }

  @Test
  void whatAnUpdaterThrowsReachesThePusherAndNothingHasChanged() {
    IllegalStateException thrown = new IllegalStateException("enough");
    kv.init(new String[] {"a", "b"}, full(1), full(1));
    kv.setUpdater(
        (key, sum, stored) -> {
          stored.addInPlace(sum);
          if (key.text().equals("b")) {
            throw thrown;
          }
        });
    NDArray value = full(1);
    assertSame(
        thrown,
        assertThrows(
            IllegalStateException.class, () -> kv.push(new String[] {"a", "b"}, value, value)));
    holds(1, Key.of("a"));
    holds(1, Key.of("b"));
    kv.push("a", value);
    holds(2, Key.of("a"));
  }

  @Test
  void errorsOfTheMachineReachThePusherToo() {
    kv.init("w", full(1));
    kv.setUpdater((key, sum, stored) -> endless(0));
    assertThrows(StackOverflowError.class, () -> kv.push("w", full(1)));
    kv.setUpdater(
        (key, sum, stored) -> {
          throw new OutOfMemoryError("as if");
        });
    assertThrows(OutOfMemoryError.class, () -> kv.push("w", full(1)));
    holds(1, Key.of("w"));
  }

  private static int endless(int depth) {
    return endless(depth + 1) + 1;
  }

  @Test
  void anExceptionOfATicketIsThrownWhereItIsWaitedFor() {
    kv.init("w", full(1));
    kv.setUpdater(
        (key, sum, stored) -> {
          throw new IllegalStateException("enough");
        });
    assertThrows(IllegalStateException.class, () -> kv.pushAsync("w", full(1)).await());
    holds(1, Key.of("w"));
  }

  @Test
  void anUpdaterMayUseTheStoreForOtherKeys() {
    kv.init(new String[] {"w", "count"}, full(0), full(0));
    kv.setUpdater(
        (key, sum, stored) -> {
          if (key.text().equals("w")) {
            kv.push("count", full(1));
          }
          stored.addInPlace(sum);
        });
    kv.push("w", full(2));
    kv.push("w", full(2));
    holds(4, Key.of("w"));
    holds(2, Key.of("count"));
  }

  @Test
  void anUpdaterMayNotUseAKeyOfItsOwnCall() {
    kv.init("w", full(0));
    kv.setUpdater((key, sum, stored) -> kv.push("w", full(1)));
    Expect.fails(Code.FAILED_PRECONDITION, "'w'", () -> kv.push("w", full(1)));
    holds(0, Key.of("w"));
  }

  @Test
  void whatAnUpdaterCatchesIsNotThrownAgain() {
    kv.init(new String[] {"w", "v"}, full(0), full(0));
    kv.setUpdater(
        (key, sum, stored) -> {
          assertThrows(KVException.class, () -> kv.push("nobody", sum));
          stored.addInPlace(sum);
        });
    kv.push("w", full(1));
    holds(1, Key.of("w"));
  }

  @Test
  void theArraysOfAnUpdaterAreClosedAfterIt() {
    List<NDArray> kept = new ArrayList<>();
    kv.init("w", full(0));
    kv.setUpdater((key, sum, stored) -> kept.addAll(List.of(sum, stored, stored.slice(0, 1))));
    kv.push("w", full(1));
    Expect.fails(Code.FAILED_PRECONDITION, "closed", () -> kept.get(0).toArray());
    Expect.fails(Code.FAILED_PRECONDITION, "closed", () -> kept.get(1).set(3));
    kept.get(2).set(9);  // a view of its own, of memory that is the store's no more
    holds(0, Key.of("w"));
  }

  @Test
  void anUpdaterCannotCloseItsStoreWhichStaysOpen() {
    kv.init("w", full(0));
    kv.setUpdater(
        (key, sum, stored) -> {
          Expect.fails(Code.FAILED_PRECONDITION, "updater", kv::close);
          stored.set(sum);
        });
    kv.push("w", full(1));
    assertFalse(kv.isClosed());
    holds(1, Key.of("w"));
    kv.close();
    assertTrue(kv.isClosed());
  }

  @Test
  void anUpdaterIsLetGoWithItsStore() {
    Updater first = (key, sum, stored) -> {};
    Updater second = (key, sum, stored) -> stored.set(sum);
    KVStore other = KVStore.create();
    other.setUpdater(first);
    other.setUpdater(second);
    assertTrue(Contexts.isKept(second));
    other.close();
    assertFalse(Contexts.isKept(first) || Contexts.isKept(second));
  }

  @Test
  void aJobTakesProgramsAlone() {
    try (KVStore self = KVStore.builder("dist_sync").option("bootstrap", "self").create()) {
      KVException error =
          assertThrows(KVException.class, () -> self.setUpdater((key, sum, stored) -> {}));
      assertTrue(error.getMessage().startsWith("set_updater"), error.getMessage());
    }
  }
}
