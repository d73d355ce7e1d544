package org.tensorkv;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.ReadOnlyBufferException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

final class NDArrayTest {
  private static final Shape SHAPE = Shape.of(2, 3);

  private static NDArray counting() {
    return NDArray.array(new float[] {1, 2, 3, 4, 5, 6}, SHAPE);
  }

  private static ByteBuffer direct(int bytes) {
    return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
  }

  @Test
  void newArraysAreWhatWasAskedFor() {
    NDArray array = NDArray.full(Shape.of(4), 7, DType.INT32, Context.cpu(2));
    assertEquals(Shape.of(4), array.shape());
    assertEquals(DType.INT32, array.dtype());
    assertEquals(Context.cpu(2), array.context());
    assertEquals(16, array.bytes());
    Expect.all(7, array);
    Expect.all(0, NDArray.zeros(SHAPE));
    Expect.all(1, NDArray.ones(Shape.of()));
    assertEquals("NDArray int32 (4,) cpu(2)", array.toString());
  }

  @ParameterizedTest
  @EnumSource(
      names = {"FLOAT8_E4M3FN", "FLOAT8_E5M2", "COMPLEX64", "BOOL"},
      mode = EnumSource.Mode.EXCLUDE)
  void numbersOfEachDtypeComeBack(DType dtype) {
    NDArray array = NDArray.full(SHAPE, 3, dtype, Context.cpu());
    assertArrayEquals(new float[] {3, 3, 3, 3, 3, 3}, array.toArray());
    assertArrayEquals(new double[] {3, 3, 3, 3, 3, 3}, array.toDoubleArray());
  }

  @Test
  void unsignedNumbersAreNotNegative() {
    ByteBuffer bytes = direct(16);
    bytes.putLong(0, -1).putLong(8, 1);
    assertArrayEquals(
        new double[] {0x1p64, 1}, NDArray.wrap(bytes, DType.UINT64, Shape.of(2)).toDoubleArray());
    assertEquals(255, NDArray.wrap(direct(1).put(0, (byte) -1), DType.UINT8, Shape.of(1)).toScalar());
  }

  @Test
  void elementsGoInAndComeOut() {
    assertArrayEquals(new float[] {1, 2, 3, 4, 5, 6}, counting().toArray());
    assertArrayEquals(
        new double[] {0.1, 0.2}, NDArray.array(new double[] {0.1, 0.2}, Shape.of(2)).toDoubleArray());
    assertArrayEquals(
        new long[] {1L << 60}, NDArray.array(new long[] {1L << 60}, Shape.of(1)).toLongArray());
    assertEquals(7, NDArray.array(new int[] {7}, Shape.of(1)).toScalar());
    Expect.all(9, counting().set(9));
    assertArrayEquals(new float[] {1, 2, 3, 4, 5, 6}, NDArray.zeros(SHAPE).set(counting()).toArray());
  }

  @Test
  void largeArraysGoInAndComeOut() {
    float[] elements = new float[1 << 20];
    for (int i = 0; i < elements.length; i++) {
      elements[i] = i;
    }
    assertArrayEquals(elements, NDArray.array(elements, Shape.of(1 << 10, 1 << 10)).toArray());
  }

  @Test
  void arithmeticIsByElements() {
    NDArray a = counting();
    assertArrayEquals(new float[] {3, 4, 5, 6, 7, 8}, a.add(2).toArray());
    assertArrayEquals(new float[] {0, 1, 2, 3, 4, 5}, a.sub(1).toArray());
    assertArrayEquals(new float[] {1, 4, 9, 16, 25, 36}, a.mul(a).toArray());
    assertArrayEquals(new float[] {.5f, 1, 1.5f, 2, 2.5f, 3}, a.div(2).toArray());
    assertArrayEquals(new float[] {5, 4, 3, 2, 1, 0}, a.applyReversed(Op.SUB, 6).toArray());
    assertArrayEquals(new float[] {1, 1, 0, 0, 0, 0}, a.apply(Op.LESS, 3).toArray());
    Expect.all(0, a.sub(a));
    Expect.all(1, a.div(a));
    assertArrayEquals(new float[] {2, 4, 6, 8, 10, 12}, a.add(a).toArray());
  }

  @Test
  void arithmeticInPlaceReturnsTheArray() {
    NDArray a = counting();
    assertSame(a, a.addInPlace(a).subInPlace(1).mulInPlace(2).divInPlace(4));
    assertArrayEquals(new float[] {.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f}, a.toArray());
    Expect.all(1, a.divInPlace(a.copy()));
    Expect.all(0, a.subInPlace(a.copy()));
    Expect.all(5, a.addInPlace(5).mulInPlace(NDArray.ones(SHAPE)));
  }

  @Test
  void viewsShareMemory() {
    NDArray a = counting();
    a.slice(1, 2).set(0);
    a.at(0).slice(0, 1).set(9);
    a.reshape(Shape.of(6)).slice(1, 2).set(8);
    assertArrayEquals(new float[] {9, 8, 3, 0, 0, 0}, a.toArray());
    assertEquals(Shape.of(3), a.at(1).shape());
    assertEquals(Context.cpu(3), a.withContext(Context.cpu(3)).context());
  }

  @Test
  void aViewOutlivesItsArray() {
    NDArray view;
    try (NDArray a = counting()) {
      view = a.slice(1, 2);
    }
    assertArrayEquals(new float[] {4, 5, 6}, view.toArray());
  }

  @Test
  void copiesDoNotShareMemory() {
    NDArray a = counting();
    NDArray copy = a.copy();
    NDArray there = a.copyTo(Context.cpu(1));
    NDArray target = a.copyTo(NDArray.zeros(SHAPE));
    a.set(0);
    for (NDArray array : new NDArray[] {copy, there, target}) {
      assertArrayEquals(new float[] {1, 2, 3, 4, 5, 6}, array.toArray());
    }
    assertEquals(Context.cpu(1), there.context());
    assertEquals(DType.FLOAT64, a.convert(DType.FLOAT64).dtype());
  }

  @Test
  void aWrappedBufferIsNotCopied() {
    ByteBuffer bytes = direct(24);
    FloatBuffer floats = bytes.asFloatBuffer();
    NDArray array = NDArray.wrap(floats, SHAPE);

    floats.put(0, 5);
    assertEquals(5, array.toArray()[0]);
    array.set(7);
    assertEquals(7, bytes.getFloat(20));
  }

  @Test
  void aWrappedBufferBeginsAtItsPosition() {
    FloatBuffer floats = direct(24).asFloatBuffer().put(new float[] {1, 2, 3, 4, 5, 6}).position(2);
    assertArrayEquals(
        new float[] {3, 4, 5}, NDArray.wrap(floats.limit(5), Shape.of(3)).toArray());
  }

  @Test
  void aReadOnlyBufferIsNotWrittenTo() {
    NDArray array = NDArray.wrap(direct(24).asReadOnlyBuffer(), DType.FLOAT32, SHAPE);
    assertTrue(array.isReadOnly());
    assertThrows(KVException.class, () -> array.set(1));
    assertThrows(ReadOnlyBufferException.class, () -> array.asByteBuffer().put(0, (byte) 1));
    Expect.all(0, array);
  }

  @Test
  void aBufferIsKeptWhileTheLibraryUsesIt() {
    ByteBuffer buffer = direct(24);
    NDArray array = NDArray.wrap(buffer, DType.FLOAT32, SHAPE);
    NDArray view = array.slice(0, 1);
    array.close();
    assertTrue(Contexts.isKept(buffer));
    view.close();
    assertFalse(Contexts.isKept(buffer));
  }

  @Test
  void aViewOfMemoryKeepsTheArray() {
    ByteBuffer bytes;
    try (NDArray array = counting()) {
      bytes = array.asByteBuffer();
      assertEquals(24, bytes.capacity());
      bytes.putFloat(0, 10);
      assertEquals(10, array.toArray()[0]);
    }
    assertEquals(6, bytes.getFloat(20));
    assertEquals(ByteOrder.nativeOrder(), bytes.order());
    assertEquals(2, counting().asFloatBuffer().get(1));
  }

  @Test
  void aViewOfMemoryKeepsWhatTheArrayIsMadeOf() {
    ByteBuffer buffer = direct(24);
    NDArray array = NDArray.wrap(buffer, DType.FLOAT32, SHAPE);
    FloatBuffer view = array.asFloatBuffer();
    array.close();
    assertTrue(Contexts.isKept(buffer));
    assertEquals(0, view.get(5));
  }

  @Test
  void closedArraysAreRefused() {
    NDArray a = counting();
    a.close();
    a.dispose();
    assertTrue(a.isClosed());
    Expect.fails(Code.FAILED_PRECONDITION, "NDArray: closed", a::toArray);
    Expect.fails(Code.FAILED_PRECONDITION, "NDArray: closed", () -> counting().add(a));
    assertEquals(SHAPE, a.shape());
  }

  @Test
  void whatCannotBeRightIsRefused() {
    NDArray a = counting();
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> NDArray.zeros(null));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> NDArray.zeros(SHAPE, null, Context.cpu()));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> a.add(null));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> a.set((NDArray) null));
    Expect.fails(Code.INVALID_ARGUMENT, "null", () -> NDArray.array((float[]) null, SHAPE));
    Expect.fails(Code.INVALID_ARGUMENT, "5 elements, 6", () -> NDArray.array(new float[5], SHAPE));
    Expect.fails(Code.INVALID_ARGUMENT, "(3, 2)", () -> a.add(NDArray.ones(Shape.of(3, 2))));
    Expect.fails(Code.INVALID_ARGUMENT, "", () -> a.reshape(Shape.of(5)));
    Expect.fails(Code.OUT_OF_RANGE, "", () -> a.at(2));
    Expect.fails(Code.OUT_OF_RANGE, "row 9223372036854775807", () -> a.at(Long.MAX_VALUE));
    Expect.fails(Code.OUT_OF_RANGE, "row -9223372036854775808", () -> a.at(Long.MIN_VALUE));
    Expect.fails(Code.INVALID_ARGUMENT, "-1", () -> NDArray.zeros(Shape.of(-1)));
    Expect.fails(Code.INVALID_ARGUMENT, "shape (2, 3)", a::toScalar);
    Expect.fails(Code.INVALID_ARGUMENT, "float32, int64", a::toLongArray);
    Expect.fails(
        Code.INVALID_ARGUMENT, "heap", () -> NDArray.wrap(FloatBuffer.allocate(6), SHAPE));
    Expect.fails(
        Code.INVALID_ARGUMENT, "of 20 bytes", () -> NDArray.wrap(direct(20), DType.FLOAT32, SHAPE));
    Expect.fails(
        Code.INVALID_ARGUMENT,
        "BIG_ENDIAN",
        () -> NDArray.wrap(ByteBuffer.allocateDirect(24).asFloatBuffer(), SHAPE));
    Expect.fails(
        Code.INVALID_ARGUMENT, "more elements", () -> Shape.of(Long.MAX_VALUE, 3).size());
    Expect.fails(Code.OUT_OF_RANGE, "axis 2", () -> SHAPE.get(2));
    assertEquals(3, SHAPE.get(-1));
    assertArrayEquals(new float[] {1, 2, 3, 4, 5, 6}, a.toArray());
  }
}
