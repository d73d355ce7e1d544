package org.tensorkv;

import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;

/**
 * Ends with stores open that threads use, with futures and a log. Arguments: {@code return}, {@code exit}, {@code throw}
 * or {@code update}, whose updater exits, and the type of the store.
 */
final class ExitProgram {
  private static final int THREADS = 3;

  private ExitProgram() {}

  public static void main(String[] arguments) throws InterruptedException {
    Shape shape = Shape.of(1000);
    KVStore.Builder builder = KVStore.builder(arguments[1]).log((level, text) -> {});
    KVStore kv =
        (arguments[1].startsWith("dist") ? builder.option("bootstrap", "self") : builder).create();
    kv.init("w", NDArray.zeros(shape));
    if (!kv.isDistributed()) {
      kv.setUpdater((key, sum, stored) -> stored.addInPlace(sum));
    }
    CountDownLatch inUse = new CountDownLatch(THREADS);
    for (int i = 0; i < THREADS; i++) {
      Thread thread = new Thread(() -> use(kv, shape, inUse));
      thread.setDaemon(true);
      thread.start();
    }
    if (!arguments[0].equals("update")) {  // whose store cannot close
      Runtime.getRuntime().addShutdownHook(new Thread(() -> awaitClose(kv)));
    }
    inUse.await();
    System.out.println("ends");
    switch (arguments[0]) {
      case "exit" -> System.exit(3);
      case "update" -> {
        kv.setUpdater((key, sum, stored) -> System.exit(4));
        kv.push("w", NDArray.ones(shape));
      }
      case "throw" -> throw new IllegalStateException("as asked");
      default -> {}
    }
  }

  /** The end of the machine closes the store. */
  private static void awaitClose(KVStore kv) {
    long begin = System.nanoTime();
    while (!kv.isClosed() && System.nanoTime() - begin < 10_000_000_000L) {
      Thread.onSpinWait();
    }
    System.out.println(kv.isClosed() ? "closed" : "FAULT still open");
  }

  private static void use(KVStore kv, Shape shape, CountDownLatch inUse) {
    NDArray array = NDArray.ones(shape);
    try {
      while (true) {
        kv.push("w", array);
        kv.pullAsync("w", array).toCompletableFuture().join();
        NDArray.ones(shape);
        inUse.countDown();
      }
    } catch (KVException error) {
      tellUnlessClosed(error);
    } catch (CompletionException error) {
      tellUnlessClosed((KVException) error.getCause());
    }
  }

  /** A call that is under way when the store is closed is cancelled, which the next call may tell, too. */
  private static void tellUnlessClosed(KVException error) {
    if (error.code() != Code.FAILED_PRECONDITION && error.code() != Code.CANCELLED) {
      System.out.println("FAULT " + error);
    }
  }
}
