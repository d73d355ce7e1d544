package org.tensorkv.scala

import org.tensorkv.Code

class NDArraySuite extends munit.FunSuite {
  private val shape = Shape(2, 3)
  private def counting = NDArray.array(Array(1f, 2f, 3f, 4f, 5f, 6f), shape)
  private def all(array: NDArray): Seq[Float] = array.toArray.toSeq

  test("an array is what was asked for") {
    val array = NDArray.full(Shape(4), 7, Context.cpu(2), DType.Int32)
    assertEquals(array.shape, Shape(4))
    assertEquals(array.dtype, DType.Int32)
    assertEquals(array.context, Context.cpu(2))
    assertEquals(all(array), Seq(7f, 7f, 7f, 7f))
    assertEquals(NDArray.zeros(2, 3).shape, shape)
    assertEquals(NDArray.ones(2).toFloat64Array.toSeq, Seq(1.0, 1.0))
    assertEquals(NDArray.empty(2, 2).size, 4)
    assertEquals(NDArray.ones(shape, dtype = DType.Float64).dtype, DType.Float64)
    assertEquals(shape.toString, "(2,3)")
    assertEquals(Context.gpu(1).toString, "gpu(1)")
    assertEquals(Context.defaultCtx, Context.cpu(0))
  }

  test("every dtype has a name here") {
    assertEquals(DType.values.size, org.tensorkv.DType.values.length)
    for (dtype <- DType.values) assertEquals(DType.ofJava(DType.asJava(dtype)), dtype)
  }

  test("arithmetic with arrays and numbers") {
    import NDArrayConversions._
    val a = counting
    assertEquals(all(a + 1), Seq(2f, 3f, 4f, 5f, 6f, 7f))
    assertEquals(all(a - a), Seq.fill(6)(0f))
    assertEquals(all(a * 2.5f), Seq(2.5f, 5f, 7.5f, 10f, 12.5f, 15f))
    assertEquals(all(a / 2), Seq(.5f, 1f, 1.5f, 2f, 2.5f, 3f))
    assertEquals(all(a / a + a * a - a), Seq(1f, 3f, 7f, 13f, 21f, 31f))
    assertEquals(all(-a), Seq(-1f, -2f, -3f, -4f, -5f, -6f))
    assertEquals(all(6 - a), Seq(5f, 4f, 3f, 2f, 1f, 0f))
    assertEquals(all(2f * a), all(a + a))
    assertEquals(all(1.0 / (1 + (a - a))), Seq.fill(6)(1f))
  }

  test("arithmetic in place changes the array, and its views") {
    val a = counting
    val row = a.at(1)
    a += 1
    a -= NDArray.ones(shape)
    a *= 4
    a /= 2
    a += a
    a -= 1
    a *= NDArray.ones(shape)
    a /= NDArray.ones(shape)
    assertEquals(all(a), Seq(3f, 7f, 11f, 15f, 19f, 23f))
    assertEquals(all(row), Seq(15f, 19f, 23f))
  }

  test("views and copies") {
    val a = counting
    assertEquals(a.slice(1).shape, Shape(1, 3))
    assertEquals(all(a.slice((0, 1))), Seq(1f, 2f, 3f))
    assertEquals(a.reshape(Array(3, 2)).shape, Shape(3, 2))
    a.at(0).set(0)
    assertEquals(all(a), Seq(0f, 0f, 0f, 4f, 5f, 6f))
    val target = NDArray.zeros(shape)
    assert(a.copyTo(target) eq target)
    assertEquals(target, a)
    assertEquals(a.copyTo(Context.cpu(1)).context, Context.cpu(1))
    assertNotEquals(a.copy().set(1), a)
    assertEquals(a.set(Array(6f, 5f, 4f, 3f, 2f, 1f)).at(1).slice(2).toScalar, 1f)
    assertEquals(a.asType(DType.Float16).dtype, DType.Float16)
  }

  test("a disposed array is refused, and disposing twice is not") {
    val a = counting
    a.dispose()
    a.close()
    assert(a.isDisposed)
    assertEquals(intercept[KVException](a + 1).code, Code.FAILED_PRECONDITION)
  }

  test("equality never throws, and an array that cannot be read equals itself alone") {
    val closed = counting
    closed.dispose()
    assert(closed == closed && closed != counting && counting != closed)
    for (dtype <- DType.values) {
      def ones = NDArray.ones(Shape(3), dtype = dtype)
      assertEquals(ones, ones)
      assertNotEquals(ones, NDArray.zeros(Shape(3), dtype = dtype))
    }
    val large = NDArray.zeros(Shape(1, 200000))
    val other = large.copy()
    assertEquals(large, other)
    other.reshape(Shape(200000)).slice(199999).set(1)
    assertNotEquals(large, other)
    assertNotEquals(NDArray(org.tensorkv.NDArray.array(Array(1L << 53), org.tensorkv.Shape.of(1))),
                    NDArray(org.tensorkv.NDArray.array(Array((1L << 53) + 1), org.tensorkv.Shape.of(1))))
  }

  test("a number of elements that an Int does not count is an error") {
    val error = intercept[KVException](Shape(65536, 65536).product)
    assertEquals(error.code, Code.OUT_OF_RANGE)
    assert(error.getMessage.contains("4294967296 elements"))
  }

  test("the shape of one axis is shown with a comma") {
    assertEquals(Shape(4).toString, "(4,)")
    assertEquals(Shape().toString, "()")
  }

  test("errors name the function that was called") {
    for (
      (call, begin) <- Seq[(() => Any, String)](
        (() => NDArray.zeros(null: Shape), "zeros:"),
        (() => NDArray.ones(null: Shape), "ones:"),
        (() => NDArray.array(Array(1f), shape), "array: 1 elements, 6 for the shape (2, 3)"),
        (() => counting.at(2), "at: row 2"),
        (() => counting.set(Array(1f)), "set: 1 elements")
      )
    ) assert(intercept[KVException](call()).getMessage.startsWith(begin))
  }

  test("null and wrong shapes are errors") {
    for (
      call <- Seq[() => Any](
        () => counting + null,
        () => counting.copyTo(null: NDArray),
        () => counting.copyTo(null: Context),
        () => NDArray.zeros(null: Shape),
        () => NDArray.array(null, shape),
        () => NDArray.array(Array(1f), shape),
        () => counting + NDArray.ones(3, 2),
        () => NDArray.ones(shape, Context("tpu"))
      )
    ) assertEquals(intercept[KVException](call()).code, Code.INVALID_ARGUMENT)
  }

  test("a scope disposes what was made in it, but for what it returns") {
    var inside: NDArray = null
    val kept = ResourceScope.using() {
      inside = NDArray.ones(shape)
      ResourceScope.using() {
        List(inside + 1)
      }
    }
    assert(inside.isDisposed)
    assertEquals(all(kept.head), Seq.fill(6)(2f))
    assertEquals(ResourceScope.getCurrentScope, None)
    intercept[IllegalStateException](ResourceScope.using() {
      inside = NDArray.ones(shape)
      throw new IllegalStateException
    })
    assert(inside.isDisposed)
  }
}
