package org.tensorkv;

/**
 * One key of a call with its arrays: a value for init and broadcast, values to sum for push, outputs
 * for pull. Immutable.
 */
public final class Item {
  /** The size of a {@code tkv_item}. */
  private static final int BYTES = 48;

  private final Key key;
  private final NDArray[] arrays;
  private final int priority;
  private final String mode;

  private Item(Key key, NDArray[] arrays, int priority, String mode) {
    this.key = KVException.required(key, "Item: key");
    this.arrays = KVException.required(arrays, "Item " + key.quoted() + ": arrays");
    this.priority = priority;
    this.mode = mode;
  }

  public static Item of(Key key, NDArray... arrays) {
    return new Item(key, arrays == null ? null : arrays.clone(), 0, null);
  }

  public static Item of(long key, NDArray... arrays) {
    return of(Key.of(key), arrays);
  }

  public static Item of(String key, NDArray... arrays) {
    return of(Key.of(key), arrays);
  }

  /** An item of one call, which the caller's array does not outlive. */
  static Item ofCall(Key key, NDArray... arrays) {
    return new Item(key, arrays, 0, null);
  }

  /** One item for each key, with its array. */
  static Item[] list(String verb, Key[] keys, NDArray[] arrays) {
    KVException.required(arrays, verb);
    if (keys.length != arrays.length) {
      throw KVException.invalid(
          verb + ": " + arrays.length + " arrays, one for each of " + keys.length + " keys wanted");
    }
    Item[] items = new Item[keys.length];
    for (int i = 0; i < keys.length; i++) {
      items[i] = ofCall(keys[i], arrays[i]);
    }
    return items;
  }

  /** What waits for a server leaves in this order, highest first; 0 without it. */
  public Item priority(int priority) {
    return new Item(key, arrays, priority, mode);
  }

  /** Of a key that is made: {@code "sync"} or {@code "async"}; without it the store's. */
  public Item mode(String mode) {
    return new Item(key, arrays, priority, mode);
  }

  public Key key() {
    return key;
  }

  /** A list of {@code tkv_item}. */
  static long write(Call call, String verb, Item... items) {
    Block list = call.block((long) BYTES * KVException.required(items, verb).length);
    for (Item item : items) {
      KVException.required(item, verb).write(call, verb, list);
    }
    return list.address;
  }

  private void write(Call call, String verb, Block target) {
    Block pointers = call.block(8L * arrays.length);
    for (NDArray array : arrays) {
      if (array == null) {
        throw KVException.invalid(verb + " " + key.quoted() + ": null, an NDArray was wanted");
      }
      pointers.i64(call.use(array.handle()));
    }
    key.write(call, target);
    target.i64(pointers.address).i64(arrays.length).i32(priority).i64(call.text(mode, verb));
  }
}
