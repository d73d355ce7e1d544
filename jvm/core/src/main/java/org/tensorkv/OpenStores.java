package org.tensorkv;

import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** The stores that are open: those that are left when the machine ends are closed then. */
final class OpenStores {
  private static final Set<Handle> OPEN = ConcurrentHashMap.newKeySet();

  static {
    try {
      Runtime.getRuntime().addShutdownHook(new Thread(OpenStores::closeAll, "tensorkv-close"));
    } catch (IllegalStateException isEndingAlready) {
      // A store that is made now ends with the process.
    }
  }

  private OpenStores() {}

  static void add(Handle store) {
    OPEN.add(store);
  }

  /**
   * Closes a store, whose calls under way end with an error.
   *
   * @param hasFailed the program has: for the others of a job it is dead, and has not left
   */
  static void close(Handle store, boolean hasFailed) {
    if (!OPEN.remove(store)) {
      return;
    }
    boolean isClosed = true;
    try (Call call = new Call()) {
      int code = Native.tkv_store_close(call.use(store), hasFailed ? 1 : 0, call.error());
      isClosed = code == Code.OK || !isOpen(store);  // an updater of the store cannot close it
      call.check(code);
    } finally {
      if (isClosed) {
        store.close();
      } else {
        OPEN.add(store);
      }
    }
  }

  private static boolean isOpen(Handle store) {
    try (Call call = new Call()) {
      return Native.tkv_store_size(call.use(store), call.out(), 0) == Code.OK;
    }
  }

  /** What the library has given back. */
  static void forget(Handle store) {
    OPEN.remove(store);
  }

  /**
   * Closes them side by side. What has not closed in time ends with the process: a call under way may
   * be of the thread that has asked for the exit, and waits for it.
   */
  private static void closeAll() {
    List<Thread> closing = OPEN.stream().map(OpenStores::startClose).toList();
    long end = System.nanoTime() + Patience.OF_THE_END.toNanos();
    try {
      for (Thread thread : closing) {
        TimeUnit.NANOSECONDS.timedJoin(thread, end - System.nanoTime());
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  private static Thread startClose(Handle store) {
    Thread thread = new Thread(() -> closeAtExit(store), "tensorkv-close");
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  private static void closeAtExit(Handle store) {
    try {
      close(store, false);
    } catch (KVException error) {
      System.getLogger("org.tensorkv").log(System.Logger.Level.WARNING, "close at exit", error);
    }
  }
}
