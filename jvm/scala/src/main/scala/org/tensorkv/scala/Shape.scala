package org.tensorkv.scala

import org.tensorkv.{Shape => JavaShape}

/** The lengths of an array's axes. */
final case class Shape(toVector: Vector[Int]) {

  def apply(axis: Int): Int = toVector(axis)
  def length: Int = toVector.length
  def toArray: Array[Int] = toVector.toArray

  /** The number of elements. */
  def product: Int = toVector.product

  /** `(2,3)`, as MXNet has it. */
  override def toString: String = toVector.mkString("(", ",", ")")

  private[scala] def asJava: JavaShape = JavaShape.of(toVector.map(_.toLong): _*)
}

object Shape {
  def apply(lengths: Int*): Shape = new Shape(lengths.toVector)

  private[scala] def of(shape: JavaShape): Shape = new Shape(shape.toArray.map(Math.toIntExact).toVector)
}
