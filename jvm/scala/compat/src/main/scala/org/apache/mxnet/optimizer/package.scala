package org.apache.mxnet

import org.tensorkv.scala.Optimizer

/** Optimizers of MXNet's Scala package by its names and defaults; the others are `Optimizer(name, ...)`. */
package object optimizer {
  object SGD {
    def apply(learningRate: Float = 0.01f, momentum: Float = 0.0f, wd: Float = 0.0001f, clipGradient: Float = 0f): Optimizer = {
      val common = params(learningRate, wd, clipGradient)
      if (momentum == 0) Optimizer("sgd", common: _*) else Optimizer("momentum", common :+ ("momentum" -> momentum.toDouble): _*)
    }
  }

  object Adam {
    def apply(
        learningRate: Float = 0.002f,
        beta1: Float = 0.9f,
        beta2: Float = 0.999f,
        epsilon: Float = 1e-8f,
        wd: Float = 0.0f,
        clipGradient: Float = 0f
    ): Optimizer = {
      val own = Seq("beta1" -> beta1.toDouble, "beta2" -> beta2.toDouble, "epsilon" -> epsilon.toDouble)
      Optimizer("adam", params(learningRate, wd, clipGradient) ++ own: _*)
    }
  }

  private def params(learningRate: Float, wd: Float, clipGradient: Float): Seq[(String, Double)] =
    Seq("learning_rate" -> learningRate.toDouble, "wd" -> wd.toDouble, "clip_gradient" -> clipGradient.toDouble)
}
