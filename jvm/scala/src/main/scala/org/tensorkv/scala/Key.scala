package org.tensorkv.scala

import _root_.scala.language.implicitConversions

import org.tensorkv.{Key => JavaKey}

/** The name of a value: an integer or a text. Made by the compiler where a verb is called with one. */
final class Key private (val asJava: JavaKey)

object Key {
  implicit def ofInt(key: Int): Key = new Key(JavaKey.of(key.toLong))
  implicit def ofString(key: String): Key = new Key(JavaKey.of(key))
}

/** Several names. Made by the compiler where a verb is called with an array of them. */
final class Keys private (val asJava: Array[JavaKey])

object Keys {
  implicit def ofInts(keys: Array[Int]): Keys = new Keys(Failure.required(keys, "keys").map(key => JavaKey.of(key.toLong)))
  implicit def ofStrings(keys: Array[String]): Keys = new Keys(Failure.required(keys, "keys").map(key => JavaKey.of(key)))
}
