package org.tensorkv.scala

import org.tensorkv.{Context => JavaContext}

/** Where an array lives: `deviceType` is "cpu" or "gpu". Every `cpu(i)` is host memory: the index only says which worker a value stands for. */
final case class Context(deviceType: String, deviceId: Int = 0) {
  override def toString: String = s"$deviceType($deviceId)"

  /** Runs `body`, in which this is the default context of new arrays on this thread. */
  def withScope[A](body: => A): A = Context.withScope(this)(body)

  private[scala] def asJava: JavaContext = deviceType match {
    case "cpu" => JavaContext.cpu(deviceId)
    case "gpu" => JavaContext.gpu(deviceId)
    case other => throw Failure.invalid(s"Context: device type '$other', cpu or gpu was wanted")
  }
}

object Context {
  private val current = ThreadLocal.withInitial[Context](() => cpu())

  /** Where new arrays of this thread live if no context is given: `cpu(0)` outside of `withScope`. */
  def defaultCtx: Context = current.get

  /** Runs `body`, in which `ctx` is the default context of new arrays on this thread. */
  def withScope[A](ctx: Context)(body: => A): A = {
    val outer = current.get
    current.set(Failure.required(ctx, "withScope"))
    try body
    finally current.set(outer)
  }

  def cpu(deviceId: Int = 0): Context = new Context("cpu", deviceId)

  /** Arrays there are UNIMPLEMENTED on a machine without such a device. */
  def gpu(deviceId: Int = 0): Context = new Context("gpu", deviceId)

  private[scala] def of(context: JavaContext): Context =
    new Context(if (context.kind == JavaContext.Kind.CPU) "cpu" else "gpu", context.index)
}
