package org.apache

/** `import org.apache.mxnet._` for programs that use MXNet's KVStore and arrays: all names are those of `org.tensorkv.scala`. */
package object mxnet {
  type Context = org.tensorkv.scala.Context
  type KVStore = org.tensorkv.scala.KVStore
  type MXKVStoreUpdater = org.tensorkv.scala.MXKVStoreUpdater
  type MXNetError = org.tensorkv.KVException
  type NDArray = org.tensorkv.scala.NDArray
  type NativeResource = org.tensorkv.scala.NativeResource
  type Optimizer = org.tensorkv.scala.Optimizer
  type ResourceScope = org.tensorkv.scala.ResourceScope
  type Shape = org.tensorkv.scala.Shape

  val Context = org.tensorkv.scala.Context
  val DType = org.tensorkv.scala.DType
  val KVStore = org.tensorkv.scala.KVStore
  val KVStoreServer = org.tensorkv.scala.KVStoreServer
  val NDArray = org.tensorkv.scala.NDArray
  val NDArrayConversions = org.tensorkv.scala.NDArrayConversions
  val ResourceScope = org.tensorkv.scala.ResourceScope
  val Shape = org.tensorkv.scala.Shape
}
