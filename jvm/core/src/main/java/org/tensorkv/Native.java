package org.tensorkv;

import org.bytedeco.javacpp.annotation.ByVal;
import org.bytedeco.javacpp.annotation.Cast;
import org.bytedeco.javacpp.annotation.NoException;
import org.bytedeco.javacpp.annotation.Platform;
import org.bytedeco.javacpp.annotation.Raw;

/**
 * Every native method of the binding: the functions of tkv.h under their names, and those of
 * adapter.h and events.h. Pointers are addresses in a long; what they point to is laid out by {@link Block}.
 *
 * <p>No method may be called before {@link Library#load}.
 */
@Platform(
    include = {"<cstring>", "<cstdlib>", "tkv/tkv.h", "adapter.h", "events.h"},
    preload = "tbb@.12",
    library = "jnitensorkv")
@NoException
final class Native {
  private Native() {}

  // ---- memory

  static native @Cast("jlong") long malloc(@Cast("size_t") long bytes);

  static native void free(@Cast("void*") long address);

  static native @Cast("jlong") long strlen(@Cast("const char*") long text);

  // ---- adapter.h

  /** Has upcalls go to {@link Upcalls}. */
  static native @Raw(withEnv = true) void bind();

  static native @Cast("jlong") long update_function();

  static native @Cast("jlong") long interrupt_function();

  static native @Cast("jlong") long release_function();

  static native @Cast("jlong") long context_create(long id);

  static native void context_release(@Cast("void*") long context);

  static native long context_next();

  // ---- events.h

  static native @Cast("jlong") long log_function();

  static native @Cast("jlong") long end_function();

  static native @Cast("jlong") long event_last(long listener);

  static native void event_end(@Cast("void*") long last);

  static native @Cast("jlong") long event_take(long patience);

  static native long event_listener(@Cast("void*") long event);

  static native int event_level(@Cast("void*") long event);

  static native @Cast("jlong") long event_text(@Cast("void*") long event);

  static native @Cast("jlong") long event_lost(@Cast("void*") long event);

  static native void event_release(@Cast("void*") long event);

  // ---- errors and text

  static native @Cast("jlong") long tkv_error_create(
      @Cast("tkv_code") int code, @Cast("const char*") long message);

  static native void tkv_error_release(@Cast("tkv_error*") long error);

  static native @Cast("jlong") long tkv_error_message(@Cast("const tkv_error*") long error);

  static native @Cast("jlong") long tkv_code_name(@Cast("tkv_code") int code);

  static native void tkv_text_release(@Cast("tkv_text*") long text);

  static native @Cast("jlong") long tkv_text_data(@Cast("const tkv_text*") long text);

  // ---- this build

  static native @Cast("jlong") long tkv_version();

  static native int tkv_config(@Cast("tkv_text**") long text, @Cast("tkv_error**") long error);

  // ---- arrays

  static native @Cast("size_t") long tkv_dtype_size(@Cast("tkv_dtype") int dtype);

  static native @Cast("jlong") long tkv_dtype_name(@Cast("tkv_dtype") int dtype);

  static native @Cast("jlong") long tkv_array_retain(@Cast("tkv_array*") long array);

  static native void tkv_array_release(@Cast("tkv_array*") long array);

  static native int tkv_array_empty(
      @Cast("const int64_t*") long shape,
      int rank,
      @Cast("tkv_dtype") int dtype,
      @ByVal @Cast("tkv_context*") long context,
      @Cast("tkv_array**") long array,
      @Cast("tkv_error**") long error);

  static native int tkv_array_full(
      @Cast("const int64_t*") long shape,
      int rank,
      @Cast("tkv_dtype") int dtype,
      @ByVal @Cast("tkv_context*") long context,
      double value,
      @Cast("tkv_array**") long array,
      @Cast("tkv_error**") long error);

  static native int tkv_array_wrap(
      @Cast("void*") long data,
      @Cast("const int64_t*") long shape,
      @Cast("const int64_t*") long strides,
      int rank,
      @Cast("tkv_dtype") int dtype,
      @ByVal @Cast("tkv_context*") long context,
      int readOnly,
      @Cast("void*") long owner,
      @Cast("tkv_free") long free,
      @Cast("tkv_array**") long array,
      @Cast("tkv_error**") long error);

  static native int tkv_array_rank(@Cast("const tkv_array*") long array);

  static native @Cast("jlong") long tkv_array_shape(@Cast("const tkv_array*") long array);

  static native int tkv_array_dtype(@Cast("const tkv_array*") long array);

  /** The device, and in the upper half the index. */
  static native long array_context(@Cast("const tkv_array*") long array);

  static native int tkv_array_is_read_only(@Cast("const tkv_array*") long array);

  static native int tkv_array_data(
      @Cast("tkv_array*") long array,
      int write,
      long patienceMs,
      @Cast("void**") long data,
      @Cast("tkv_error**") long error);

  static native int tkv_wait_all(long patienceMillis, @Cast("tkv_error**") long error);

  static native int tkv_array_read(
      @Cast("tkv_array*") long array,
      @Cast("void*") long data,
      @Cast("size_t") long bytes,
      @Cast("tkv_error**") long error);

  static native int tkv_array_write(
      @Cast("tkv_array*") long array,
      @Cast("const void*") long data,
      @Cast("size_t") long bytes,
      @Cast("tkv_error**") long error);

  static native int tkv_array_slice(
      @Cast("tkv_array*") long array,
      long begin,
      long end,
      @Cast("tkv_array**") long view,
      @Cast("tkv_error**") long error);

  static native int tkv_array_at(
      @Cast("tkv_array*") long array,
      long index,
      @Cast("tkv_array**") long view,
      @Cast("tkv_error**") long error);

  static native int tkv_array_reshape(
      @Cast("tkv_array*") long array,
      @Cast("const int64_t*") long shape,
      int rank,
      @Cast("tkv_array**") long view,
      @Cast("tkv_error**") long error);

  static native int tkv_array_with_context(
      @Cast("tkv_array*") long array,
      @ByVal @Cast("tkv_context*") long context,
      @Cast("tkv_array**") long view,
      @Cast("tkv_error**") long error);

  static native int tkv_array_copy(
      @Cast("tkv_array*") long array,
      @Cast("tkv_array**") long copy,
      @Cast("tkv_error**") long error);

  static native int tkv_array_copy_from(
      @Cast("tkv_array*") long array,
      @Cast("tkv_array*") long source,
      @Cast("tkv_error**") long error);

  static native int tkv_array_convert(
      @Cast("tkv_array*") long array,
      @Cast("tkv_dtype") int dtype,
      @Cast("tkv_array**") long converted,
      @Cast("tkv_error**") long error);

  static native int tkv_array_fill(
      @Cast("tkv_array*") long array, double value, @Cast("tkv_error**") long error);

  static native int tkv_array_compute(
      @Cast("tkv_op") int op,
      @Cast("const tkv_operands*") long operands,
      @Cast("tkv_array**") long result,
      @Cast("tkv_error**") long error);

  // ---- optimizers and programs

  static native int tkv_optimizer_create(
      @Cast("const char*") long name,
      @Cast("const tkv_optimizer_options*") long options,
      @Cast("tkv_optimizer**") long optimizer,
      @Cast("tkv_error**") long error);

  static native int tkv_optimizer_from_program(
      @Cast("const char*") long text,
      @Cast("const tkv_optimizer_options*") long options,
      @Cast("tkv_optimizer**") long optimizer,
      @Cast("tkv_error**") long error);

  static native void tkv_optimizer_release(@Cast("tkv_optimizer*") long optimizer);

  static native int tkv_optimizer_param(
      @Cast("const tkv_optimizer*") long optimizer,
      @Cast("const char*") long name,
      @Cast("double*") long value,
      @Cast("tkv_error**") long error);

  static native int tkv_optimizer_set_param(
      @Cast("tkv_optimizer*") long optimizer,
      @Cast("const char*") long name,
      double value,
      @Cast("tkv_error**") long error);

  static native int tkv_optimizer_set_multiplier(
      @Cast("tkv_optimizer*") long optimizer,
      @Cast("const char*") long name,
      @Cast("const tkv_key*") long key,
      double factor,
      @Cast("tkv_error**") long error);

  // ---- stores

  static native int tkv_store_create(
      @Cast("const char*") long type,
      @Cast("const tkv_store_options*") long options,
      @Cast("tkv_store**") long store,
      @Cast("tkv_error**") long error);

  static native void tkv_store_release(@Cast("tkv_store*") long store);

  static native int tkv_store_close(
      @Cast("tkv_store*") long store, int hasFailed, @Cast("tkv_error**") long error);

  static native int tkv_store_init(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_item*") long items,
      @Cast("size_t") long count,
      @Cast("tkv_error**") long error);

  static native int tkv_store_push(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_item*") long items,
      @Cast("size_t") long count,
      @Cast("tkv_error**") long error);

  static native int tkv_store_pull(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_item*") long items,
      @Cast("size_t") long count,
      @Cast("tkv_error**") long error);

  static native int tkv_store_pushpull(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_item*") long values,
      @Cast("size_t") long valueCount,
      @Cast("const tkv_item*") long outs,
      @Cast("size_t") long outCount,
      @Cast("tkv_error**") long error);

  static native int tkv_store_broadcast(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_item*") long values,
      @Cast("size_t") long valueCount,
      @Cast("const tkv_item*") long outs,
      @Cast("size_t") long outCount,
      @Cast("tkv_error**") long error);

  static native int tkv_store_delete(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_key*") long key,
      @Cast("tkv_error**") long error);

  // ---- tickets

  static native int tkv_store_push_async(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_item*") long items,
      @Cast("size_t") long count,
      @Cast("tkv_ticket**") long ticket,
      @Cast("tkv_error**") long error);

  static native int tkv_store_pull_async(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_item*") long items,
      @Cast("size_t") long count,
      @Cast("tkv_ticket**") long ticket,
      @Cast("tkv_error**") long error);

  static native int tkv_store_pushpull_async(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_item*") long values,
      @Cast("size_t") long valueCount,
      @Cast("const tkv_item*") long outs,
      @Cast("size_t") long outCount,
      @Cast("tkv_ticket**") long ticket,
      @Cast("tkv_error**") long error);

  static native int tkv_store_barrier_async(
      @Cast("tkv_store*") long store,
      @Cast("tkv_ticket**") long ticket,
      @Cast("tkv_error**") long error);

  static native int tkv_store_save_async(
      @Cast("tkv_store*") long store,
      @Cast("const char*") long path,
      @Cast("tkv_ticket**") long ticket,
      @Cast("tkv_error**") long error);

  static native void tkv_ticket_release(@Cast("tkv_ticket*") long ticket);

  static native int tkv_ticket_is_done(@Cast("const tkv_ticket*") long ticket);

  static native @Cast("jlong") long tkv_ticket_retain(@Cast("tkv_ticket*") long ticket);

  static native int tkv_ticket_on_end(
      @Cast("tkv_ticket*") long ticket,
      @Cast("tkv_free") long ended,
      @Cast("void*") long context,
      @Cast("tkv_free") long free,
      @Cast("tkv_error**") long error);

  static native int tkv_ticket_wait(
      @Cast("tkv_ticket*") long ticket, long patienceMs, @Cast("tkv_error**") long error);

  static native int tkv_ticket_cancel(@Cast("tkv_ticket*") long ticket);

  // ---- updaters

  static native int tkv_store_set_updater(
      @Cast("tkv_store*") long store,
      @Cast("tkv_updater") long updater,
      @Cast("void*") long context,
      @Cast("tkv_free") long free,
      @Cast("tkv_error**") long error);

  static native int tkv_store_set_optimizer(
      @Cast("tkv_store*") long store,
      @Cast("tkv_optimizer*") long optimizer,
      @Cast("tkv_error**") long error);

  static native int tkv_store_set_compression(
      @Cast("tkv_store*") long store,
      @Cast("const char*") long type,
      double threshold,
      double ratio,
      @Cast("const char*") long keys,
      @Cast("tkv_error**") long error);

  // ---- rows

  static native int tkv_store_init_table(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_key*") long key,
      @Cast("const tkv_table_options*") long options,
      @Cast("tkv_error**") long error);

  static native int tkv_store_push_rows(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_rows_item*") long items,
      @Cast("size_t") long count,
      @Cast("tkv_error**") long error);

  static native int tkv_store_pull_rows(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_rows_item*") long items,
      @Cast("size_t") long count,
      @Cast("tkv_error**") long error);

  static native int tkv_store_push_rows_async(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_rows_item*") long items,
      @Cast("size_t") long count,
      @Cast("tkv_ticket**") long ticket,
      @Cast("tkv_error**") long error);

  static native int tkv_store_pull_rows_async(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_rows_item*") long items,
      @Cast("size_t") long count,
      @Cast("tkv_ticket**") long ticket,
      @Cast("tkv_error**") long error);

  static native int tkv_store_export_rows(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_key*") long key,
      @Cast("const tkv_rows_filter*") long filter,
      @Cast("tkv_array**") long ids,
      @Cast("tkv_array**") long values,
      @Cast("uint64_t*") long version,
      @Cast("tkv_error**") long error);

  static native int tkv_store_import_rows(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_key*") long key,
      @Cast("tkv_array*") long ids,
      @Cast("tkv_array*") long values,
      @Cast("tkv_error**") long error);

  static native int tkv_store_table_stats(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_key*") long key,
      @Cast("tkv_table_stats*") long stats,
      @Cast("tkv_error**") long error);

  // ---- on disk

  static native int tkv_store_save(
      @Cast("tkv_store*") long store,
      @Cast("const char*") long path,
      @Cast("tkv_text**") long snapshot,
      @Cast("tkv_error**") long error);

  static native int tkv_store_load(
      @Cast("tkv_store*") long store,
      @Cast("const char*") long path,
      @Cast("tkv_error**") long error);

  static native int tkv_store_restore(
      @Cast("tkv_store*") long store,
      @Cast("const char*") long path,
      @Cast("tkv_error**") long error);

  static native int tkv_store_has_snapshot(
      @Cast("const char*") long path,
      @Cast("int32_t*") long has,
      @Cast("tkv_error**") long error);

  static native int tkv_store_save_states(
      @Cast("tkv_store*") long store,
      @Cast("const char*") long file,
      @Cast("tkv_error**") long error);

  static native int tkv_store_load_states(
      @Cast("tkv_store*") long store,
      @Cast("const char*") long file,
      @Cast("tkv_error**") long error);

  // ---- what a store is

  static native int tkv_store_type(
      @Cast("tkv_store*") long store,
      @Cast("tkv_text**") long type,
      @Cast("tkv_error**") long error);

  static native int tkv_store_rank(@Cast("const tkv_store*") long store);

  static native int tkv_store_num_workers(@Cast("const tkv_store*") long store);

  static native int tkv_store_has_rejoined(@Cast("const tkv_store*") long store);

  static native int tkv_store_is_distributed(@Cast("const tkv_store*") long store);

  static native int tkv_store_num_dead_node(
      @Cast("tkv_store*") long store,
      int node,
      @Cast("int32_t*") long dead,
      @Cast("tkv_error**") long error);

  static native int tkv_store_barrier(
      @Cast("tkv_store*") long store, @Cast("tkv_error**") long error);

  static native int tkv_store_round(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_key*") long key,
      @Cast("uint64_t*") long round,
      @Cast("tkv_error**") long error);

  static native int tkv_store_size(
      @Cast("tkv_store*") long store,
      @Cast("size_t*") long keys,
      @Cast("tkv_error**") long error);

  static native int tkv_store_contains(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_key*") long key,
      @Cast("int32_t*") long contains,
      @Cast("tkv_error**") long error);

  static native int tkv_store_describe(
      @Cast("tkv_store*") long store,
      @Cast("const tkv_key*") long key,
      @Cast("tkv_key_info*") long info,
      @Cast("tkv_error**") long error);

  static native int tkv_store_keys(
      @Cast("tkv_store*") long store,
      @Cast("tkv_keys**") long keys,
      @Cast("tkv_error**") long error);

  static native @Cast("jlong") long tkv_keys_data(@Cast("const tkv_keys*") long keys);

  static native @Cast("size_t") long tkv_keys_size(@Cast("const tkv_keys*") long keys);

  static native void tkv_keys_release(@Cast("tkv_keys*") long keys);

  static native int tkv_store_stats(
      @Cast("tkv_store*") long store,
      @Cast("tkv_text**") long json,
      @Cast("tkv_error**") long error);

  static native int tkv_store_start_trace(
      @Cast("tkv_store*") long store, @Cast("tkv_error**") long error);

  static native int tkv_store_pause_trace(
      @Cast("tkv_store*") long store, @Cast("tkv_error**") long error);

  static native int tkv_store_write_trace(
      @Cast("tkv_store*") long store,
      @Cast("const char*") long file,
      @Cast("tkv_error**") long error);

  // ---- servers

  static native int tkv_server_run(
      @Cast("const tkv_store_options*") long options, @Cast("tkv_error**") long error);

  static native int tkv_process_role(
      @Cast("tkv_text**") long role, @Cast("tkv_error**") long error);
}
