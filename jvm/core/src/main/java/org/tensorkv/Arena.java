package org.tensorkv;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;

/**
 * A thread's memory for the arguments of its calls: a stack, so that those of a call that an updater
 * makes lie above those of the call that runs the updater. What is too large for it has memory of its
 * own.
 */
final class Arena {
  private static final int BYTES = 2 << 10;  // each virtual thread has an arena, too

  private final ByteBuffer buffer = ByteBuffer.allocateDirect(BYTES).order(ByteOrder.nativeOrder());
  private final long address = Memory.addressOf(buffer);
  private int top = 0;
  private final List<Long> large = new ArrayList<>();

  /** For {@link #release}. */
  int top() {
    return top;
  }

  /** For {@link #release}. */
  int largeCount() {
    return large.size();
  }

  /** Memory until it is released, uninitialised. */
  Block take(long bytes) {
    long rounded = bytes + 7 & ~7L;
    if (rounded > BYTES - top) {
      return takeLarge(rounded);
    }
    Block block = new Block(buffer, top, address + top);
    top += (int) rounded;
    return block;
  }

  private Block takeLarge(long bytes) {
    if (bytes > Integer.MAX_VALUE) {
      throw new KVException(
          Code.OUT_OF_RANGE, "call: " + bytes + " bytes, fewer than 2**31 were wanted");
    }
    long own = Native.malloc(bytes);
    if (own == 0) {
      throw new KVException(Code.RESOURCE_EXHAUSTED, "call: no memory for " + bytes + " bytes");
    }
    large.add(own);
    return new Block(Memory.view(own, bytes), 0, own);
  }

  /** Gives back what has been taken since there were so much and so many. */
  void release(int top, int largeCount) {
    this.top = top;
    while (large.size() > largeCount) {
      Native.free(large.remove(large.size() - 1));
    }
  }
}
