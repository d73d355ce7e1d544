package org.tensorkv;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.bytedeco.javacpp.BytePointer;
import org.bytedeco.javacpp.Pointer;

/**
 * One call of the library: memory for its arguments, and the handles that it uses until it ends.
 *
 * <p>The arguments of a thread's calls lie in one block, those of a call that an updater makes above
 * those of the call that runs the updater. What is too large for the block has memory of its own.
 */
final class Call implements AutoCloseable {
  private static final int BLOCK_BYTES = 8 << 10;
  private static final ThreadLocal<Memory> MEMORY = ThreadLocal.withInitial(Memory::new);

  /** What a thread keeps from call to call. */
  private static final class Memory {
    final ByteBuffer buffer;
    final long address;
    int top;
    Handle[] handles = new Handle[16];
    int handleCount;
    Throwable thrown;  // by an updater, for the call under way

    Memory() {
      Library.require();
      buffer = ByteBuffer.allocateDirect(BLOCK_BYTES).order(ByteOrder.nativeOrder());
      address = addressOf(buffer);
    }
  }

  private final Memory memory = MEMORY.get();
  private final int bottom = memory.top;
  private final int handleBottom = memory.handleCount;
  private List<Long> large = null;
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
      return read(Native.tkv_text_data(text));
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
    String message = read(Native.tkv_error_message(error));
    Native.tkv_error_release(error);
    if (thrown != null) {
      rethrow(thrown);
    }
    throw new KVException(Code.of(code), message);
  }

  /** What an updater has thrown in this call, once. */
  Throwable takeThrown() {
    Throwable thrown = memory.thrown;
    memory.thrown = null;
    return thrown;
  }

  /** What {@link #check} of a code throws. */
  void fails(Throwable thrown) {
    memory.thrown = thrown;
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
  static <T extends Throwable> void rethrow(Throwable thrown) throws T {
    throw (T) thrown;
  }

  // ---- arguments

  /** The object behind a handle, which stays there until the call has ended. */
  long use(Handle handle) {
    long address = handle.enter();
    if (memory.handleCount == memory.handles.length) {
      memory.handles = java.util.Arrays.copyOf(memory.handles, 2 * memory.handleCount);
    }
    memory.handles[memory.handleCount++] = handle;
    return address;
  }

  long use(NDArray array, String what) {
    return use(KVException.required(array, what).handle());
  }

  /** Memory for a struct or a list of them. */
  Block block(long bytes) {
    long rounded = bytes + 7 & ~7L;
    if (rounded <= memory.buffer.capacity() - memory.top) {
      Block block = new Block(memory.buffer, memory.top, memory.address + memory.top);
      memory.top += (int) rounded;
      return block;
    }
    return largeBlock(rounded);
  }

  private Block largeBlock(long bytes) {
    if (bytes > Integer.MAX_VALUE) {
      throw new KVException(
          Code.OUT_OF_RANGE, "call: " + bytes + " bytes, fewer than 2**31 were wanted");
    }
    long address = Native.malloc(bytes);
    if (address == 0) {
      throw new KVException(Code.RESOURCE_EXHAUSTED, "call: no memory for " + bytes + " bytes");
    }
    if (large == null) {
      large = new ArrayList<>();
    }
    large.add(address);
    return new Block(view(address, bytes), 0, address);
  }

  long bytes(byte[] bytes) {
    Block block = block(bytes.length);
    block.buffer.put(block.base, bytes);
    return block.address;
  }

  /** Text for the library; null stays null. */
  long text(String text, String what) {
    return text == null ? 0 : bytes(encode(text, what));
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
    long text = KVException.required(key, what).isText() ? bytes(key.bytes()) : 0;
    return block(16).i64(text).i64(key.number()).address;
  }

  /** A list of {@code tkv_item}. */
  long items(String verb, Item... items) {
    Block list = block(48L * KVException.required(items, verb).length);
    for (Item item : items) {
      KVException.required(item, verb);
      Key key = item.key();
      NDArray[] arrays = item.arrays();
      Block pointers = block(8L * arrays.length);
      for (NDArray array : arrays) {
        if (array == null) {
          throw KVException.invalid(verb + " " + key.quoted() + ": null, an NDArray was wanted");
        }
        pointers.i64(use(array.handle()));
      }
      list.i64(key.isText() ? bytes(key.bytes()) : 0).i64(key.number());
      list.i64(pointers.address).i64(arrays.length);
      list.i32(item.priority()).i64(text(item.mode(), verb));
    }
    return list.address;
  }

  /** A list of {@code tkv_rows_item}. */
  long rowsItems(String verb, RowsItem... items) {
    Block list = block(40L * KVException.required(items, verb).length);
    for (RowsItem item : items) {
      Key key = KVException.required(item, verb).key();
      list.i64(key.isText() ? bytes(key.bytes()) : 0).i64(key.number());
      list.i64(use(item.rows().ids().handle())).i64(use(item.rows().values().handle()));
      list.i32(item.priority()).align();
    }
    return list.address;
  }

  @Override
  public void close() {
    while (memory.handleCount > handleBottom) {
      Handle handle = memory.handles[--memory.handleCount];
      memory.handles[memory.handleCount] = null;
      handle.leave();
    }
    memory.top = bottom;
    if (large != null) {
      large.forEach(Native::free);
    }
  }

  /** Memory that is written, or read, field by field: each is aligned to its own size. */
  static final class Block {
    final ByteBuffer buffer;
    final int base;
    final long address;
    private int next;

    private Block(ByteBuffer buffer, int base, long address) {
      this.buffer = buffer;
      this.base = base;
      this.address = address;
      next = base;
    }

    Block i64(long value) {
      buffer.putLong(place(8), value);
      return this;
    }

    Block i32(int value) {
      buffer.putInt(place(4), value);
      return this;
    }

    Block bool(boolean value) {
      return i32(value ? 1 : 0);
    }

    Block f64(double value) {
      buffer.putDouble(place(8), value);
      return this;
    }

    long i64() {
      return buffer.getLong(place(8));
    }

    int i32() {
      return buffer.getInt(place(4));
    }

    /** Writes the size of the struct that has been written into its first field. */
    long sized() {
      buffer.putLong(base, (next + 7 & ~7) - base);
      return address;
    }

    /** To where the next struct of a list begins. */
    Block align() {
      next = next + 7 & ~7;
      return this;
    }

    private int place(int bytes) {
      int place = next + bytes - 1 & -bytes;
      next = place + bytes;
      return place;
    }
  }

  // ---- memory of the library

  /** Bytes of the library's memory, as Java sees them. */
  static ByteBuffer view(long address, long bytes) {
    return new Foreign(address, bytes).asByteBuffer().order(ByteOrder.nativeOrder());
  }

  private static final class Foreign extends BytePointer {
    Foreign(long address, long bytes) {
      super((Pointer) null);
      this.address = address;
      this.limit = bytes;
      this.capacity = bytes;
    }
  }

  /** Where the memory of a direct buffer begins, whatever its position. */
  static long addressOf(java.nio.Buffer buffer) {
    return new Pointer(buffer).address();
  }

  /** Text that ends with a zero. */
  static String read(long text) {
    byte[] bytes = new byte[(int) Native.strlen(text)];
    if (bytes.length > 0) {
      view(text, bytes.length).get(bytes);
    }
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /** A list of {@code tkv_key}. */
  static List<Key> keys(long list, long count) {
    List<Key> keys = new ArrayList<>();
    ByteBuffer pairs = count == 0 ? null : view(list, 16 * count);
    for (int i = 0; i < count; i++) {
      long text = pairs.getLong(16 * i);
      keys.add(text == 0 ? Key.of(pairs.getLong(16 * i + 8)) : Key.of(read(text)));
    }
    return keys;
  }

  /** UTF-8 that ends with a zero. */
  static byte[] encode(String text, String what) {
    byte[] bytes = new byte[text.length() + 1];
    for (int i = 0; i < text.length(); i++) {
      char character = text.charAt(i);
      if (character == 0 || character >= 0x80) {
        return encodeAny(text, what);
      }
      bytes[i] = (byte) character;
    }
    return bytes;
  }

  private static byte[] encodeAny(String text, String what) {
    if (text.indexOf('\0') >= 0 || !StandardCharsets.UTF_8.newEncoder().canEncode(text)) {
      throw KVException.invalid(what + " '" + text + "': a zero or half of a character in the text");
    }
    return (text + '\0').getBytes(StandardCharsets.UTF_8);
  }
}
