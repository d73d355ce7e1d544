package user.program

import org.apache.mxnet._
import org.apache.mxnet.optimizer.{Adam, SGD}

/** A program that knows MXNet's names alone. */
class CompatSuite extends munit.FunSuite {
  private val shape = Shape(2, 3)

  test("a program of MXNet's names runs") {
    ResourceScope.using() {
      val kv: KVStore = KVStore.create("local")
      kv.init("3", NDArray.ones(shape, Context.cpu(), DType.Float32))
      kv.setUpdater(new MXKVStoreUpdater {
        override def update(key: Int, recv: NDArray, local: NDArray): Unit = local += recv * 2
        override def dispose(): Unit = {}
      })
      kv.push("3", Array(NDArray.ones(shape), NDArray.ones(shape)))
      val out = NDArray.empty(shape)
      kv.pull("3", out = out)
      assertEquals(out.toArray.toSeq, Seq.fill(6)(5f))
      intercept[MXNetError](kv.pull("4", out))
    }
  }

  test("optimizers have MXNet's names and defaults") {
    val kv = KVStore.create("local")
    kv.init(Array("a", "b"), Array(NDArray.ones(shape), NDArray.ones(shape)))
    kv.setOptimizer(new SGD(learningRate = 0.5f, wd = 0f))
    kv.push("a", NDArray.ones(shape))
    val out = NDArray.empty(shape)
    kv.pull("a", out)
    assertEquals(out.toArray.head, 0.5f)
    assertEquals(SGD()("learning_rate"), 0.01f.toDouble)
    assertEquals(SGD(momentum = 0.5f)("momentum"), 0.5)
    assertEquals(Adam()("beta2"), 0.999f.toDouble)
    kv.dispose()
  }

  test("lines that old scripts have") {
    val a = NDArray.array(Array(1f, 2f, 3f, 4f, 5f, 6f), Shape(Array(2, 3)))
    assertEquals(a.shape, Shape(List(2, 3)))
    assertEquals(a.shape.size, 2)
    assertEquals(a.shape.head, 2)
    assertEquals(a.shape.drop(1), Shape(3))
    assertEquals(a.shape.slice(0, 1) ++ Shape(4), Shape(2, 4))
    a.waitToRead()
    NDArray.waitall()
    assertEquals((a > 3.5f).toArray.toSeq, Seq(0f, 0f, 0f, 1f, 1f, 1f))
    assertEquals((a <= a).toArray.toSeq, Seq.fill(6)(1f))
    assertEquals((a >= 6).toArray.sum, 1f)
    assertEquals((a < a * 2).toArray.sum, 6f)
    val rows = NDArray.concatenate(a, a.slice(1))
    assertEquals(rows.shape, Shape(3, 3))
    assertEquals(rows.toArray.drop(6).toSeq, Seq(4f, 5f, 6f))
    intercept[MXNetError](NDArray.concatenate(a, NDArray.ones(Shape(2, 2))))
    intercept[MXNetError](NDArray.concatenate(Seq(a, a), axis = 1))
    Context.withScope(Context.cpu(3)) { assertEquals(NDArray.ones(2).context, Context.cpu(3)) }
    Context.cpu(2).withScope { assertEquals(NDArray.ones(2).context, Context.cpu(2)) }
    assertEquals(NDArray.ones(2).context, Context.cpu(0))
    KVStore.create("device").setGradientCompression(Map("type" -> "2bit", "threshold" -> "0.5"))
  }
}
