package org.tensorkv;

import java.util.Map;

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
      try {
        kv.setUpdater((key, sum, stored) -> {});
      } catch (KVException error) {
        System.out.println(kv.rank() + " refused " + error.getMessage());
      }
    }
  }

  private static void say(KVStore kv, String what, NDArray array) {
    System.out.println(
        "rank " + kv.rank() + " of " + kv.numWorkers() + " " + what + " " + array.toArray()[0]);
  }
}
