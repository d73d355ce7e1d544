package org.tensorkv;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Scanner;

/**
 * The Java side of bench/jvm.py. Reads lines and answers each with one:
 *
 * <ul>
 *   <li>{@code BYTES COUNT}: nanoseconds of a push and a pull through direct buffers
 *   <li>{@code call COUNT}: nanoseconds of the cheapest native call
 *   <li>{@code heap COUNT}: bytes by which the heap has grown after so many pushes and pulls, and bytes
 *       of objects that each pair has made
 * </ul>
 */
final class Bench {
  private static final int REPETITIONS = 5;
  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  private Bench() {}

  public static void main(String[] arguments) {
    Scanner scanner = new Scanner(System.in);
    while (scanner.hasNext()) {
      String what = scanner.next();
      long count = scanner.nextLong();
      System.out.println(
          switch (what) {
            case "call" -> "" + call(count);
            case "heap" -> heap(count);
            default -> "" + pair(Integer.parseInt(what), count);
          });
    }
  }

  private static NDArray wrap(int bytes) {
    ByteBuffer buffer = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    return NDArray.wrap(buffer, DType.FLOAT32, Shape.of(bytes / 4));
  }

  private static double pair(int bytes, long count) {
    try (KVStore kv = KVStore.create();
        NDArray value = wrap(bytes).set(1);
        NDArray out = wrap(bytes)) {
      kv.init("w", value);
      double best = Double.POSITIVE_INFINITY;
      for (int repetition = 0; repetition < REPETITIONS; repetition++) {
        long begin = System.nanoTime();
        pairs(kv, value, out, count);
        best = Math.min(best, (double) (System.nanoTime() - begin) / count);
      }
      return out.toArray()[bytes / 4 - 1] == 1 ? best : -1;
    }
  }

  private static void pairs(KVStore kv, NDArray value, NDArray out, long count) {
    for (long i = 0; i < count; i++) {
      kv.push("w", value);
      kv.pull("w", out);
    }
  }

  private static double call(long count) {
    try (Call call = new Call()) {
      long text = call.text("", "bench");
      double best = Double.POSITIVE_INFINITY;
      long sum = 0;
      for (int repetition = 0; repetition < REPETITIONS; repetition++) {
        long begin = System.nanoTime();
        for (long i = 0; i < count; i++) {
          sum += Native.strlen(text);
        }
        best = Math.min(best, (double) (System.nanoTime() - begin) / count);
      }
      return sum == 0 ? best : -1;
    }
  }

  private static String heap(long count) {
    try (KVStore kv = KVStore.create();
        NDArray value = wrap(1024);
        NDArray out = wrap(1024)) {
      kv.init("w", value);
      pairs(kv, value, out, count / 10);
      long before = used();
      long made = THREADS.getCurrentThreadAllocatedBytes();
      pairs(kv, value, out, count);
      made = THREADS.getCurrentThreadAllocatedBytes() - made;
      return (used() - before) + " " + made / count;
    }
  }

  private static long used() {
    System.gc();
    System.gc();
    Runtime runtime = Runtime.getRuntime();
    return runtime.totalMemory() - runtime.freeMemory();
  }
}
