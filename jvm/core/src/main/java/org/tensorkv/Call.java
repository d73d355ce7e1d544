package org.tensorkv;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * One call of the library: its arguments and results, and the handles that it uses until it ends.
 * Belongs to its thread.
 */
final class Call implements AutoCloseable {
  private static final ThreadLocal<State> STATE = ThreadLocal.withInitial(State::new);

  /** What a thread keeps from call to call. */
  private static final class State {
    final Arena arena;
    Handle[] handles = new Handle[16];  // of the calls under way, the innermost last
    int handleCount;
    Throwable thrown;  // by an updater, for the call under way

    State() {
      Library.require();
      arena = new Arena();
    }
  }

  private final State state = STATE.get();
  private final int top = state.arena.top();
  private final int largeCount = state.arena.largeCount();
  private final int handleCount = state.handleCount;
  private final Block slots;

  Call() {
    slots = block(16);
    slots.i64(0).i64(0);
  }

  // ---- results

  /** Where the library writes its error. */
  long error() {
    return slots.address;
  }

  /** Where the library writes a result of at most eight bytes. */
  long out() {
    return slots.address + 8;
  }

  long outLong() {
    return slots.buffer.getLong(slots.base + 8);
  }

  int outInt() {
    return slots.buffer.getInt(slots.base + 8);
  }

  double outDouble() {
    return slots.buffer.getDouble(slots.base + 8);
  }

  /** The text that the call has handed out. */
  String outText() {
    long text = outLong();
    try {
      return Memory.text(Native.tkv_text_data(text));
    } finally {
      Native.tkv_text_release(text);
    }
  }

  /**
   * Throws where the call has failed: what an updater has thrown as it is, else the library's error.
   */
  void check(int code) {
    Throwable thrown = takeThrown();
    if (code == Code.OK) {
      return;
    }
    long error = slots.buffer.getLong(slots.base);
    String message = Memory.text(Native.tkv_error_message(error));
    Native.tkv_error_release(error);
    if (thrown != null) {
      rethrow(thrown);
    }
    throw new KVException(Code.of(code), message);
  }

  /** What an updater has thrown in this call, once. */
  Throwable takeThrown() {
    Throwable thrown = state.thrown;
    state.thrown = null;
    return thrown;
  }

  /** What {@link #check} of a code throws. */
  void fails(Throwable thrown) {
    state.thrown = thrown;
  }

  /** An error of the library for the call that this thread is in. */
  static long fail(Throwable thrown, Code code, String message) {
    try (Call call = new Call()) {
      call.fails(thrown);
      byte[] bytes = (message.replace('\0', ' ') + '\0').getBytes(StandardCharsets.UTF_8);
      return Native.tkv_error_create(code.number(), call.bytes(bytes));
    }
  }

  @SuppressWarnings("unchecked")
  private static <T extends Throwable> void rethrow(Throwable thrown) throws T {
    throw (T) thrown;
  }

  // ---- arguments

  /** The object behind a handle, which stays there until the call has ended. */
  long use(Handle handle) {
    long address = handle.enter();
    if (state.handleCount == state.handles.length) {
      state.handles = Arrays.copyOf(state.handles, 2 * state.handleCount);
    }
    state.handles[state.handleCount++] = handle;
    return address;
  }

  long use(NDArray array, String what) {
    return use(KVException.required(array, what).handle());
  }

  /** Memory for a struct or a list of them. */
  Block block(long bytes) {
    return state.arena.take(bytes);
  }

  long bytes(byte[] bytes) {
    return block(bytes.length).bytes(bytes).address;
  }

  /** Text for the library; null stays null. */
  long text(String text, String what) {
    return text == null ? 0 : bytes(Memory.encode(text, what));
  }

  long shape(Shape shape, String what) {
    long[] lengths = KVException.required(shape, what).toArray();
    Block block = block(8L * lengths.length);
    for (long length : lengths) {
      block.i64(length);
    }
    return block.address;
  }

  long context(Context context, String what) {
    return block(8).i64(KVException.required(context, what).packed()).address;
  }

  long key(Key key, String what) {
    Block block = block(Key.BYTES);
    KVException.required(key, what).write(this, block);
    return block.address;
  }

  @Override
  public void close() {
    while (state.handleCount > handleCount) {
      Handle handle = state.handles[--state.handleCount];
      state.handles[state.handleCount] = null;
      handle.leave();
    }
    state.arena.release(top, largeCount);
  }
}
