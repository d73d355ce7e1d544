package org.tensorkv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Several threads on one store, array or ticket: each call is done, or ends with a KVException. */
@Timeout(120)
final class ThreadsTest {
  private static final int THREADS = 4;
  private static final Shape SHAPE = Shape.of(64);

  /** Runs `task` on several threads at once, with `end` on this one; returns what they return. */
  private static <T> List<T> together(Callable<T> task, Runnable end) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(THREADS);
    try {
      CountDownLatch begun = new CountDownLatch(THREADS);
      List<Future<T>> futures = new ArrayList<>();
      for (int i = 0; i < THREADS; i++) {
        futures.add(
            pool.submit(
                () -> {
                  begun.countDown();
                  return task.call();
                }));
      }
      begun.await();
      end.run();
      List<T> results = new ArrayList<>();
      for (Future<T> future : futures) {
        results.add(future.get(60, TimeUnit.SECONDS));
      }
      return results;
    } finally {
      pool.shutdownNow();
    }
  }

  /** Calls until a call fails; returns its code. */
  private static Code untilItFails(Runnable call) {
    while (true) {
      try {
        call.run();
      } catch (KVException error) {
        return error.code();
      }
    }
  }

  @Test
  void pushesOfSeveralThreadsAllCount() throws Exception {
    try (KVStore kv = KVStore.create()) {
      kv.init("w", NDArray.zeros(SHAPE));
      kv.setUpdater((key, sum, stored) -> stored.addInPlace(sum));
      together(
          () -> {
            try (NDArray one = NDArray.ones(SHAPE)) {
              for (int i = 0; i < 200; i++) {
                kv.push("w", one);
              }
            }
            return null;
          },
          () -> {});
      Expect.all(THREADS * 200, kv.pull(Key.of("w")));
    }
  }

  @RepeatedTest(20)
  void aStoreThatIsClosedWhileOthersUseItGivesThemAnError() throws Exception {
    KVStore kv = KVStore.create();
    kv.init("w", NDArray.zeros(SHAPE));
    kv.setUpdater((key, sum, stored) -> stored.addInPlace(sum));
    Callable<Code> use =
        () -> {
          try (NDArray array = NDArray.ones(SHAPE)) {
            return untilItFails(
                () -> {
                  kv.push("w", array);
                  kv.pullAsync("w", array).close();
                  kv.keys();
                  kv.stats();
                });
          }
        };
    assertEquals(Set.of(Code.FAILED_PRECONDITION), Set.copyOf(together(use, kv::close)));
  }

  @RepeatedTest(20)
  void anArrayThatIsClosedWhileOthersUseItGivesThemAnError() throws Exception {
    try (KVStore kv = KVStore.create()) {
      kv.init("w", NDArray.zeros(SHAPE));
      NDArray array = NDArray.ones(SHAPE);
      Callable<Code> use =
          () ->
              untilItFails(
                  () -> {
                    kv.push("w", array);
                    array.addInPlace(1).slice(0, 3).close();
                    array.asByteBuffer().get(0);
                  });
      assertEquals(Set.of(Code.FAILED_PRECONDITION), Set.copyOf(together(use, array::close)));
    }
  }

  @RepeatedTest(20)
  void storesOfAJobAreClosedWhileOthersUseThem() throws Exception {
    KVStore kv = KVStore.builder("dist_async").option("bootstrap", "self").create();
    kv.init("w", NDArray.zeros(SHAPE));
    Callable<Code> use =
        () -> {
          try (NDArray array = NDArray.ones(SHAPE)) {
            return untilItFails(
                () -> {
                  kv.pushAsync("w", array).close();
                  kv.pull("w", array);
                });
          }
        };
    // A pull that is under way when the store is closed is cancelled.
    Set<Code> wanted = Set.of(Code.FAILED_PRECONDITION, Code.CANCELLED);
    assertTrue(wanted.containsAll(together(use, () -> closeOf(kv))));
  }

  /** Closes a store; that tells of a push whose ticket nobody has looked at. */
  private static void closeOf(KVStore kv) {
    try {
      kv.close();
    } catch (KVException error) {
      assertTrue(error.getMessage().contains("an earlier call failed: push"), error.getMessage());
    }
  }

  @Test
  void arraysThatNobodyClosesAreGivenBack() throws Exception {
    int before = Contexts.size();
    for (int i = 0; i < 2000; i++) {
      NDArray.wrap(java.nio.ByteBuffer.allocateDirect(4096), DType.UINT8, Shape.of(4096)).slice(0, 1);
    }
    for (int i = 0; i < 100 && Contexts.size() > before; i++) {
      System.gc();
      Thread.sleep(20);
      NDArray.zeros(SHAPE).close();
    }
    assertTrue(Contexts.size() <= before);
  }

  @Test
  void arraysThatNobodyClosesDoNotFillTheMemory() {
    long most = 0;
    for (int i = 0; i < 400; i++) {
      NDArray.empty(Shape.of(4 << 20));
      most = Math.max(most, Pressure.live());
    }
    assertTrue(most <= 1L << 30, most + " bytes");
  }

  @Test
  void anInterruptedThreadLeavesItsWait() throws Exception {
    CountDownLatch inside = new CountDownLatch(1);
    CountDownLatch done = new CountDownLatch(1);
    ExecutorService pool = Executors.newFixedThreadPool(2);
    try (KVStore kv = KVStore.create();
        NDArray one = NDArray.ones(SHAPE)) {
      kv.init("w", NDArray.zeros(SHAPE));
      kv.setUpdater(
          (key, sum, stored) -> {
            inside.countDown();
            await(done);
          });
      Future<?> holder = pool.submit(() -> kv.push("w", one));
      inside.await();
      Future<Boolean> waiter =
          pool.submit(
              () -> {
                Thread.currentThread().interrupt();
                Expect.fails(Code.CANCELLED, "interrupted", () -> kv.push("w", one));
                return Thread.interrupted();
              });
      try {
        assertTrue(waiter.get(30, TimeUnit.SECONDS));
      } finally {
        done.countDown();
      }
      holder.get(30, TimeUnit.SECONDS);
    } finally {
      pool.shutdown();
    }
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException error) {
      throw new AssertionError(error);
    }
  }
}
