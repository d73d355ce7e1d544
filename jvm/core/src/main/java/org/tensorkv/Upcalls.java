package org.tensorkv;

/**
 * What the library calls in Java, always on a thread that is in one of our calls. Returns an error of
 * the library, or 0; what the machine itself throws here is caught in adapter.h.
 */
final class Upcalls {
  /** Updaters may use the store, and so run in each other; each takes some ten KiB of the stack. */
  private static final int DEPTH_MAX = 16;

  private static final ThreadLocal<int[]> DEPTH = ThreadLocal.withInitial(() -> new int[1]);

  private Upcalls() {}

  static long update(long id, long text, long number, long sum, long stored) {
    Key key = Key.read(text, number);
    int[] depth = DEPTH.get();
    if (depth[0] == DEPTH_MAX) {
      String message = "update %s: %d updaters run in each other already";
      return Call.fail(null, Code.RESOURCE_EXHAUSTED, message.formatted(key.quoted(), DEPTH_MAX));
    }
    depth[0]++;
    try (NDArray sumArray = NDArray.retained(sum);
        NDArray storedArray = NDArray.retained(stored)) {
      ((Updater) Contexts.get(id)).update(key, sumArray, storedArray);
      return 0;
    } catch (Throwable thrown) {
      Code code = thrown instanceof KVException error ? error.code() : Code.ABORTED;
      return Call.fail(thrown, code, "update " + key.quoted() + ": " + thrown);
    } finally {
      depth[0]--;
    }
  }

  static long interrupt() {
    if (!Thread.currentThread().isInterrupted()) {
      return 0;
    }
    return Call.fail(null, Code.CANCELLED, "wait: the thread was interrupted");
  }
}
