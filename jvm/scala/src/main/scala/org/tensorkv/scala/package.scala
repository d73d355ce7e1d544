package org.tensorkv

/** TensorKV for Scala, with the names of MXNet's Scala package.
  *
  * Everything else is in the classes of Java, which `asJava` gives: tables of rows, tickets, snapshots.
  *
  * Import it as `org.tensorkv.scala._`. An import of `org.tensorkv._` would hide the package `scala` of the language.
  */
package object scala {

  /** What is thrown: a code and a message of the form `verb 'key': what was found, what was wanted`. */
  type KVException = org.tensorkv.KVException
}
