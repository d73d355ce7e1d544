package org.tensorkv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What the library tells by itself: that tickets have ended, and the lines of a log. */
@Timeout(60)
final class EventsTest {
  private static final Shape SHAPE = Shape.of(2, 3);
  private static final String THREAD = "tensorkv-events";

  private static NDArray full(double value) {
    return NDArray.full(SHAPE, value);
  }

  private static KVStore.Builder self() {
    return KVStore.builder("dist_async").option("bootstrap", "self");
  }

  private static List<Thread> threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().equals(THREAD))
        .toList();
  }

  private static void awaitTheEndOfThreads() throws InterruptedException {
    for (Thread thread : threads()) {
      thread.join(TimeUnit.SECONDS.toMillis(30));
      assertFalse(thread.isAlive());
    }
  }

  // ---- futures

  @Test
  void aFutureIsDoneWhenItsCallHasEnded() throws Exception {
    try (KVStore kv = self().create()) {
      kv.init("w", full(1));
      kv.pushAsync("w", full(3)).toCompletableFuture().get(30, TimeUnit.SECONDS);
      NDArray out = full(0);
      CompletableFuture<Double> first =
          kv.pullAsync("w", out)
              .toCompletableFuture()
              .thenApplyAsync(nothing -> out.toDoubleArray()[0]);
      assertEquals(3, first.get(30, TimeUnit.SECONDS));
    }
  }

  @Test
  void aCallThatHasEndedMakesAFutureToo() throws Exception {
    try (KVStore kv = KVStore.create();
        Ticket ticket = kv.barrierAsync()) {
      ticket.await();
      assertNull(ticket.toCompletableFuture().get(30, TimeUnit.SECONDS));
      CompletableFuture<Void> again = ticket.toCompletableFuture();
      again.join();
      assertFalse(again.cancel(true));
      assertFalse(again.isCancelled());
    }
  }

  @Test
  void oneThreadServesAllFuturesAndEndsWithThem() throws Exception {
    int count = 200;
    awaitTheEndOfThreads();  // of another test
    try (KVStore kv = self().log((level, text) -> {}).create()) {  // which is told until the store ends
      kv.init("w", full(0));
      kv.setOptimizer(Optimizer.program("program sum\nw = add value sum\nvalue <- w\n"));
      List<CompletableFuture<Void>> futures = new ArrayList<>();
      for (int i = 0; i < count; i++) {
        try (Ticket ticket = kv.pushAsync("w", full(1))) {
          futures.add(ticket.toCompletableFuture());
        }
        assertEquals(1, threads().size());
        assertTrue(threads().get(0).isDaemon());
      }
      CompletableFuture.allOf(futures.toArray(CompletableFuture[]::new)).get(30, TimeUnit.SECONDS);
      Expect.all(count, kv.pull("w"));
    }
    awaitTheEndOfThreads();
  }

  @Test
  void oneThreadServesFuturesThatFollowEachOther() throws Exception {
    awaitTheEndOfThreads();
    Events.pause = Duration.ofSeconds(10);
    try (KVStore kv = self().create()) {
      kv.init("w", full(0));
      kv.pushAsync("w", full(1)).toCompletableFuture().get(30, TimeUnit.SECONDS);
      List<Thread> first = threads();
      for (int i = 0; i < 20; i++) {
        kv.pushAsync("w", full(1)).toCompletableFuture().get(30, TimeUnit.SECONDS);
        assertEquals(first, threads());
      }
      assertEquals(1, first.size());
    } finally {
      Events.pause = Events.PAUSE;
    }
  }

  // ---- logs

  private record Line(System.Logger.Level level, String text) {}

  @Test
  void aLogIsToldLinesWithTheirLevel() throws Exception {
    BlockingQueue<Line> lines = new LinkedBlockingQueue<>();
    try (KVStore kv = self().log((level, text) -> lines.add(new Line(level, text))).create()) {
      kv.init("w", full(1));
    }
    Line line = lines.poll(30, TimeUnit.SECONDS);
    while (line != null && !line.text().startsWith("worker 0: large operations use")) {
      line = lines.poll(30, TimeUnit.SECONDS);  // the first store of a process tells of its variables before
    }
    assertEquals(System.Logger.Level.DEBUG, line.level());
  }

  @Test
  void aLogThatThrowsDoesNotStopTheOthers() throws Exception {
    CompletableFuture<String> told = new CompletableFuture<>();
    KVStore.Builder bad =
        self()
            .log(
                (level, text) -> {
                  Thread.currentThread().interrupt();
                  throw new IllegalStateException("enough");
                });
    try (KVStore first = bad.create();
        KVStore second = self().log((level, text) -> told.complete(text)).create()) {
      assertTrue(first.isDistributed() && second.isDistributed());
      assertFalse(told.get(30, TimeUnit.SECONDS).isEmpty());
      second.barrierAsync().toCompletableFuture().get(30, TimeUnit.SECONDS);
    }
  }

  @Test
  void aStoreThatIsNotMadeLeavesNoListener() throws Exception {
    for (int i = 0; i < 10; i++) {
      Expect.fails(
          Code.INVALID_ARGUMENT,
          "stalenes",
          () -> self().option("stalenes", 1).log((level, text) -> {}).create());
    }
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> self().log(null));
    awaitTheEndOfThreads();
  }
}
