package org.tensorkv;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.function.BiConsumer;

/**
 * Maps keys to tensors that several devices or machines share.
 *
 * <p>Thread-safe. Operations on one key take effect in the order in which one thread issued them. All
 * items of a call are checked before any of them changes anything, and a call that throws has changed
 * nothing. A thread that is interrupted leaves a wait with {@link Code#CANCELLED}; its interrupted
 * status stays.
 *
 * <p>Calls throw {@link KVException}: {@link Code#INVALID_ARGUMENT} for what cannot be right, {@link
 * Code#NOT_FOUND} for a key that is not there, {@link Code#ALREADY_EXISTS} for one that is, {@link
 * Code#FAILED_PRECONDITION} once the store is closed, and in a job of several processes {@link
 * Code#UNAVAILABLE} and {@link Code#DEADLINE_EXCEEDED}.
 *
 * <p>A store that is open when the virtual machine ends is closed then.
 */
public final class KVStore implements AutoCloseable {
  private final Handle handle;

  private KVStore(long address) {
    Handle[] self = new Handle[1];
    handle =
        Handle.of(
            this,
            address,
            "KVStore",
            store -> {
              OpenStores.forget(self[0]);
              Native.tkv_store_release(store);
            });
    self[0] = handle;
    OpenStores.add(handle);
  }

  // ---- to make one

  /** A store of this process. */
  public static KVStore create() {
    return create("local");
  }

  /**
   * A store with the options of the environment.
   *
   * @param type {@code "local"}, {@code "device"}, {@code "dist_sync"}, {@code "dist_async"} and the
   *     others of docs/api.md, in any case
   * @throws KVException {@link Code#INVALID_ARGUMENT}: an unknown type, listing those there are;
   *     {@link Code#FAILED_PRECONDITION}: several processes, and no sign of who else takes part
   */
  public static KVStore create(String type) {
    return builder(type).create();
  }

  /** For a store with options. */
  public static Builder builder(String type) {
    return new Builder(type);
  }

  /** Options of a store, by the names of docs/options.md. */
  public static final class Builder {
    private final String type;
    private final StoreOptions options = new StoreOptions();

    private Builder(String type) {
      this.type = KVException.required(type, "create");
    }

    /**
     * An option: {@code option("staleness", 2)}, {@code option("bootstrap", "self")}.
     *
     * @param value a text, number or boolean
     */
    public Builder option(String name, Object value) {
      options.set(name, value);
      return this;
    }

    /** The variables TKV_* do not count. */
    public Builder ignoreEnvironment() {
      options.ignoreEnvironment();
      return this;
    }

    /**
     * Where the store tells what an operator wants to know, instead of the option {@code log}: {@code
     * log(System.getLogger("tensorkv")::log)}. Lines of all levels come on a thread for them, in
     * order; of those that wait for it, 1,024 are kept.
     */
    public Builder log(BiConsumer<System.Logger.Level, String> log) {
      options.log(KVException.required(log, "log"));
      return this;
    }

    public KVStore create() {
      try (Call call = new Call()) {
        long name = call.text(type, "create");
        StoreOptions.Written written = options.write(call);
        int code = Native.tkv_store_create(name, written.address(), call.out(), call.error());
        if (code != Code.OK) {
          written.drop();
        }
        call.check(code);
        return new KVStore(call.outLong());
      }
    }
  }

  // ---- init

  /** Makes keys, each with a copy of its value: shape, dtype and context stay those of the value. */
  public void init(Item... items) {
    try (Call call = new Call()) {
      long list = Item.write(call, "init", items);
      call.check(Native.tkv_store_init(call.use(handle), list, items.length, call.error()));
    }
  }

  public void init(long key, NDArray value) {
    init(Item.ofCall(Key.of(key), value));
  }

  public void init(String key, NDArray value) {
    init(Item.ofCall(Key.of(key), value));
  }

  public void init(int[] keys, NDArray... values) {
    init(Item.list("init", keysOf(keys, "init"), values));
  }

  public void init(String[] keys, NDArray... values) {
    init(Item.list("init", keysOf(keys, "init"), values));
  }

  // ---- push

  /**
   * For each key: sums its values, and hands the sum to the updater, or stores it where there is none.
   * In a job it may return before the servers have the sum; the memory of wrapped buffers is free then.
   */
  public void push(Item... items) {
    try (Call call = new Call()) {
      long list = Item.write(call, "push", items);
      call.check(Native.tkv_store_push(call.use(handle), list, items.length, call.error()));
    }
  }

  public void push(long key, NDArray... values) {
    push(Item.ofCall(Key.of(key), values));
  }

  public void push(String key, NDArray... values) {
    push(Item.ofCall(Key.of(key), values));
  }

  /** One value for each key. */
  public void push(int[] keys, NDArray... values) {
    push(Item.list("push", keysOf(keys, "push"), values));
  }

  /** One value for each key. */
  public void push(String[] keys, NDArray... values) {
    push(Item.list("push", keysOf(keys, "push"), values));
  }

  // ---- pull

  /** Copies each key's value into its outputs, converting between float dtypes. */
  public void pull(Item... items) {
    try (Call call = new Call()) {
      long list = Item.write(call, "pull", items);
      call.check(Native.tkv_store_pull(call.use(handle), list, items.length, call.error()));
    }
  }

  public void pull(long key, NDArray... outs) {
    pull(Item.ofCall(Key.of(key), outs));
  }

  public void pull(String key, NDArray... outs) {
    pull(Item.ofCall(Key.of(key), outs));
  }

  /** One output for each key. */
  public void pull(int[] keys, NDArray... outs) {
    pull(Item.list("pull", keysOf(keys, "pull"), outs));
  }

  /** One output for each key. */
  public void pull(String[] keys, NDArray... outs) {
    pull(Item.list("pull", keysOf(keys, "pull"), outs));
  }

  /** The key's value as a new array. */
  public NDArray pull(Key key) {
    KeyInfo info;
    try {
      info = describe(key);
    } catch (KVException error) {
      throw new KVException(error.code(), error.getMessage().replaceFirst("^describe", "pull"));
    }
    NDArray out = NDArray.empty(info.shape(), info.dtype(), info.context());
    pull(Item.ofCall(key, out));
    return out;
  }

  /** The key's value as a new array. */
  public NDArray pull(long key) {
    return pull(Key.of(key));
  }

  /** The key's value as a new array. */
  public NDArray pull(String key) {
    return pull(Key.of(key));
  }

  // ---- push and pull in one

  /** Push, then pull, in one pass over memory. An output may be one of the values. */
  public void pushPull(Item[] values, Item[] outs) {
    try (Call call = new Call()) {
      long in = Item.write(call, "pushpull", values);
      long out = Item.write(call, "pushpull", outs);
      call.check(
          Native.tkv_store_pushpull(
              call.use(handle), in, values.length, out, outs.length, call.error()));
    }
  }

  /** The value takes the result. */
  public void pushPull(long key, NDArray value) {
    pushPull(key, value, value);
  }

  /** The value takes the result. */
  public void pushPull(String key, NDArray value) {
    pushPull(key, value, value);
  }

  public void pushPull(long key, NDArray value, NDArray out) {
    pushPull(Key.of(key), value, out);
  }

  public void pushPull(String key, NDArray value, NDArray out) {
    pushPull(Key.of(key), value, out);
  }

  private void pushPull(Key key, NDArray value, NDArray out) {
    pushPull(new Item[] {Item.ofCall(key, value)}, new Item[] {Item.ofCall(key, out)});
  }

  /** Init, then pull of the same keys: every worker gets the values of rank 0. */
  public void broadcast(Item[] values, Item[] outs) {
    try (Call call = new Call()) {
      long in = Item.write(call, "broadcast", values);
      long out = Item.write(call, "broadcast", outs);
      call.check(
          Native.tkv_store_broadcast(
              call.use(handle), in, values.length, out, outs.length, call.error()));
    }
  }

  public void broadcast(long key, NDArray value, NDArray... outs) {
    broadcast(new Item[] {Item.ofCall(Key.of(key), value)}, new Item[] {Item.ofCall(Key.of(key), outs)});
  }

  public void broadcast(String key, NDArray value, NDArray... outs) {
    broadcast(new Item[] {Item.ofCall(Key.of(key), value)}, new Item[] {Item.ofCall(Key.of(key), outs)});
  }

  // ---- calls that are under way when they return

  /** A push whose ticket is done when its round is complete. */
  public Ticket pushAsync(Item... items) {
    try (Call call = new Call()) {
      long list = Item.write(call, "push", items);
      int code =
          Native.tkv_store_push_async(
              call.use(handle), list, items.length, call.out(), call.error());
      return ticket(call, code);
    }
  }

  public Ticket pushAsync(long key, NDArray... values) {
    return pushAsync(Item.ofCall(Key.of(key), values));
  }

  public Ticket pushAsync(String key, NDArray... values) {
    return pushAsync(Item.ofCall(Key.of(key), values));
  }

  /** A pull whose ticket is done when its outputs are written. */
  public Ticket pullAsync(Item... items) {
    try (Call call = new Call()) {
      long list = Item.write(call, "pull", items);
      int code =
          Native.tkv_store_pull_async(
              call.use(handle), list, items.length, call.out(), call.error());
      return ticket(call, code);
    }
  }

  public Ticket pullAsync(long key, NDArray... outs) {
    return pullAsync(Item.ofCall(Key.of(key), outs));
  }

  public Ticket pullAsync(String key, NDArray... outs) {
    return pullAsync(Item.ofCall(Key.of(key), outs));
  }

  public Ticket pushPullAsync(Item[] values, Item[] outs) {
    try (Call call = new Call()) {
      long in = Item.write(call, "pushpull", values);
      long out = Item.write(call, "pushpull", outs);
      int code =
          Native.tkv_store_pushpull_async(
              call.use(handle), in, values.length, out, outs.length, call.out(), call.error());
      return ticket(call, code);
    }
  }

  public Ticket barrierAsync() {
    try (Call call = new Call()) {
      int code = Native.tkv_store_barrier_async(call.use(handle), call.out(), call.error());
      return ticket(call, code);
    }
  }

  /** {@link #save}, written by a thread of its own; returns when every key is kept at its round. */
  public Ticket saveAsync(Path path) {
    try (Call call = new Call()) {
      long text = text(call, path, "save");
      int code = Native.tkv_store_save_async(call.use(handle), text, call.out(), call.error());
      return ticket(call, code);
    }
  }

  /** The ticket of a call; what an updater has thrown in it is thrown by the ticket. */
  private static Ticket ticket(Call call, int code) {
    if (code == Code.OK) {
      return new Ticket(call.outLong(), call.takeThrown());
    }
    call.check(code);
    throw new AssertionError();
  }

  // ---- updates

  /**
   * What combines the sum of a push with the stored value from now on; null: the sum replaces it.
   *
   * @throws KVException {@link Code#UNIMPLEMENTED} or {@link Code#INVALID_ARGUMENT}: a store of
   *     several processes, whose servers run programs: {@link #setOptimizer}
   */
  public void setUpdater(Updater updater) {
    try (Call call = new Call()) {
      long store = call.use(handle);
      if (updater == null) {
        call.check(Native.tkv_store_set_updater(store, 0, 0, 0, call.error()));
        return;
      }
      Contexts.Kept kept = Contexts.keep(updater);
      int code =
          Native.tkv_store_set_updater(
              store,
              Native.update_function(),
              kept.address(),
              Native.release_function(),
              call.error());
      if (code != Code.OK) {
        kept.drop();
      }
      call.check(code);
    }
  }

  /**
   * The stored value is a weight from now on, and the sum its gradient.
   *
   * <p>In a job rank 0 defines the optimizer for all: the others leave the call out, or make the same
   * one. In {@code dist_async} a {@link #barrier} or {@link #init} belongs behind it, for which the
   * others wait.
   */
  public void setOptimizer(Optimizer optimizer) {
    KVException.required(optimizer, "set_optimizer");
    try (Call call = new Call()) {
      call.check(
          Native.tkv_store_set_optimizer(
              call.use(handle), call.use(optimizer.handle()), call.error()));
    }
  }

  /**
   * How this worker's pushes travel from now on; see docs/compression.md.
   *
   * @param type {@code "none"}, {@code "fp16"}, {@code "bf16"}, {@code "int8"}, {@code "2bit"}, {@code
   *     "1bit"}, {@code "topk"}
   * @param threshold of 2bit and 1bit, else 0
   * @param ratio of topk, else 0
   * @param keys a pattern of names; null: all
   */
  public void setGradientCompression(String type, double threshold, double ratio, String keys) {
    KVException.required(type, "set_gradient_compression");
    try (Call call = new Call()) {
      long name = call.text(type, "set_gradient_compression");
      long pattern = call.text(keys, "set_gradient_compression");
      call.check(
          Native.tkv_store_set_compression(
              call.use(handle), name, threshold, ratio, pattern, call.error()));
    }
  }

  /** As the other, of all keys. */
  public void setGradientCompression(String type, double threshold) {
    setGradientCompression(type, threshold, 0, null);
  }

  // ---- tables

  /** Makes a key that is kept row by row. */
  public Table initTable(Key key, TableOptions options) {
    KVException.required(options, "init_table");
    try (Call call = new Call()) {
      call.check(
          Native.tkv_store_init_table(
              call.use(handle), call.key(key, "init_table"), options.write(call), call.error()));
      return new Table(this, key);
    }
  }

  public Table initTable(long key, TableOptions options) {
    return initTable(Key.of(key), options);
  }

  public Table initTable(String key, TableOptions options) {
    return initTable(Key.of(key), options);
  }

  /** A table that {@link #initTable} has made. */
  public Table table(Key key) {
    return new Table(this, key);
  }

  public Table table(long key) {
    return table(Key.of(key));
  }

  public Table table(String key) {
    return table(Key.of(key));
  }

  /** Sums rows of each table, each id by itself, and hands them to the updater or stores them. */
  public void pushRows(RowsItem... items) {
    try (Call call = new Call()) {
      long list = RowsItem.write(call, "push_rows", items);
      call.check(Native.tkv_store_push_rows(call.use(handle), list, items.length, call.error()));
    }
  }

  /** Writes the rows of each item's ids into its values. */
  public void pullRows(RowsItem... items) {
    try (Call call = new Call()) {
      long list = RowsItem.write(call, "pull_rows", items);
      call.check(Native.tkv_store_pull_rows(call.use(handle), list, items.length, call.error()));
    }
  }

  public Ticket pushRowsAsync(RowsItem... items) {
    try (Call call = new Call()) {
      long list = RowsItem.write(call, "push_rows", items);
      int code =
          Native.tkv_store_push_rows_async(
              call.use(handle), list, items.length, call.out(), call.error());
      return ticket(call, code);
    }
  }

  public Ticket pullRowsAsync(RowsItem... items) {
    try (Call call = new Call()) {
      long list = RowsItem.write(call, "pull_rows", items);
      int code =
          Native.tkv_store_pull_rows_async(
              call.use(handle), list, items.length, call.out(), call.error());
      return ticket(call, code);
    }
  }

  // ---- on disk

  /**
   * Saves values and states of all keys as a new snapshot in a folder; see docs/snapshots.md.
   *
   * @return the path of the snapshot; empty on a rank that has nothing to do
   */
  public String save(Path path) {
    try (Call call = new Call()) {
      long text = text(call, path, "save");
      call.check(Native.tkv_store_save(call.use(handle), text, call.out(), call.error()));
      return call.outText();
    }
  }

  /** Puts values and states back from the newest snapshot of a folder. */
  public void load(Path path) {
    try (Call call = new Call()) {
      long text = text(call, path, "load");
      call.check(Native.tkv_store_load(call.use(handle), text, call.error()));
    }
  }

  /** Makes the keys of a snapshot, and loads it. */
  public void restore(Path path) {
    try (Call call = new Call()) {
      long text = text(call, path, "restore");
      call.check(Native.tkv_store_restore(call.use(handle), text, call.error()));
    }
  }

  /** Whether {@link #load} would find a snapshot there. */
  public static boolean hasSnapshot(Path path) {
    try (Call call = new Call()) {
      long text = text(call, path, "has_snapshot");
      call.check(Native.tkv_store_has_snapshot(text, call.out(), call.error()));
      return call.outInt() != 0;
    }
  }

  /** What the optimizer keeps beside the values, as one file. */
  public void saveOptimizerStates(Path file) {
    try (Call call = new Call()) {
      long text = text(call, file, "save_optimizer_states");
      call.check(Native.tkv_store_save_states(call.use(handle), text, call.error()));
    }
  }

  public void loadOptimizerStates(Path file) {
    try (Call call = new Call()) {
      long text = text(call, file, "load_optimizer_states");
      call.check(Native.tkv_store_load_states(call.use(handle), text, call.error()));
    }
  }

  private static long text(Call call, Path path, String verb) {
    return call.text(KVException.required(path, verb).toString(), verb);
  }

  // ---- what it is

  /** The type that it was made with. */
  public String type() {
    try (Call call = new Call()) {
      call.check(Native.tkv_store_type(call.use(handle), call.out(), call.error()));
      return call.outText();
    }
  }

  /** Of this worker, from 0. */
  public int rank() {
    try (Call call = new Call()) {
      return Native.tkv_store_rank(call.use(handle));
    }
  }

  public int numWorkers() {
    try (Call call = new Call()) {
      return Native.tkv_store_num_workers(call.use(handle));
    }
  }

  /** Whether several processes may take part. */
  public boolean isDistributed() {
    try (Call call = new Call()) {
      return Native.tkv_store_is_distributed(call.use(handle)) != 0;
    }
  }

  /**
   * How many processes of the job are dead, as far as the head has said; 0 in a store of one process.
   *
   * @param node a sum of 1 (the head), 2 (all servers) and 4 (all workers); or one process by MXNet's
   *     number of it: {@code 8 + 2 * rank} of a server, {@code 9 + 2 * rank} of a worker
   * @throws KVException {@link Code#INVALID_ARGUMENT}: no such number
   */
  public int numDeadNode(int node) {
    try (Call call = new Call()) {
      call.check(
          Native.tkv_store_num_dead_node(call.use(handle), node, call.out(), call.error()));
      return call.outInt();
    }
  }

  /**
   * Returns true if this worker goes on where an earlier process of it was: it was started again,
   * and a worker had pushed before. If none had, its program begins as the first time.
   */
  public boolean hasRejoined() {
    try (Call call = new Call()) {
      return Native.tkv_store_has_rejoined(call.use(handle)) != 0;
    }
  }

  /** Waits until every worker has come here. */
  public void barrier() {
    try (Call call = new Call()) {
      call.check(Native.tkv_store_barrier(call.use(handle), call.error()));
    }
  }

  /** The number of this worker's last push of the key. */
  public long round(Key key) {
    try (Call call = new Call()) {
      long pair = call.key(key, "round");
      call.check(Native.tkv_store_round(call.use(handle), pair, call.out(), call.error()));
      return call.outLong();
    }
  }

  /** The number of keys. */
  public long size() {
    try (Call call = new Call()) {
      call.check(Native.tkv_store_size(call.use(handle), call.out(), call.error()));
      return call.outLong();
    }
  }

  public boolean contains(Key key) {
    try (Call call = new Call()) {
      long pair = call.key(key, "contains");
      call.check(Native.tkv_store_contains(call.use(handle), pair, call.out(), call.error()));
      return call.outInt() != 0;
    }
  }

  /** The keys in the order of init. */
  public List<Key> keys() {
    try (Call call = new Call()) {
      call.check(Native.tkv_store_keys(call.use(handle), call.out(), call.error()));
      long keys = call.outLong();
      try {
        return Key.list(Native.tkv_keys_data(keys), Native.tkv_keys_size(keys));
      } finally {
        Native.tkv_keys_release(keys);
      }
    }
  }

  public KeyInfo describe(Key key) {
    try (Call call = new Call()) {
      long pair = call.key(key, "describe");
      Block info = call.block(KeyInfo.BYTES).i64(KeyInfo.BYTES);
      call.check(Native.tkv_store_describe(call.use(handle), pair, info.address, call.error()));
      return KeyInfo.read(info);
    }
  }

  /** Removes a key. In a job every worker calls it, between two barriers. */
  public void delete(Key key) {
    try (Call call = new Call()) {
      long pair = call.key(key, "delete");
      call.check(Native.tkv_store_delete(call.use(handle), pair, call.error()));
    }
  }

  /** What it has done and what it waits for, as JSON: the fields of docs/api.md, kv.stats(). */
  public String stats() {
    try (Call call = new Call()) {
      call.check(Native.tkv_store_stats(call.use(handle), call.out(), call.error()));
      return call.outText();
    }
  }

  /** From now on it is noted when each push, pull and update begins and how long it takes. */
  public void startTrace() {
    try (Call call = new Call()) {
      call.check(Native.tkv_store_start_trace(call.use(handle), call.error()));
    }
  }

  /** Nothing more is noted until {@link #startTrace}. */
  public void pauseTrace() {
    try (Call call = new Call()) {
      call.check(Native.tkv_store_pause_trace(call.use(handle), call.error()));
    }
  }

  /** Ends the trace and writes it to a file of Chrome's trace events. */
  public void writeTrace(Path file) {
    try (Call call = new Call()) {
      long text = text(call, file, "write_trace");
      call.check(Native.tkv_store_write_trace(call.use(handle), text, call.error()));
    }
  }

  // ---- end

  public boolean isClosed() {
    return handle.isClosed();
  }

  /** Frees all values; calls of other threads end with an error. A second time does nothing. */
  @Override
  public void close() {
    OpenStores.close(handle, false);
  }

  /** The same where the program has failed: for the others of a job it is dead, and has not left. */
  public void closeAfterFailure() {
    OpenStores.close(handle, true);
  }

  /** {@code "KVStore local, rank 0 of 1"}. */
  @Override
  public String toString() {
    return isClosed() ? "KVStore, closed" : "KVStore " + type() + ", rank " + rank() + " of " + numWorkers();
  }

  long use(Call call) {
    return call.use(handle);
  }

  private static Key[] keysOf(int[] keys, String verb) {
    return Arrays.stream(KVException.required(keys, verb)).mapToObj(Key::of).toArray(Key[]::new);
  }

  private static Key[] keysOf(String[] keys, String verb) {
    return Arrays.stream(KVException.required(keys, verb)).map(Key::of).toArray(Key[]::new);
  }

  // ---- processes and this build

  /**
   * Serves as the environment says, until every worker has left.
   *
   * @throws KVException {@link Code#FAILED_PRECONDITION}: this process is none of a job's servers
   */
  public static void runServer() {
    try (Call call = new Call()) {
      long options = new StoreOptions().write(call).address();
      call.check(Native.tkv_server_run(options, call.error()));
    }
  }

  /** {@code "worker"}, {@code "server"} or {@code "head"} in a launched job, else {@code ""}. */
  public static String role() {
    try (Call call = new Call()) {
      call.check(Native.tkv_process_role(call.out(), call.error()));
      return call.outText();
    }
  }

  /** {@code "0.1.0"}. */
  public static String version() {
    Library.require();
    return Memory.text(Native.tkv_version());
  }

  /** Lines "name = value" about build, machine and options in force. */
  public static String config() {
    try (Call call = new Call()) {
      call.check(Native.tkv_config(call.out(), call.error()));
      return call.outText();
    }
  }
}
