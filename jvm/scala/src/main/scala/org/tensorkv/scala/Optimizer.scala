package org.tensorkv.scala

import org.tensorkv.{Optimizer => JavaOptimizer}

/** An update as data, which runs in the store or on its servers. A store that was given one sees later changes at the next push. */
class Optimizer protected (val asJava: JavaOptimizer) {
  def apply(param: String): Double = asJava.get(param)
  def update(param: String, value: Double): Unit = asJava.set(param, value)
}

object Optimizer {

  /** A built-in of docs/optimizers.md with hyperparameters other than their defaults: `Optimizer("sgd", "learning_rate" -> 0.1)`. */
  def apply(name: String, params: (String, Double)*): Optimizer = built(JavaOptimizer.builder(name), params)

  /** An update program: the text of docs/programs.md. */
  def program(text: String, params: (String, Double)*): Optimizer = built(JavaOptimizer.programBuilder(text), params)

  private def built(builder: JavaOptimizer.Builder, params: Seq[(String, Double)]): Optimizer = {
    params.foreach { case (name, value) => builder.set(name, value) }
    new Optimizer(builder.build())
  }
}
