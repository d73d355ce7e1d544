package org.tensorkv;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import java.util.function.ToIntFunction;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** The numbers of Java are those of tkv.h, and their names those of the library. */
final class ConstantsTest {
  private static final Path HEADER = Path.of(System.getProperty("tkv.root"), "include/tkv/tkv.h");

  /** The enumerators of an enum of tkv.h, without their common prefix. */
  private static Map<String, Integer> header(String name, String prefix) throws IOException {
    String text = Files.readString(HEADER);
    Matcher body =
        Pattern.compile("typedef enum " + name + "\\b[^{]*\\{(.*?)\\}", Pattern.DOTALL).matcher(text);
    if (!body.find()) {
      throw new AssertionError("tkv.h has no " + name);
    }
    Map<String, Integer> found = new TreeMap<>();
    Matcher entry = Pattern.compile(prefix + "(\\w+) = (\\d+)").matcher(body.group(1));
    while (entry.find()) {
      found.put(entry.group(1), Integer.valueOf(entry.group(2)));
    }
    return found;
  }

  private static <E> Map<String, Integer> java(
      E[] values, Function<E, String> name, ToIntFunction<E> number) {
    Map<String, Integer> found = new TreeMap<>();
    Arrays.stream(values).forEach(v -> found.put(name.apply(v), number.applyAsInt(v)));
    return found;
  }

  /** {@code FLOAT32} as tkv.h shortens it: {@code F32}. */
  private static String shortName(DType dtype) {
    return dtype
        .name()
        .replace("BFLOAT", "BF")
        .replace("FLOAT", "F")
        .replace("UINT", "U")
        .replace("INT", "I")
        .replace("COMPLEX", "C")
        .replace("_", "");
  }

  @Test
  void codesAreThoseOfTheHeader() throws IOException {
    Map<String, Integer> codes = java(Code.values(), Enum::name, Code::number);
    codes.put("OK", Code.OK);
    assertEquals(header("tkv_code", "TKV_"), codes);
  }

  @Test
  void dtypesAreThoseOfTheHeader() throws IOException {
    assertEquals(
        header("tkv_dtype", "TKV_"), java(DType.values(), ConstantsTest::shortName, DType::number));
  }

  @Test
  void operationsAndDevicesAreThoseOfTheHeader() throws IOException {
    assertEquals(header("tkv_op", "TKV_"), java(Op.values(), Enum::name, Op::number));
    assertEquals(
        header("tkv_device", "TKV_"),
        java(Context.Kind.values(), Enum::name, Context.Kind::number));
    assertEquals(
        header("tkv_row_score", "TKV_SCORE_"),
        java(TableOptions.Score.values(), Enum::name, Enum::ordinal));
    assertEquals(
        header("tkv_row_kind", "TKV_ROW_"),
        java(TableOptions.Initializer.values(), Enum::name, Enum::ordinal));
  }

  @Test
  void namesAreThoseOfTheLibrary() {
    KVStore.version();
    for (DType dtype : DType.values()) {
      assertEquals(Memory.text(Native.tkv_dtype_name(dtype.number())), dtype.toString());
      assertEquals(Native.tkv_dtype_size(dtype.number()), dtype.bytes());
    }
    for (Code code : Code.values()) {
      String name = Memory.text(Native.tkv_code_name(code.number()));
      assertEquals(name.toUpperCase(), code.name().replace("_", ""));
      assertEquals(code, Code.of(code.number()));
    }
  }
}
