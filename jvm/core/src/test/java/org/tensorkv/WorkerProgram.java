package org.tensorkv;

import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** A worker of a job: what each rank gets is told line by line. */
final class WorkerProgram {
  private WorkerProgram() {}

  public static void main(String[] arguments) {
    Shape shape = Shape.of(2, 3);
    try (KVStore kv = KVStore.create("dist_sync")) {
      NDArray out = NDArray.zeros(shape);
      kv.init("w", NDArray.ones(shape));
      kv.push("w", NDArray.full(shape, kv.rank() + 1));
      kv.pull("w", out);
      say(kv, "sum", out);

      Table table = kv.initTable("rows", TableOptions.of(Shape.of(1)));
      table.push(new long[] {7, kv.rank()}, NDArray.ones(Shape.of(2, 1)));
      say(kv, "row", table.pull(7));

      kv.barrier();
      kv.setOptimizer(Optimizer.create("sgd", Map.of("learning_rate", 0.5)));
      kv.pushAsync("w", NDArray.ones(shape)).await();
      kv.pull("w", out);
      say(kv, "sgd", out);
      kv.barrier();
      if (kv.rank() == 0) {
        cancelAWait(kv, out);
      }
      kv.barrier();
      if (kv.rank() == 1) {
        kv.push("w", NDArray.ones(shape));
      }
      kv.pull("w", out);
      say(kv, "later", out);
      try {
        kv.setUpdater((key, sum, stored) -> {});
      } catch (KVException error) {
        System.out.println(kv.rank() + " refused " + error.getMessage());
      }
    }
  }

  /** A pull after a push that the other worker has not made waits for it. */
  private static void cancelAWait(KVStore kv, NDArray out) {
    kv.push("w", NDArray.ones(out.shape()));
    Ticket ticket = kv.pullAsync("w", out);
    CompletableFuture<Void> future = ticket.toCompletableFuture();
    CompletableFuture<String> after = future.handle((nothing, error) -> error.getClass().getName());
    System.out.println("done " + future.isDone() + ", cancelled " + future.cancel(true));
    System.out.println(future.isCancelled() + " " + future.cancel(true) + " " + after.join());
    try {
      ticket.await();
    } catch (KVException error) {
      System.out.println("ticket " + error.code());
    }
    System.out.println("dead " + kv.numDeadNode(7) + kv.numDeadNode(11));
    KVStore own = KVStore.create("dist_sync");
    own.init("w", out);
    own.push("w", out);
    CompletableFuture<Void> lost = own.pullAsync("w", out).toCompletableFuture();
    own.close();
    System.out.println("lost " + lost.handle((nothing, error) -> error).join());
  }

  private static void say(KVStore kv, String what, NDArray array) {
    System.out.println(
        "rank " + kv.rank() + " of " + kv.numWorkers() + " " + what + " " + array.toArray()[0]);
  }
}
