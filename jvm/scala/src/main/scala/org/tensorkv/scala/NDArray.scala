package org.tensorkv.scala

import org.tensorkv.scala.DType.DType
import org.tensorkv.{Code, NDArray => JavaNDArray, Op}

/** A dense tensor. `slice`, `at` and `reshape` give views that share its memory.
  *
  * Equal arrays have the same shape, dtype and elements.
  */
final class NDArray private (val asJava: JavaNDArray) extends NativeResource {

  def shape: Shape = Shape.of(asJava.shape)

  /** The number of elements.
    *
    * Throws a KVException (OUT_OF_RANGE) if an Int does not count them: `asJava.size` does.
    */
  def size: Int = shape.product
  def dtype: DType = DType.ofJava(asJava.dtype)
  def context: Context = Context.of(asJava.context)

  /** The elements in C order, each as the nearest float. */
  def toArray: Array[Float] = asJava.toArray

  /** The elements in C order, each as the nearest double. */
  def toFloat64Array: Array[Double] = asJava.toDoubleArray

  /** The only element. */
  def toScalar: Float = asJava.toScalar().toFloat

  // ---- arithmetic

  def +(other: NDArray): NDArray = apply(Op.ADD, other)
  def +(number: Double): NDArray = apply(Op.ADD, number)
  def -(other: NDArray): NDArray = apply(Op.SUB, other)
  def -(number: Double): NDArray = apply(Op.SUB, number)
  def *(other: NDArray): NDArray = apply(Op.MUL, other)
  def *(number: Double): NDArray = apply(Op.MUL, number)
  def /(other: NDArray): NDArray = apply(Op.DIV, other)
  def /(number: Double): NDArray = apply(Op.DIV, number)
  def unary_- : NDArray = apply(Op.MUL, -1)

  def +=(other: NDArray): NDArray = assign(Op.ADD, other)
  def +=(number: Double): NDArray = assign(Op.ADD, number)
  def -=(other: NDArray): NDArray = assign(Op.SUB, other)
  def -=(number: Double): NDArray = assign(Op.SUB, number)
  def *=(other: NDArray): NDArray = assign(Op.MUL, other)
  def *=(number: Double): NDArray = assign(Op.MUL, number)
  def /=(other: NDArray): NDArray = assign(Op.DIV, other)
  def /=(number: Double): NDArray = assign(Op.DIV, number)

  private def apply(op: Op, other: NDArray): NDArray = NDArray(asJava.apply(op, NDArray.java(other, "compute")))
  private def apply(op: Op, number: Double): NDArray = NDArray(asJava.apply(op, number))

  private def assign(op: Op, other: NDArray): NDArray = {
    asJava.applyInPlace(op, NDArray.java(other, "compute"))
    this
  }

  private def assign(op: Op, number: Double): NDArray = {
    asJava.applyInPlace(op, number)
    this
  }

  // ---- comparison: 1 or 0 for each element, in the dtype of this array

  def >(other: NDArray): NDArray = apply(Op.GREATER, other)
  def >(number: Double): NDArray = apply(Op.GREATER, number)
  def >=(other: NDArray): NDArray = apply(Op.GREATER_EQUAL, other)
  def >=(number: Double): NDArray = apply(Op.GREATER_EQUAL, number)
  def <(other: NDArray): NDArray = apply(Op.LESS, other)
  def <(number: Double): NDArray = apply(Op.LESS, number)
  def <=(other: NDArray): NDArray = apply(Op.LESS_EQUAL, other)
  def <=(number: Double): NDArray = apply(Op.LESS_EQUAL, number)

  // ---- elements

  /** Waits until operations under way on this array have ended. Reading its elements does so by itself. */
  def waitToRead(): Unit = asJava.waitToRead()

  /** Makes all elements `value`. */
  def set(value: Float): NDArray = {
    asJava.set(value.toDouble)
    this
  }

  /** Copies the elements of an array of the same shape and dtype. */
  def set(source: NDArray): NDArray = {
    asJava.set(NDArray.java(source, "set"))
    this
  }

  /** Copies elements in C order. */
  def set(elements: Array[Float]): NDArray = {
    asJava.set(elements)
    this
  }

  /** Copies its elements to `other`, which it returns. */
  def copyTo(other: NDArray): NDArray = Failure.required(other, "copyTo").set(this)

  /** A copy that lives in `ctx`. */
  def copyTo(ctx: Context): NDArray = NDArray(asJava.copyTo(Failure.required(ctx, "copyTo").asJava))

  def copy(): NDArray = NDArray(asJava.copy())

  /** A copy with another float dtype. */
  def asType(dtype: DType): NDArray = NDArray(asJava.convert(DType.asJava(dtype)))

  // ---- views

  /** Rows `start` to before `stop` of the first axis. */
  def slice(start: Int, stop: Int): NDArray = NDArray(asJava.slice(start, stop))
  def slice(range: (Int, Int)): NDArray = slice(range._1, range._2)

  /** Row `i` of the first axis, which stays: its length is 1. */
  def slice(i: Int): NDArray = slice(i, i + 1)

  /** Row `index` of the first axis, without that axis. */
  def at(index: Int): NDArray = NDArray(asJava.at(index))

  def reshape(shape: Shape): NDArray = NDArray(asJava.reshape(Failure.required(shape, "reshape").asJava))
  def reshape(lengths: Array[Int]): NDArray = reshape(Shape(Failure.required(lengths, "reshape").toIndexedSeq: _*))

  // ---- end

  override def dispose(): Unit = asJava.close()
  override def isDisposed: Boolean = asJava.isClosed

  /** Compares shape, dtype and elements. Never throws: an array whose elements cannot be read, such as a disposed one, equals itself alone. */
  override def equals(other: Any): Boolean = other match {
    case array: NDArray => (array eq this) || (array.shape == shape && array.dtype == dtype && asJava.hasElementsOf(array.asJava))
    case _ => false
  }

  /** Of what does not change: equal arrays have equal ones. */
  override def hashCode: Int = (shape, dtype).hashCode

  override def toString: String = asJava.toString
}

object NDArray {

  /** Waits until no operation on any array of this process is under way. */
  def waitall(): Unit = JavaNDArray.waitAll()

  /** Uninitialised; on `cpu(0)` and of float32 where nothing else is asked for. */
  def empty(shape: Shape, ctx: Context = null, dtype: DType = DType.Float32): NDArray =
    NDArray(JavaNDArray.empty(Failure.required(shape, "empty").asJava, DType.asJava(dtype), place(ctx)))
  def empty(shape: Int*): NDArray = empty(Shape(shape: _*))

  def zeros(shape: Shape, ctx: Context = null, dtype: DType = DType.Float32): NDArray = filled("zeros", shape, 0, ctx, dtype)
  def zeros(shape: Int*): NDArray = zeros(Shape(shape: _*))

  def ones(shape: Shape, ctx: Context = null, dtype: DType = DType.Float32): NDArray = filled("ones", shape, 1, ctx, dtype)
  def ones(shape: Int*): NDArray = ones(Shape(shape: _*))

  def full(shape: Shape, value: Float, ctx: Context = null, dtype: DType = DType.Float32): NDArray =
    filled("full", shape, value.toDouble, ctx, dtype)

  /** float32 elements in C order, copied. */
  def array(elements: Array[Float], shape: Shape, ctx: Context = null): NDArray =
    NDArray(JavaNDArray.array(elements, Failure.required(shape, "array").asJava, place(ctx)))

  /** A new array of the rows of all of them, one array's behind the other's.
    *
    * Throws a KVException (UNIMPLEMENTED) for an axis other than the first.
    */
  def concatenate(arrays: Seq[NDArray], axis: Int = 0, alwaysCopy: Boolean = true): NDArray = {
    if (axis != 0) throw Failure(Code.UNIMPLEMENTED, s"concatenate: axis $axis; arrays are joined along the first one, 0")
    if (Failure.required(arrays, "concatenate").isEmpty) throw Failure.invalid("concatenate: no arrays")
    val first = Failure.required(arrays.head, "concatenate")
    for (array <- arrays.map(Failure.required(_, "concatenate"))) {
      if (array.shape.length == 0 || array.shape.drop(1) != first.shape.drop(1) || array.dtype != first.dtype)
        throw Failure.invalid(s"concatenate: ${array.dtype} ${array.shape} behind ${first.dtype} ${first.shape}; only the first axis may differ")
    }
    if (!alwaysCopy && arrays.length == 1) return first
    val all = empty(Shape(arrays.map(_.shape.head).sum) ++ first.shape.drop(1), first.context, first.dtype)
    arrays.foldLeft(0L) { (begin, array) =>
      val end = begin + array.shape.head
      val rows = all.asJava.slice(begin, end)
      try rows.set(array.asJava)
      finally rows.close()
      end
    }
    all
  }
  def concatenate(arrays: NDArray*): NDArray = concatenate(arrays)

  /** An array of Java, which both own: who disposes one disposes the other. */
  def apply(array: JavaNDArray): NDArray = {
    val made = new NDArray(Failure.required(array, "NDArray"))
    ResourceScope.register(made)
    made
  }

  /** As `apply`, of what belongs to no scope. */
  private[scala] def lent(array: JavaNDArray): NDArray = new NDArray(array)

  private[scala] def java(array: NDArray, what: String): JavaNDArray = Failure.required(array, what).asJava

  private def filled(what: String, shape: Shape, value: Double, ctx: Context, dtype: DType): NDArray =
    NDArray(JavaNDArray.full(Failure.required(shape, what).asJava, value, DType.asJava(dtype), place(ctx)))

  private def place(ctx: Context) = (if (ctx == null) Context.defaultCtx else ctx).asJava
}

/** Arithmetic with the number on the left: `1 - array`. */
object NDArrayConversions {
  implicit final class IntScalar(number: Int) extends Scalar(number.toDouble)
  implicit final class FloatScalar(number: Float) extends Scalar(number.toDouble)
  implicit final class DoubleScalar(number: Double) extends Scalar(number)

  sealed abstract class Scalar(number: Double) {
    def +(array: NDArray): NDArray = array + number
    def -(array: NDArray): NDArray = NDArray(array.asJava.applyReversed(Op.SUB, number))
    def *(array: NDArray): NDArray = array * number
    def /(array: NDArray): NDArray = NDArray(array.asJava.applyReversed(Op.DIV, number))
  }
}
