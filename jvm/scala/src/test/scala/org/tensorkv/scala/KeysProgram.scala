package org.tensorkv.scala

import java.nio.ByteBuffer
import java.nio.charset.{CharacterCodingException, StandardCharsets}
import java.nio.file.{Files, Paths}
import java.util.HexFormat

import _root_.scala.jdk.CollectionConverters._

/** What Scala takes as keys: `write|read TABLE FOLDER`; see tests/cluster/test_keys.py. */
object KeysProgram {
  def main(words: Array[String]): Unit = {
    val kv = KVStore.create("local")
    if (words(0) == "write") {
      for ((line, number) <- Files.readAllLines(Paths.get(words(1))).asScala.zipWithIndex) {
        val digits = line.split(" ").head
        if (digits != "#") println(digits + (if (takes(kv, digits, number)) " made" else " refused"))
      }
      kv.save(words(2))
    } else {
      kv.asJava.restore(Paths.get(words(2)))
      for (key <- kv.asJava.keys.asScala) {
        val digits = HexFormat.of.formatHex(key.text.getBytes(StandardCharsets.UTF_8))
        println(s"${if (digits.isEmpty) "-" else digits} ${kv.pull(key.text).toScalar.toInt}")
      }
    }
    kv.dispose()
  }

  /** Bytes that no text is made of count as refused. */
  private def takes(kv: KVStore, digits: String, number: Int): Boolean =
    try {
      val bytes = if (digits == "-") Array.empty[Byte] else HexFormat.of.parseHex(digits)
      kv.init(StandardCharsets.UTF_8.newDecoder.decode(ByteBuffer.wrap(bytes)).toString, NDArray.full(Shape(1), number.toFloat))
      true
    } catch {
      case _: CharacterCodingException | _: KVException => false
    }
}
