package org.apache.mxnet.optimizer

import org.tensorkv.scala.Optimizer

/** Optimizers of MXNet's Scala package by its names and defaults; the others are `Optimizer(name, ...)`. */
class SGD(val learningRate: Float = 0.01f, momentum: Float = 0.0f, wd: Float = 0.0001f, clipGradient: Float = 0f)
    extends Optimizer(Built.sgd(momentum, Built.common(learningRate, wd, clipGradient)).asJava)

object SGD {
  def apply(learningRate: Float = 0.01f, momentum: Float = 0.0f, wd: Float = 0.0001f, clipGradient: Float = 0f): SGD =
    new SGD(learningRate, momentum, wd, clipGradient)
}

class Adam(
    val learningRate: Float = 0.002f,
    beta1: Float = 0.9f,
    beta2: Float = 0.999f,
    epsilon: Float = 1e-8f,
    wd: Float = 0.0f,
    clipGradient: Float = 0f
) extends Optimizer(Built.adam(beta1, beta2, epsilon, Built.common(learningRate, wd, clipGradient)).asJava)

object Adam {
  def apply(
      learningRate: Float = 0.002f,
      beta1: Float = 0.9f,
      beta2: Float = 0.999f,
      epsilon: Float = 1e-8f,
      wd: Float = 0.0f,
      clipGradient: Float = 0f
  ): Adam = new Adam(learningRate, beta1, beta2, epsilon, wd, clipGradient)
}

private object Built {
  type Params = Seq[(String, Double)]

  def common(learningRate: Float, wd: Float, clipGradient: Float): Params =
    Seq("learning_rate" -> learningRate.toDouble, "wd" -> wd.toDouble, "clip_gradient" -> clipGradient.toDouble)

  def sgd(momentum: Float, params: Params): Optimizer =
    if (momentum == 0) Optimizer("sgd", params: _*) else Optimizer("momentum", params :+ ("momentum" -> momentum.toDouble): _*)

  def adam(beta1: Float, beta2: Float, epsilon: Float, params: Params): Optimizer = {
    val own = Seq("beta1" -> beta1.toDouble, "beta2" -> beta2.toDouble, "epsilon" -> epsilon.toDouble)
    Optimizer("adam", params ++ own: _*)
  }
}
