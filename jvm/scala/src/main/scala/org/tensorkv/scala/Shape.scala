package org.tensorkv.scala

import org.tensorkv.{Code, Shape => JavaShape}

/** The lengths of an array's axes. */
final case class Shape(toVector: Vector[Int]) {

  def apply(axis: Int): Int = toVector(axis)
  def head: Int = toVector.head
  def drop(axes: Int): Shape = new Shape(toVector.drop(axes))
  def slice(from: Int, end: Int): Shape = new Shape(toVector.slice(from, end))
  def ++(other: Shape): Shape = new Shape(toVector ++ other.toVector)

  /** The number of axes. */
  def length: Int = toVector.length

  /** The number of axes, as MXNet has it; `product` counts elements. */
  def size: Int = toVector.length
  def toArray: Array[Int] = toVector.toArray

  /** The number of elements.
    *
    * Throws a KVException (OUT_OF_RANGE) if an Int does not count them.
    */
  def product: Int = {
    val elements = asJava.size
    if (!elements.isValidInt) throw Failure(Code.OUT_OF_RANGE, s"Shape $this: $elements elements, more than an Int counts; `asJava.size` of the array is a Long")
    elements.toInt
  }

  /** `(2,3)` and `(2,)`. */
  override def toString: String = toVector.mkString("(", ",", if (length == 1) ",)" else ")")

  private[scala] def asJava: JavaShape = JavaShape.of(toVector.map(_.toLong): _*)
}

object Shape {
  def apply(lengths: Int*): Shape = new Shape(lengths.toVector)
  def apply(lengths: Iterable[Int]): Shape = new Shape(lengths.toVector)
  def apply(lengths: Array[Int]): Shape = new Shape(Failure.required(lengths, "Shape").toVector)

  private[scala] def of(shape: JavaShape): Shape = new Shape(shape.toArray.map(Math.toIntExact).toVector)
}
