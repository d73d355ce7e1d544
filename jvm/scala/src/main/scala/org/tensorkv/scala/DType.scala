package org.tensorkv.scala

import org.tensorkv.{DType => JavaDType}

/** What the elements of an array are. */
object DType extends Enumeration {
  type DType = Value

  val Float32: Value = of(JavaDType.FLOAT32)
  val Float64: Value = of(JavaDType.FLOAT64)
  val Float16: Value = of(JavaDType.FLOAT16)
  val BFloat16: Value = of(JavaDType.BFLOAT16)
  val Int8: Value = of(JavaDType.INT8)
  val UInt8: Value = of(JavaDType.UINT8)
  val Int16: Value = of(JavaDType.INT16)
  val Int32: Value = of(JavaDType.INT32)
  val Int64: Value = of(JavaDType.INT64)
  val Bool: Value = of(JavaDType.BOOL)
  val Float8E4M3FN: Value = of(JavaDType.FLOAT8_E4M3FN)
  val Float8E5M2: Value = of(JavaDType.FLOAT8_E5M2)
  val UInt16: Value = of(JavaDType.UINT16)
  val UInt32: Value = of(JavaDType.UINT32)
  val UInt64: Value = of(JavaDType.UINT64)
  val Complex64: Value = of(JavaDType.COMPLEX64)

  private def of(dtype: JavaDType): Value = Value(dtype.ordinal, dtype.toString)

  private[scala] def asJava(dtype: DType): JavaDType = JavaDType.values()(dtype.id)
  private[scala] def ofJava(dtype: JavaDType): DType = apply(dtype.ordinal)
}
