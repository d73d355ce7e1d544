package org.tensorkv.scala

import java.nio.file.Paths

import _root_.scala.collection.mutable

import org.tensorkv.{Code, Item, KVStore => JavaKVStore, Key => JavaKey, NDArray => JavaNDArray}

/** Maps keys to tensors that devices and machines share.
  *
  * Keys are integers or texts. All keys of a call are checked before any of them changes anything, and a call that throws has changed nothing. Thread-safe.
  */
final class KVStore private (val asJava: JavaKVStore) extends NativeResource {
  private val indices = mutable.HashMap.empty[String, Int]  // of text keys, in the order of init
  private var updater: MXKVStoreUpdater = null
  private var hasBarrierBeforeExit = false

  // ---- verbs

  /** Makes a key with a copy of its value. */
  def init(key: Key, value: NDArray): Unit = init(Array(name(key, "init")), one(Array(value)))

  def init(keys: Keys, values: Array[NDArray]): Unit = init(names(keys, "init"), each(keys, values, "init"))

  private def init(keys: Array[JavaKey], values: Array[Array[NDArray]]): Unit = {
    asJava.init(items("init", keys, values, 0): _*)
    keys.filter(_.isText).foreach(index)
  }

  /** Sums the values of each key and hands the sum to the updater, or stores it where there is none. `priority`: what waits for a server leaves in this
    * order, highest first.
    */
  def push(key: Key, value: NDArray, priority: Int = 0): Unit = push(key, Array(value), priority)

  def push(key: Key, values: Array[NDArray], priority: Int): Unit =
    asJava.push(items("push", Array(name(key, "push")), one(values), priority): _*)

  def push(key: Key, values: Array[NDArray]): Unit = push(key, values, 0)

  /** One value for each key. */
  def push(keys: Keys, values: Array[NDArray], priority: Int): Unit =
    asJava.push(items("push", names(keys, "push"), each(keys, values, "push"), priority): _*)

  def push(keys: Keys, values: Array[NDArray]): Unit = push(keys, values, 0)

  /** Copies the key's value into `out`. */
  def pull(key: Key, out: NDArray, priority: Int = 0): Unit = pull(key, Array(out), priority)

  /** Copies the key's value into each of `outs`. */
  def pull(key: Key, outs: Array[NDArray], priority: Int): Unit =
    asJava.pull(items("pull", Array(name(key, "pull")), one(outs), priority): _*)

  def pull(key: Key, outs: Array[NDArray]): Unit = pull(key, outs, 0)

  /** One output for each key. */
  def pull(keys: Keys, outs: Array[NDArray], priority: Int): Unit =
    asJava.pull(items("pull", names(keys, "pull"), each(keys, outs, "pull"), priority): _*)

  def pull(keys: Keys, outs: Array[NDArray]): Unit = pull(keys, outs, 0)

  /** The key's value as a new array. */
  def pull(key: Key): NDArray = NDArray(asJava.pull(name(key, "pull")))

  /** Push, then pull into `outs`, in one pass over memory. */
  def pushPull(key: Key, values: Array[NDArray], outs: Array[NDArray]): Unit = {
    val keys = Array(name(key, "pushpull"))
    asJava.pushPull(items("pushpull", keys, one(values), 0), items("pushpull", keys, one(outs), 0))
  }

  /** Init, then pull: every worker gets the value of rank 0. */
  def broadcast(key: Key, value: NDArray, outs: Array[NDArray]): Unit = {
    val keys = Array(name(key, "broadcast"))
    asJava.broadcast(items("broadcast", keys, one(Array(value)), 0), items("broadcast", keys, one(outs), 0))
    keys.filter(_.isText).foreach(index)
  }

  private def name(key: Key, verb: String): JavaKey = Failure.required(key, verb).asJava
  private def names(keys: Keys, verb: String): Array[JavaKey] = Failure.required(keys, verb).asJava
  private def one(arrays: Array[NDArray]): Array[Array[NDArray]] = Array(arrays)

  private def each(keys: Keys, arrays: Array[NDArray], verb: String): Array[Array[NDArray]] = {
    val wanted = names(keys, verb).length
    if (Failure.required(arrays, verb).length != wanted)
      throw Failure.invalid(s"$verb: ${arrays.length} arrays, one for each of $wanted keys wanted")
    arrays.map(Array(_))
  }

  private def items(verb: String, keys: Array[JavaKey], arrays: Array[Array[NDArray]], priority: Int): Array[Item] =
    keys.zip(arrays).map { case (key, some) =>
      val java = Failure.required(some, s"$verb $key").map(array => NDArray.java(array, s"$verb $key"))
      Item.of(key, java: _*).priority(priority)
    }

  // ---- updates

  /** What combines the sum of a push with the stored value from now on.
    *
    * A store of several processes refuses a function, which cannot run on its servers: it takes a program.
    */
  def setUpdater(updater: MXKVStoreUpdater): Unit = {
    Failure.required(updater, "set_updater")
    asJava.setUpdater((key: JavaKey, sum: JavaNDArray, stored: JavaNDArray) => run(updater, key, NDArray.lent(sum), NDArray.lent(stored)))
    replace(updater)
  }

  /** The same as data: the text of docs/programs.md, which runs on servers too. */
  def setUpdater(program: String): Unit = setOptimizer(Optimizer.program(program))

  /** The stored value is a weight from now on, and the sum its gradient. */
  def setOptimizer(optimizer: Optimizer): Unit = {
    asJava.setOptimizer(Failure.required(optimizer, "set_optimizer").asJava)
    replace(null)
  }

  /** How this worker's pushes travel, as in docs/compression.md: `"type" -> "2bit", "threshold" -> "0.5"`. */
  def setGradientCompression(params: (String, String)*): Unit = {
    val named = params.toMap
    def number(name: String): Double = named.get(name).fold(0.0) { text =>
      text.toDoubleOption.getOrElse(throw Failure.invalid(s"set_gradient_compression: $name '$text', a number was wanted"))
    }
    asJava.setGradientCompression(named.getOrElse("type", null), number("threshold"), number("ratio"), named.getOrElse("keys", null))
  }

  def setGradientCompression(params: Map[String, String]): Unit =
    setGradientCompression(Failure.required(params, "set_gradient_compression").toSeq: _*)

  private def run(updater: MXKVStoreUpdater, key: JavaKey, input: NDArray, stored: NDArray): Unit =
    if (key.isText) updater.update(key.text, index(key), input, stored) else updater.update(Math.toIntExact(key.number), input, stored)

  private def index(key: JavaKey): Int = indices.synchronized(indices.getOrElseUpdate(key.text, indices.size))

  private def replace(next: MXKVStoreUpdater): Unit = {
    val last = synchronized {
      val last = updater
      updater = next
      last
    }
    if (last != null && (last ne next)) last.dispose()
  }

  // ---- on disk

  /** What the optimizer keeps beside the values, as one file. */
  def saveOptimizerStates(fname: String): Unit = asJava.saveOptimizerStates(Paths.get(Failure.required(fname, "save_optimizer_states")))
  def loadOptimizerStates(fname: String): Unit = asJava.loadOptimizerStates(Paths.get(Failure.required(fname, "load_optimizer_states")))

  /** Saves all keys as a new snapshot in a folder, and returns its path. */
  def save(path: String): String = asJava.save(Paths.get(Failure.required(path, "save")))
  def load(path: String): Unit = asJava.load(Paths.get(Failure.required(path, "load")))

  // ---- what it is

  def `type`: String = asJava.`type`
  def rank: Int = asJava.rank
  def numWorkers: Int = asJava.numWorkers
  def isDistributed: Boolean = asJava.isDistributed

  /** How many processes of the job are dead; `nodeId`: a sum of 1 (the head), 2 (all servers) and 4 (all workers), or one process by MXNet's number. */
  def numDeadNode(nodeId: Int): Int = asJava.numDeadNode(nodeId)

  /** Waits until every worker has come here. */
  def barrier(): Unit = asJava.barrier()

  /** Has `dispose` wait until every worker has come there. */
  def setBarrierBeforeExit(barrierBeforeExit: Boolean): Unit = hasBarrierBeforeExit = barrierBeforeExit

  /** Does what a command of MXNet asks of the servers; `body` is data, never code.
    *
    * @param head
    *   0: `body` is an update program, as `setUpdater`; 4: `body` has `name=value` with commas between them, as `setGradientCompression`
    */
  def sendCommandToServers(head: Int, body: String): Unit = head match {
    case 0 => setUpdater(body)
    case 4 => setGradientCompression(KVStore.pairs(body): _*)
    case 1 | 2 | 3 | 5 =>
      throw Failure(Code.UNIMPLEMENTED, s"send_command_to_servers: command $head has another way here: docs/jvm.md")
    case _ =>
      throw Failure.invalid(s"send_command_to_servers: no command $head; there are optimizer (0), gradient_compression (4)")
  }

  // ---- end

  override def dispose(): Unit = if (!isDisposed) {
    try if (hasBarrierBeforeExit) barrier()
    finally {
      try asJava.close()
      finally if (isDisposed) replace(null)
    }
  }

  override def isDisposed: Boolean = asJava.isClosed

  override def toString: String = asJava.toString
}

object KVStore {

  /** "local", "device", "dist_sync", "dist_async" and the others of docs/api.md, in any case, with options of docs/options.md by name. */
  def create(name: String = "local", options: Map[String, Any] = Map.empty): KVStore = {
    val builder = JavaKVStore.builder(name)
    options.foreach { case (option, value) => builder.option(option, value) }
    val store = new KVStore(builder.create())
    ResourceScope.register(store)
    store
  }

  /** Serves as the environment says, until every worker has left. */
  def runServer(): Unit = JavaKVStore.runServer()

  private def pairs(body: String): Seq[(String, String)] =
    Failure.required(body, "send_command_to_servers").split(',').toSeq.map { pair =>
      pair.split('=') match {
        case Array(name, value) => name.trim -> value.trim
        case _ => throw Failure.invalid(s"send_command_to_servers: '$pair', name=value was wanted")
      }
    }
}

/** A process that serves a job, by MXNet's name. */
object KVStoreServer {
  def start(): Unit = KVStore.runServer()
}
