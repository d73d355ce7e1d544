package org.tensorkv;

/**
 * What a table holds.
 *
 * @param rows that are there
 * @param candidates ids that wait for the push that makes their row
 * @param evicted rows that have gone
 * @param memoryBytes of rows and states in memory
 * @param version of the last push
 * @param diskRows rows on a disk
 * @param diskBytes of rows on a disk
 */
public record TableStats(
    long rows,
    long candidates,
    long evicted,
    long memoryBytes,
    long version,
    long diskRows,
    long diskBytes) {}
