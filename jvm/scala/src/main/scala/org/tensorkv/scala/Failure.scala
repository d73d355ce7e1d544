package org.tensorkv.scala

import org.tensorkv.Code

private[scala] object Failure {
  def apply(code: Code, message: String): KVException = new KVException(code, message)

  def invalid(message: String): KVException = apply(Code.INVALID_ARGUMENT, message)

  /** The argument, unless it is null. */
  def required[A <: AnyRef](argument: A, what: String): A =
    if (argument == null) throw invalid(s"$what: null") else argument
}
