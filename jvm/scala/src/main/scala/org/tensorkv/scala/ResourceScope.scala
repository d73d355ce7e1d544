package org.tensorkv.scala

import _root_.scala.jdk.CollectionConverters._

/** What holds memory outside of Java's heap until it is disposed. */
trait NativeResource extends AutoCloseable {

  /** A second time does nothing. */
  def dispose(): Unit

  def isDisposed: Boolean

  override def close(): Unit = dispose()
}

/** Disposes what was made in it when it is closed, the newest first. Belongs to one thread.
  *
  * Tells resources apart by identity: two arrays with equal elements are two resources.
  */
final class ResourceScope extends AutoCloseable {
  private val resources = new java.util.IdentityHashMap[NativeResource, Long]  // and the order in which they were added
  private var added = 0L

  /** Adding a resource a second time does nothing. */
  def add(resource: NativeResource): Unit = {
    resources.putIfAbsent(resource, added)
    added += 1
  }
  def remove(resource: NativeResource): Unit = resources.remove(resource)
  def contains(resource: NativeResource): Boolean = resources.containsKey(resource)

  override def close(): Unit = {
    val newestFirst = resources.asScala.toVector.sortBy { case (_, order) => -order }
    resources.clear()
    newestFirst.foreach { case (resource, _) => resource.dispose() }
  }
}

object ResourceScope {
  private val scopes = ThreadLocal.withInitial[List[ResourceScope]](() => Nil)

  /** Runs `body`, and disposes every array and store that it has made on this thread, but for those that it returns: itself, or in a collection or
    * option. These belong to the scope around this one, where there is one.
    */
  def using[A](scope: ResourceScope = null)(body: => A): A = {
    val inner = if (scope == null) new ResourceScope else scope
    val outer = scopes.get
    scopes.set(inner :: outer)
    try {
      val result = body
      for (resource <- resourcesOf(result) if inner.contains(resource)) {
        inner.remove(resource)
        outer.headOption.foreach(_.add(resource))
      }
      result
    } finally {
      scopes.set(outer)
      inner.close()
    }
  }

  /** The scope that this thread is in. */
  def getCurrentScope: Option[ResourceScope] = scopes.get.headOption

  private[scala] def register(resource: NativeResource): Unit = getCurrentScope.foreach(_.add(resource))

  private def resourcesOf(result: Any): Iterator[NativeResource] = result match {
    case resource: NativeResource => Iterator(resource)
    case some: Option[_] => some.iterator.flatMap(resourcesOf)
    case all: Iterable[_] => all.iterator.flatMap(resourcesOf)
    case all: Array[_] => all.iterator.flatMap(resourcesOf)
    case all: Product => all.productIterator.flatMap(resourcesOf)
    case _ => Iterator.empty
  }
}
