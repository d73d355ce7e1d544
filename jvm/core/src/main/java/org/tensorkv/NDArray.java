package org.tensorkv;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.function.IntToDoubleFunction;
import java.util.stream.IntStream;

/**
 * A dense tensor. Arrays may share memory: {@link #slice}, {@link #at} and {@link #reshape} give views.
 *
 * <p>Memory is given back by {@link #close}, or after the array has become unreachable. Thread-safe
 * but for its elements: who writes them while others read sees what memory holds.
 */
public final class NDArray implements AutoCloseable {
  private static final long COMPARED_AT_ONCE = 1 << 16;

  private final Handle handle;
  private final Shape shape;
  private final DType dtype;
  private final Context context;

  private NDArray(long address, boolean isNew) {
    shape = shapeOf(address);
    dtype = DType.of(Native.tkv_array_dtype(address));
    context = Context.of(Native.array_context(address));
    long counted = isNew ? bytes() : 0;
    handle =
        Handle.of(
            this,
            address,
            "NDArray",
            array -> {
              Native.tkv_array_release(array);
              Pressure.remove(counted);
            });
    Pressure.add(counted);
  }

  /** Owns an array of the library with memory of its own. */
  static NDArray owner(long address) {
    return new NDArray(address, true);
  }

  /** Owns an array of the library whose memory belongs to another, too. */
  private static NDArray view(long address) {
    return new NDArray(address, false);
  }

  /** Shares an array of the library. */
  static NDArray retained(long address) {
    return view(Native.tkv_array_retain(address));
  }

  private static Shape shapeOf(long address) {
    int rank = Native.tkv_array_rank(address);
    if (rank == 0) {
      return Shape.of();
    }
    long[] lengths = new long[rank];
    Memory.view(Native.tkv_array_shape(address), 8L * rank).asLongBuffer().get(lengths);
    return Shape.of(lengths);
  }

  // ---- new arrays

  /** Uninitialised. */
  public static NDArray empty(Shape shape, DType dtype, Context context) {
    try (Call call = new Call()) {
      long lengths = call.shape(shape, "empty");
      int number = KVException.required(dtype, "empty: dtype").number();
      long place = call.context(context, "empty: context");
      call.check(
          Native.tkv_array_empty(lengths, shape.rank(), number, place, call.out(), call.error()));
      return owner(call.outLong());
    }
  }

  /** float32 on {@code cpu(0)}. */
  public static NDArray empty(Shape shape) {
    return empty(shape, DType.FLOAT32, Context.cpu());
  }

  /** All elements are `value`. */
  public static NDArray full(Shape shape, double value, DType dtype, Context context) {
    return full("full", shape, value, dtype, context);
  }

  private static NDArray full(
      String verb, Shape shape, double value, DType dtype, Context context) {
    try (Call call = new Call()) {
      long lengths = call.shape(shape, verb);
      int number = KVException.required(dtype, verb + ": dtype").number();
      long place = call.context(context, verb + ": context");
      call.check(
          Native.tkv_array_full(
              lengths, shape.rank(), number, place, value, call.out(), call.error()));
      return owner(call.outLong());
    }
  }

  /** float32 on {@code cpu(0)}. */
  public static NDArray full(Shape shape, double value) {
    return full(shape, value, DType.FLOAT32, Context.cpu());
  }

  public static NDArray zeros(Shape shape, DType dtype, Context context) {
    return full("zeros", shape, 0, dtype, context);
  }

  /** float32 on {@code cpu(0)}. */
  public static NDArray zeros(Shape shape) {
    return zeros(shape, DType.FLOAT32, Context.cpu());
  }

  public static NDArray ones(Shape shape, DType dtype, Context context) {
    return full("ones", shape, 1, dtype, context);
  }

  /** float32 on {@code cpu(0)}. */
  public static NDArray ones(Shape shape) {
    return ones(shape, DType.FLOAT32, Context.cpu());
  }

  /** float32 elements in C order, copied. */
  public static NDArray array(float[] elements, Shape shape, Context context) {
    int count = KVException.required(elements, "array").length;
    NDArray array = emptyFor(count, shape, DType.FLOAT32, context);
    array.write(count, bytes -> bytes.asFloatBuffer().put(elements));
    return array;
  }

  /** float32 on {@code cpu(0)}. */
  public static NDArray array(float[] elements, Shape shape) {
    return array(elements, shape, Context.cpu());
  }

  /** float64 on {@code cpu(0)}, copied. */
  public static NDArray array(double[] elements, Shape shape) {
    int count = KVException.required(elements, "array").length;
    NDArray array = emptyFor(count, shape, DType.FLOAT64, Context.cpu());
    array.write(count, bytes -> bytes.asDoubleBuffer().put(elements));
    return array;
  }

  /** int32 on {@code cpu(0)}, copied. */
  public static NDArray array(int[] elements, Shape shape) {
    int count = KVException.required(elements, "array").length;
    NDArray array = emptyFor(count, shape, DType.INT32, Context.cpu());
    array.write(count, bytes -> bytes.asIntBuffer().put(elements));
    return array;
  }

  /** int64 on {@code cpu(0)}, copied: ids of rows, for instance. */
  public static NDArray array(long[] elements, Shape shape) {
    int count = KVException.required(elements, "array").length;
    NDArray array = emptyFor(count, shape, DType.INT64, Context.cpu());
    array.write(count, bytes -> bytes.asLongBuffer().put(elements));
    return array;
  }

  /** An array for so many elements, which is not made if the shape has another number of them. */
  private static NDArray emptyFor(int count, Shape shape, DType dtype, Context context) {
    checkCount("array", count, KVException.required(shape, "array: shape"));
    KVException.required(context, "array: context");
    return empty(shape, dtype, context);
  }

  private static void checkCount(String verb, long count, Shape shape) {
    if (count != shape.size()) {
      throw KVException.invalid(
          verb + ": " + count + " elements, " + shape.size() + " for the shape " + shape + " were wanted");
    }
  }

  /**
   * The memory of a direct buffer from its position to its limit, never copied. It is kept until
   * nobody needs it any more; operations see what is written to it. Memory of a segment whose arena is closed
   * by hand is gone before that: such an arena has to outlive the array, which an automatic one does by itself.
   *
   * @param buffer in the machine's byte order; one that is read-only makes a read-only array
   * @throws KVException {@link Code#INVALID_ARGUMENT}: the buffer is not direct, or of another size
   */
  public static NDArray wrap(ByteBuffer buffer, DType dtype, Shape shape) {
    KVException.required(buffer, "wrap");
    KVException.required(dtype, "wrap: dtype");
    return wrap(buffer, 1, dtype, shape);
  }

  /** As the other, of float32. */
  public static NDArray wrap(FloatBuffer buffer, Shape shape) {
    KVException.required(buffer, "wrap");
    if (buffer.order() != ByteOrder.nativeOrder()) {
      throw KVException.invalid("wrap: " + buffer.order() + ", the machine's byte order was wanted");
    }
    return wrap(buffer, Float.BYTES, DType.FLOAT32, shape);
  }

  private static NDArray wrap(Buffer buffer, int unit, DType dtype, Shape shape) {
    long wanted = KVException.required(shape, "wrap: shape").size() * dtype.bytes();
    long found = (long) buffer.remaining() * unit;
    if (!buffer.isDirect() || found != wanted) {
      String kind = buffer.isDirect() ? "direct" : "heap";
      throw KVException.invalid(
          "wrap: a %s buffer of %d bytes, a direct one of %d for %s %s was wanted"
              .formatted(kind, found, wanted, dtype, shape));
    }
    try (Call call = new Call()) {
      long data = Memory.addressOf(buffer) + (long) buffer.position() * unit;
      long lengths = call.shape(shape, "wrap");
      long place = call.context(Context.cpu(), "wrap");
      int readOnly = buffer.isReadOnly() ? 1 : 0;
      Contexts.Kept owner = Contexts.keep(buffer);
      int code =
          Native.tkv_array_wrap(
              data,
              lengths,
              0,
              shape.rank(),
              dtype.number(),
              place,
              readOnly,
              owner.address(),
              Native.release_function(),
              call.out(),
              call.error());
      if (code != Code.OK) {
        owner.drop();
      }
      call.check(code);
      return view(call.outLong());
    }
  }

  // ---- what it is

  public Shape shape() {
    return shape;
  }

  public DType dtype() {
    return dtype;
  }

  public Context context() {
    return context;
  }

  /** The number of elements. */
  public long size() {
    return shape.size();
  }

  /** The number of bytes of its elements. */
  public long bytes() {
    return size() * dtype.bytes();
  }

  public boolean isReadOnly() {
    try (Call call = new Call()) {
      return Native.tkv_array_is_read_only(call.use(handle)) != 0;
    }
  }

  // ---- elements

  /**
   * Its memory, once operations under way are done, in the machine's byte order. The memory is there
   * as long as the buffer, also where the array has been closed.
   *
   * @throws KVException {@link Code#OUT_OF_RANGE}: more than 2**31 - 1 bytes; slices may be had
   */
  public ByteBuffer asByteBuffer() {
    if (bytes() > Integer.MAX_VALUE) {
      throw new KVException(
          Code.OUT_OF_RANGE, "asByteBuffer: " + bytes() + " bytes, fewer than 2**31 were wanted");
    }
    try (Call call = new Call()) {
      long array = call.use(handle);
      int write = Native.tkv_array_is_read_only(array) == 0 ? 1 : 0;
      long longest = Patience.millis(Patience.OF_CALLS);
      call.check(Native.tkv_array_data(array, write, longest, call.out(), call.error()));
      ByteBuffer buffer = bytes() == 0 ? ByteBuffer.allocateDirect(0) : kept(array, call.outLong());
      ByteBuffer view = write == 1 ? buffer : buffer.asReadOnlyBuffer();
      return view.order(ByteOrder.nativeOrder());
    }
  }

  /** A buffer that keeps the array, for itself and for those that are made from it. */
  private ByteBuffer kept(long array, long data) {
    ByteBuffer buffer = Memory.view(data, bytes());
    Handle.of(buffer, Native.tkv_array_retain(array), "ByteBuffer", Native::tkv_array_release);
    return buffer;
  }

  /** {@link #asByteBuffer} of a float32 array. */
  public FloatBuffer asFloatBuffer() {
    if (dtype != DType.FLOAT32) {
      throw KVException.invalid("asFloatBuffer: " + dtype + ", float32 was wanted");
    }
    return asByteBuffer().asFloatBuffer();
  }

  /**
   * The elements in C order, each as the nearest float.
   *
   * @throws KVException {@link Code#INVALID_ARGUMENT}: complex64
   */
  public float[] toArray() {
    return switch (dtype) {
      case FLOAT32 -> {
        float[] elements = new float[count()];
        read(bytes -> bytes.asFloatBuffer().get(elements));
        yield elements;
      }
      case FLOAT16, BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2 -> {
        try (NDArray converted = convert(DType.FLOAT32)) {
          yield converted.toArray();
        }
      }
      default -> {
        double[] wide = toDoubleArray();
        float[] elements = new float[wide.length];
        for (int i = 0; i < wide.length; i++) {
          elements[i] = (float) wide[i];
        }
        yield elements;
      }
    };
  }

  /**
   * The elements in C order, each as the nearest double.
   *
   * @throws KVException {@link Code#INVALID_ARGUMENT}: complex64
   */
  public double[] toDoubleArray() {
    if (isShortFloat()) {
      try (NDArray converted = convert(DType.FLOAT32)) {
        return converted.toDoubleArray();
      }
    }
    double[] elements = new double[count()];
    read(
        bytes -> {
          IntToDoubleFunction element = reader(bytes);
          for (int i = 0; i < elements.length; i++) {
            elements[i] = element.applyAsDouble(i);
          }
        });
    return elements;
  }

  private boolean isShortFloat() {
    return switch (dtype) {
      case FLOAT16, BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2 -> true;
      default -> false;
    };
  }

  /**
   * The elements in C order.
   *
   * @throws KVException {@link Code#INVALID_ARGUMENT}: the dtype is not int64
   */
  public long[] toLongArray() {
    if (dtype != DType.INT64) {
      throw KVException.invalid("toLongArray: " + dtype + ", int64 was wanted");
    }
    long[] elements = new long[count()];
    read(bytes -> bytes.asLongBuffer().get(elements));
    return elements;
  }

  /** Waits until operations under way on this array have ended; reading its elements does, too. */
  public void waitToRead() {
    if (size() == 0) {
      return;
    }
    try (NDArray flat = reshape(Shape.of(size()));
        NDArray first = flat.slice(0, 1)) {
      first.read(bytes -> {});
    }
  }

  /**
   * Waits until no operation on any array of this process is under way, ten minutes at most for each.
   *
   * @throws KVException {@link Code#DEADLINE_EXCEEDED}; {@link Code#UNAVAILABLE}: a device is lost
   */
  public static void waitAll() {
    try (Call call = new Call()) {
      call.check(Native.tkv_wait_all(Patience.millis(Patience.OF_CALLS), call.error()));
    }
  }

  /**
   * Returns true if the other array has the same shape, dtype and elements. NaN differs from NaN.
   * Never throws: the elements of an array that cannot be read, such as a closed one, are not the same.
   */
  public boolean hasElementsOf(NDArray other) {
    if (other == null || !shape.equals(other.shape) || dtype != other.dtype) {
      return false;
    }
    try (NDArray flat = reshape(Shape.of(size()));
        NDArray otherFlat = other.reshape(Shape.of(size()))) {
      for (long begin = 0; begin < size(); begin += COMPARED_AT_ONCE) {
        long end = Math.min(begin + COMPARED_AT_ONCE, size());
        try (NDArray part = flat.slice(begin, end);
            NDArray otherPart = otherFlat.slice(begin, end)) {
          if (!part.isSameAs(otherPart)) {
            return false;
          }
        }
      }
      return true;
    } catch (KVException unreadable) {
      return false;
    }
  }

  private boolean isSameAs(NDArray other) {
    return switch (dtype) {
      case FLOAT16, BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT64 -> {
        double[] found = toDoubleArray();
        double[] wanted = other.toDoubleArray();
        yield IntStream.range(0, found.length).allMatch(i -> found[i] == wanted[i]);
      }
      case FLOAT32, COMPLEX64 -> {
        FloatBuffer found = copyOfBytes().asFloatBuffer();
        FloatBuffer wanted = other.copyOfBytes().asFloatBuffer();
        yield IntStream.range(0, found.limit()).allMatch(i -> found.get(i) == wanted.get(i));
      }
      default -> copyOfBytes().equals(other.copyOfBytes());
    };
  }

  private ByteBuffer copyOfBytes() {
    ByteBuffer copy = ByteBuffer.allocate((int) bytes()).order(ByteOrder.nativeOrder());
    read(bytes -> copy.put(bytes).flip());
    return copy;
  }

  /**
   * The only element.
   *
   * @throws KVException {@link Code#INVALID_ARGUMENT}: there are others, or none
   */
  public double toScalar() {
    if (size() != 1) {
      throw KVException.invalid("toScalar: shape " + shape + ", one element was wanted");
    }
    return toDoubleArray()[0];
  }

  private IntToDoubleFunction reader(ByteBuffer bytes) {
    return switch (dtype) {
      case FLOAT32 -> i -> bytes.getFloat(4 * i);
      case FLOAT64 -> i -> bytes.getDouble(8 * i);
      case INT8 -> bytes::get;
      case UINT8, BOOL -> i -> Byte.toUnsignedInt(bytes.get(i));
      case INT16 -> i -> bytes.getShort(2 * i);
      case UINT16 -> i -> Short.toUnsignedInt(bytes.getShort(2 * i));
      case INT32 -> i -> bytes.getInt(4 * i);
      case UINT32 -> i -> Integer.toUnsignedLong(bytes.getInt(4 * i));
      case INT64 -> i -> bytes.getLong(8 * i);
      case UINT64 -> i -> unsigned(bytes.getLong(8 * i));
      default -> throw KVException.invalid("toArray: " + dtype + ", real numbers were wanted");
    };
  }

  private static double unsigned(long bits) {
    return bits >= 0 ? bits : 2.0 * (bits >>> 1 | bits & 1);  // rounded as the whole would be
  }

  private int count() {
    if (bytes() > Integer.MAX_VALUE) {
      throw new KVException(
          Code.OUT_OF_RANGE, "toArray: " + bytes() + " bytes, fewer than 2**31 were wanted");
    }
    return (int) size();
  }

  private void read(java.util.function.Consumer<ByteBuffer> reader) {
    try (Call call = new Call()) {
      Block block = call.block(bytes());
      call.check(Native.tkv_array_read(call.use(handle), block.address, bytes(), call.error()));
      reader.accept(elements(block, bytes()));
    }
  }

  private void write(long count, java.util.function.Consumer<ByteBuffer> writer) {
    checkCount("set", count, shape);
    try (Call call = new Call()) {
      Block block = call.block(bytes());
      writer.accept(elements(block, bytes()));
      call.check(Native.tkv_array_write(call.use(handle), block.address, bytes(), call.error()));
    }
  }

  private static ByteBuffer elements(Block block, long bytes) {
    return block.buffer.slice(block.base, (int) bytes).order(ByteOrder.nativeOrder());
  }

  /**
   * Copies elements in C order into it.
   *
   * @throws KVException {@link Code#INVALID_ARGUMENT}: it is not float32, or of another size
   */
  public NDArray set(float[] elements) {
    KVException.required(elements, "set");
    if (dtype != DType.FLOAT32) {
      throw KVException.invalid("set: floats, elements of " + dtype + " were wanted");
    }
    write(elements.length, bytes -> bytes.asFloatBuffer().put(elements));
    return this;
  }

  /** Makes all elements `value`. */
  public NDArray set(double value) {
    try (Call call = new Call()) {
      call.check(Native.tkv_array_fill(call.use(handle), value, call.error()));
    }
    return this;
  }

  /** Copies the elements of an array of the same shape and dtype, from wherever it lives. */
  public NDArray set(NDArray source) {
    try (Call call = new Call()) {
      long array = call.use(handle);
      call.check(Native.tkv_array_copy_from(array, call.use(source, "set"), call.error()));
    }
    return this;
  }

  /** Copies its elements to `target`, which it returns. */
  public NDArray copyTo(NDArray target) {
    return KVException.required(target, "copyTo").set(this);
  }

  /** A copy that lives in `context`. */
  public NDArray copyTo(Context context) {
    NDArray copy = empty(shape, dtype, context);
    return copy.set(this);
  }

  public NDArray copy() {
    try (Call call = new Call()) {
      call.check(Native.tkv_array_copy(call.use(handle), call.out(), call.error()));
      return owner(call.outLong());
    }
  }

  /** A copy with another float dtype. */
  public NDArray convert(DType dtype) {
    try (Call call = new Call()) {
      int number = KVException.required(dtype, "convert").number();
      call.check(Native.tkv_array_convert(call.use(handle), number, call.out(), call.error()));
      return owner(call.outLong());
    }
  }

  // ---- views

  /** Rows `begin` to `end` of the first axis, which share its memory. */
  public NDArray slice(long begin, long end) {
    try (Call call = new Call()) {
      call.check(Native.tkv_array_slice(call.use(handle), begin, end, call.out(), call.error()));
      return view(call.outLong());
    }
  }

  /** Row `index` of the first axis, without that axis, sharing its memory. */
  public NDArray at(long index) {
    try (Call call = new Call()) {
      call.check(Native.tkv_array_at(call.use(handle), index, call.out(), call.error()));
      return view(call.outLong());
    }
  }

  /** The same elements in another shape, sharing its memory. */
  public NDArray reshape(Shape shape) {
    try (Call call = new Call()) {
      long lengths = call.shape(shape, "reshape");
      call.check(
          Native.tkv_array_reshape(
              call.use(handle), lengths, shape.rank(), call.out(), call.error()));
      return view(call.outLong());
    }
  }

  /** The same memory where the context has the same kind of memory, else a copy there. */
  public NDArray withContext(Context context) {
    try (Call call = new Call()) {
      long place = call.context(context, "withContext");
      call.check(
          Native.tkv_array_with_context(call.use(handle), place, call.out(), call.error()));
      return view(call.outLong());
    }
  }

  // ---- arithmetic

  public NDArray add(NDArray other) {
    return apply(Op.ADD, other);
  }

  public NDArray add(double number) {
    return apply(Op.ADD, number);
  }

  public NDArray sub(NDArray other) {
    return apply(Op.SUB, other);
  }

  public NDArray sub(double number) {
    return apply(Op.SUB, number);
  }

  public NDArray mul(NDArray other) {
    return apply(Op.MUL, other);
  }

  public NDArray mul(double number) {
    return apply(Op.MUL, number);
  }

  public NDArray div(NDArray other) {
    return apply(Op.DIV, other);
  }

  public NDArray div(double number) {
    return apply(Op.DIV, number);
  }

  /** Adds to its elements, and returns it; so do the others whose names end alike. */
  public NDArray addInPlace(NDArray other) {
    return applyInPlace(Op.ADD, other);
  }

  public NDArray addInPlace(double number) {
    return applyInPlace(Op.ADD, number);
  }

  public NDArray subInPlace(NDArray other) {
    return applyInPlace(Op.SUB, other);
  }

  public NDArray subInPlace(double number) {
    return applyInPlace(Op.SUB, number);
  }

  public NDArray mulInPlace(NDArray other) {
    return applyInPlace(Op.MUL, other);
  }

  public NDArray mulInPlace(double number) {
    return applyInPlace(Op.MUL, number);
  }

  public NDArray divInPlace(NDArray other) {
    return applyInPlace(Op.DIV, other);
  }

  public NDArray divInPlace(double number) {
    return applyInPlace(Op.DIV, number);
  }

  /**
   * {@code this OP other}, as a new array.
   *
   * @throws KVException {@link Code#INVALID_ARGUMENT}: another shape or dtype
   */
  public NDArray apply(Op op, NDArray other) {
    KVException.required(other, "compute");
    return compute(op, other, 0, false, false);
  }

  /** {@code this OP number}, as a new array. */
  public NDArray apply(Op op, double number) {
    return compute(op, null, number, false, false);
  }

  /** {@code number OP this}, as a new array. */
  public NDArray applyReversed(Op op, double number) {
    return compute(op, null, number, true, false);
  }

  /** {@code this OP other} into this. */
  public NDArray applyInPlace(Op op, NDArray other) {
    KVException.required(other, "compute");
    return compute(op, other, 0, false, true);
  }

  /** {@code this OP number} into this. */
  public NDArray applyInPlace(Op op, double number) {
    return compute(op, null, number, false, true);
  }

  private NDArray compute(Op op, NDArray other, double number, boolean reversed, boolean inPlace) {
    try (Call call = new Call()) {
      int what = KVException.required(op, "compute: op").number();
      long array = call.use(handle);
      long second = other == null ? 0 : call.use(other.handle);
      Block operands = call.block(48).i64(0).i64(array).i64(second).f64(number);
      operands.bool(reversed).i64(inPlace ? array : 0);
      call.check(Native.tkv_array_compute(what, operands.sized(), call.out(), call.error()));
      return inPlace ? this : owner(call.outLong());
    }
  }

  // ---- end

  Handle handle() {
    return handle;
  }

  public boolean isClosed() {
    return handle.isClosed();
  }

  /** Gives the memory back, once calls that use it have ended; a second time does nothing. */
  @Override
  public void close() {
    handle.close();
  }

  /** {@link #close}, by MXNet's name. */
  public void dispose() {
    close();
  }

  /** {@code "NDArray float32 (2, 3) cpu(0)"}. */
  @Override
  public String toString() {
    return "NDArray " + dtype + " " + shape + " " + context;
  }
}
