import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import org.tensorkv.*;

/** What Java takes as keys: {@code write|read TABLE FOLDER}; see tests/cluster/test_keys.py. */
final class Keys {
  public static void main(String[] words) throws Exception {
    try (KVStore kv = KVStore.create("local")) {
      if (words[0].equals("write")) {
        write(kv, Files.readAllLines(Path.of(words[1])));
        kv.save(Path.of(words[2]));
      } else {
        kv.restore(Path.of(words[2]));
        for (Key key : kv.keys()) {
          String digits = HexFormat.of().formatHex(key.text().getBytes(StandardCharsets.UTF_8));
          System.out.printf("%s %.0f%n", digits.isEmpty() ? "-" : digits, kv.pull(key).toScalar());
        }
      }
    }
  }

  private static void write(KVStore kv, List<String> table) {
    for (int number = 0; number < table.size(); number++) {
      String digits = table.get(number).split(" ")[0];
      if (!digits.equals("#")) {
        System.out.println(digits + (takes(kv, digits, number) ? " made" : " refused"));
      }
    }
  }

  /** Bytes that no text of Java is made of count as refused. */
  private static boolean takes(KVStore kv, String digits, int number) {
    byte[] bytes = digits.equals("-") ? new byte[0] : HexFormat.of().parseHex(digits);
    try {
      String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
      kv.init(text, NDArray.full(Shape.of(1), number));
      return true;
    } catch (CharacterCodingException | KVException refused) {
      return false;
    }
  }
}
