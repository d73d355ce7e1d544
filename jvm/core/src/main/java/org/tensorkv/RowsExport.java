package org.tensorkv;

/**
 * Rows of a table, ascending by id, as they were at one version.
 *
 * @param rows ids and values
 * @param version for {@link Table#exportSince} the next time
 */
public record RowsExport(Rows rows, long version) {}
