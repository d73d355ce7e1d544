package org.tensorkv;

import java.util.concurrent.CompletableFuture;

/** A ticket's end as a future. To cancel it gives the call up. */
final class TicketFuture extends CompletableFuture<Void> implements Events.Listener {
  private final Ticket ticket;
  private boolean isGivenUp = false;  // guarded by this
  private boolean hasEnded = false;  // guarded by this

  /** Owns the ticket. */
  TicketFuture(Ticket ticket) {
    this.ticket = ticket;
  }

  @Override
  public boolean cancel(boolean mayInterrupt) {
    if (!isDone() && giveUp()) {
      super.cancel(mayInterrupt);
    }
    return isCancelled();
  }

  private synchronized boolean giveUp() {
    isGivenUp = true;
    return !hasEnded && ticket.cancel();
  }

  private synchronized boolean endTicket() {
    hasEnded = true;
    ticket.close();
    return isGivenUp;
  }

  @Override
  public void end() {
    Throwable failure = failure();
    boolean isCancelled =
        endTicket() && failure instanceof KVException error && error.code() == Code.CANCELLED;
    if (isCancelled) {
      super.cancel(false);
    } else if (failure != null) {
      completeExceptionally(failure);
    } else {
      complete(null);
    }
  }

  /** What the call has ended with, else null. */
  private Throwable failure() {
    try {
      ticket.await();
      return null;
    } catch (Throwable thrown) {
      return thrown;
    }
  }
}
