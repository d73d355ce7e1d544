/* The C interface of TensorKV: the functions of the C++ headers, in C11 and for other languages.
 *
 * These conventions hold for all functions:
 *
 * Handles.  tkv_array, tkv_store and the others are opaque and reference-counted.  A handle that a
 *   function returns is a count that the caller owns and gives back by tkv_NOUN_release;
 *   tkv_NOUN_retain adds one.  tkv_text and tkv_keys have a single owner, who releases them.
 *   Releasing null does nothing.
 * Errors.  A function that can fail returns a code.  TKV_OK means success; after any other code
 *   nothing has changed.  The last argument, which may be null, receives an error with the code and
 *   a message, or null on success; the caller releases it.  Outputs are written only on success.
 * Null.  A null handle, struct or output that is needed gives TKV_INVALID_ARGUMENT, never a crash.
 * Text.  UTF-8 that ends with a zero.  A `const char*` that a function returns belongs to the
 *   handle that was its argument.  A tkv_text that a function returns belongs to the caller, who
 *   releases it.
 * Structs.  A struct with a `size` begins with it; the caller sets it by TKV_INIT.  If the library
 *   has another version, it takes missing fields as zero, and refuses unknown fields unless they
 *   are zero.  Zero is the default of every field.  A null pointer to options that are all optional
 *   stands for the defaults.
 * Threads.  Any thread may call any function, also two threads with the same handle.  Only its
 *   release ends a handle, so a caller that shares a handle with a thread retains it for that
 *   thread.  If a store is closed while other threads use it, their calls return
 *   TKV_FAILED_PRECONDITION, and calls that wait in a job return TKV_CANCELLED.
 * Callbacks.  Each callback has a context and a function that frees the context; both may be null.
 *   The library calls that function once, on any thread, when it no longer needs the context.  If
 *   the call that received the callback fails, the caller keeps the context.  A callback must not
 *   throw an exception or longjmp out.
 * State.  No call depends on hidden state, global or of a thread: there is no last error, no
 *   current store and no current device.
 */

#ifndef TKV_TKV_H_
#define TKV_TKV_H_

#include <stddef.h>
#include <stdint.h>

#include "tkv/api.h"

#ifdef __cplusplus
extern "C" {
#define TKV_INT : int32_t /* an enum's numbers, whatever the caller passes */
#else
#define TKV_INT
#endif

/* ---- errors */

/* The numbers are those of gRPC's status codes. */
typedef enum tkv_code TKV_INT {
  TKV_OK = 0,
  TKV_CANCELLED = 1,
  TKV_INVALID_ARGUMENT = 3,
  TKV_DEADLINE_EXCEEDED = 4,
  TKV_NOT_FOUND = 5,
  TKV_ALREADY_EXISTS = 6,
  TKV_RESOURCE_EXHAUSTED = 8,
  TKV_FAILED_PRECONDITION = 9,
  TKV_ABORTED = 10,
  TKV_OUT_OF_RANGE = 11,
  TKV_UNIMPLEMENTED = 12,
  TKV_INTERNAL = 13,
  TKV_UNAVAILABLE = 14,
  TKV_DATA_LOSS = 15,
  TKV_UNAUTHENTICATED = 16
} tkv_code;

typedef struct tkv_error tkv_error;
/* Creates an error for a callback that fails.  Copies the message.  A code that is not listed above
 * becomes TKV_INTERNAL.  Returns null if there is no memory. */
TKV_API tkv_error* tkv_error_create(tkv_code code, const char* message);
TKV_API tkv_error* tkv_error_retain(tkv_error* error);
TKV_API void tkv_error_release(tkv_error* error);
TKV_API tkv_code tkv_error_code(const tkv_error* error);       /* TKV_OK for null */
TKV_API const char* tkv_error_message(const tkv_error* error); /* of null: "" */
TKV_API const char* tkv_code_name(tkv_code code); /* "InvalidArgument"; "" if unknown */

/* Text that the caller owns. */
typedef struct tkv_text tkv_text;
TKV_API void tkv_text_release(tkv_text* text);
TKV_API const char* tkv_text_data(const tkv_text* text); /* of null: "" */
TKV_API size_t tkv_text_size(const tkv_text* text);      /* bytes before the zero */

/* Frees the context of a callback, or memory that a caller gave to the library. */
typedef void (*tkv_free)(void* context);

/* Sets `size` and zeroes the other fields: tkv_operands operands = TKV_INIT(tkv_operands); */
#ifdef __cplusplus
#define TKV_INIT(type)       \
  ([] {                      \
    type made{};             \
    made.size = sizeof made; \
    return made;             \
  }())
#else
#define TKV_INIT(type) {.size = sizeof(type)}
#endif

/* ---- this build */

TKV_API const char* tkv_version(void); /* "0.1.0" */
/* Returns lines "name = value" about this build, the machine and the options in force. */
TKV_API tkv_code tkv_config(tkv_text** text, tkv_error** error);

/* ---- arrays */

typedef enum tkv_dtype TKV_INT {
  TKV_F32 = 0,
  TKV_F64 = 1,
  TKV_F16 = 2,
  TKV_BF16 = 3,
  TKV_I8 = 4,
  TKV_U8 = 5,
  TKV_I16 = 6,
  TKV_I32 = 7,
  TKV_I64 = 8,
  TKV_BOOL = 9,
  TKV_F8E4M3FN = 10,
  TKV_F8E5M2 = 11,
  TKV_U16 = 12,
  TKV_U32 = 13,
  TKV_U64 = 14,
  TKV_C64 = 15
} tkv_dtype;
TKV_API size_t tkv_dtype_size(tkv_dtype dtype);      /* bytes of an element; 0 if unknown */
TKV_API const char* tkv_dtype_name(tkv_dtype dtype); /* "float32"; "" if unknown */

typedef enum tkv_device TKV_INT { TKV_CPU = 1, TKV_GPU = 2 } tkv_device;
typedef struct tkv_context {
  tkv_device device;
  int32_t index;
} tkv_context;

/* A dense tensor.  Several handles may share memory. */
typedef struct tkv_array tkv_array;
TKV_API tkv_array* tkv_array_retain(tkv_array* array);
TKV_API void tkv_array_release(tkv_array* array);

/* Create arrays.  `shape` has `rank` numbers.  Elements of empty are uninitialised; from_bytes
 * copies. */
TKV_API tkv_code tkv_array_empty(const int64_t* shape, int32_t rank, tkv_dtype dtype,
                                 tkv_context context, tkv_array** array, tkv_error** error);
TKV_API tkv_code tkv_array_full(const int64_t* shape, int32_t rank, tkv_dtype dtype,
                                tkv_context context, double value, tkv_array** array,
                                tkv_error** error);
TKV_API tkv_code tkv_array_from_bytes(const void* data, size_t bytes, const int64_t* shape,
                                      int32_t rank, tkv_dtype dtype, tkv_context context,
                                      tkv_array** array, tkv_error** error);
/* Returns a view of the caller's memory, never a copy.
 *   strides  in elements, any sign; null: contiguous in C order
 *   free     called with `owner` when the memory is no longer needed; not called if this fails */
TKV_API tkv_code tkv_array_wrap(void* data, const int64_t* shape, const int64_t* strides,
                                int32_t rank, tkv_dtype dtype, tkv_context context,
                                int32_t read_only, void* owner, tkv_free free, tkv_array** array,
                                tkv_error** error);
/* Import and export DLPack 1.x, as DLManagedTensorVersioned*.  An import that succeeds owns
 * `managed`. */
TKV_API tkv_code tkv_array_from_dlpack(void* managed, tkv_array** array, tkv_error** error);
TKV_API tkv_code tkv_array_to_dlpack(tkv_array* array, void** managed, tkv_error** error);

TKV_API int32_t tkv_array_rank(const tkv_array* array);         /* -1 for null */
TKV_API const int64_t* tkv_array_shape(const tkv_array* array); /* `rank` numbers */
TKV_API int64_t tkv_array_size(const tkv_array* array);         /* elements */
TKV_API size_t tkv_array_bytes(const tkv_array* array);
TKV_API tkv_dtype tkv_array_dtype(const tkv_array* array);
TKV_API tkv_context tkv_array_context(const tkv_array* array);
TKV_API int32_t tkv_array_is_contiguous(const tkv_array* array);
TKV_API int32_t tkv_array_is_read_only(const tkv_array* array);
/* Writes the elements between neighbours of each axis to `strides`. */
TKV_API tkv_code tkv_array_strides(const tkv_array* array, int64_t* strides, tkv_error** error);
/* Returns the address of the first element, in host memory.  Waits until running operations have
 * written it.  If the caller will `write`, also waits until they have read it.
 *   blocks  at most patience_ms */
TKV_API tkv_code tkv_array_data(tkv_array* array, int32_t write, int64_t patience_ms, void** data,
                                tkv_error** error);
/* Copy the elements out or in, in C order, for any strides.  `bytes` is that of all elements.
 *   blocks  until running operations have ended, at most 600 s for each */
TKV_API tkv_code tkv_array_read(tkv_array* array, void* data, size_t bytes, tkv_error** error);
TKV_API tkv_code tkv_array_write(tkv_array* array, const void* data, size_t bytes,
                                 tkv_error** error);
/* Waits until no operation on any array of this process is running.
 *   blocks  at most patience_ms for each operation */
TKV_API tkv_code tkv_wait_all(int64_t patience_ms, tkv_error** error);

/* Return views that share memory: rows [begin, end) of the first axis; row `index` without its
 * axis; all elements of a contiguous array in another shape. */
TKV_API tkv_code tkv_array_slice(tkv_array* array, int64_t begin, int64_t end, tkv_array** view,
                                 tkv_error** error);
TKV_API tkv_code tkv_array_at(tkv_array* array, int64_t index, tkv_array** view, tkv_error** error);
TKV_API tkv_code tkv_array_reshape(tkv_array* array, const int64_t* shape, int32_t rank,
                                   tkv_array** view, tkv_error** error);
/* Returns a view if the context has the same kind of memory, else a copy there. */
TKV_API tkv_code tkv_array_with_context(tkv_array* array, tkv_context context, tkv_array** view,
                                        tkv_error** error);
TKV_API tkv_code tkv_array_copy(tkv_array* array, tkv_array** copy, tkv_error** error);
/* Copies the elements of `source`, which has the same shape and dtype, into the array. */
TKV_API tkv_code tkv_array_copy_from(tkv_array* array, tkv_array* source, tkv_error** error);
TKV_API tkv_code tkv_array_convert(tkv_array* array, tkv_dtype dtype, tkv_array** converted,
                                   tkv_error** error); /* between float dtypes */
TKV_API tkv_code tkv_array_fill(tkv_array* array, double value, tkv_error** error);

typedef enum tkv_op TKV_INT {
  TKV_ADD = 0,
  TKV_SUB = 1,
  TKV_MUL = 2,
  TKV_DIV = 3,
  TKV_MIN = 4,
  TKV_MAX = 5,
  TKV_LESS = 6,
  TKV_LESS_EQUAL = 7,
  TKV_GREATER = 8,
  TKV_GREATER_EQUAL = 9,
  TKV_EQUAL = 10,
  TKV_NOT_EQUAL = 11
} tkv_op;
/* Computes a OP b by elements; if `b` is null, a OP number.  If `reversed`, the operands change
 * places.
 *   out  null: the result is a new array in *result; else it is written there, and *result stays
 *        unchanged */
typedef struct tkv_operands {
  size_t size;
  tkv_array* a;
  tkv_array* b;
  double number;
  int32_t reversed;
  tkv_array* out;
} tkv_operands;
TKV_API tkv_code tkv_array_compute(tkv_op op, const tkv_operands* operands, tkv_array** result,
                                   tkv_error** error);

/* ---- keys */

/* A string key if `text` is not null, else an integer key. */
typedef struct tkv_key {
  const char* text;
  int64_t number;
} tkv_key;

/* ---- optimizers and programs */

/* An update program (docs/programs.md), or a built-in optimizer by name (tkv/optimizer.h). */
typedef struct tkv_optimizer tkv_optimizer;
typedef struct tkv_param {
  const char* name;
  double value;
} tkv_param;
typedef struct tkv_optimizer_options {
  size_t size;
  const tkv_param* params; /* hyperparameters that differ from their defaults */
  size_t param_count;
  int32_t multi_precision; /* float16 and bfloat16 keys keep a float32 master */
  int32_t not_lazy;        /* a push updates all existing rows, not only its own */
} tkv_optimizer_options;
TKV_API tkv_code tkv_optimizer_create(const char* name, const tkv_optimizer_options* options,
                                      tkv_optimizer** optimizer, tkv_error** error);
TKV_API tkv_code tkv_optimizer_from_program(const char* text, const tkv_optimizer_options* options,
                                            tkv_optimizer** optimizer, tkv_error** error);
TKV_API tkv_optimizer* tkv_optimizer_retain(tkv_optimizer* optimizer);
TKV_API void tkv_optimizer_release(tkv_optimizer* optimizer);
TKV_API tkv_code tkv_optimizer_param(const tkv_optimizer* optimizer, const char* name,
                                     double* value, tkv_error** error);
TKV_API tkv_code tkv_optimizer_set_param(tkv_optimizer* optimizer, const char* name, double value,
                                         tkv_error** error);
/* Multiplies the hyperparameter by `factor` for one key. */
TKV_API tkv_code tkv_optimizer_set_multiplier(tkv_optimizer* optimizer, const char* name,
                                              const tkv_key* key, double factor, tkv_error** error);

/* ---- stores */

typedef struct tkv_store tkv_store;

/* Receives log lines.  level: 0 debug to 3 error. */
typedef void (*tkv_log)(void* context, int32_t level, const char* text);
/* Called about every 50 ms by a waiting thread.  An error that it returns ends the wait and reaches
 * the caller; the library then owns the error. */
typedef tkv_error* (*tkv_interrupt)(void* context);

/* An option of docs/options.md as text: {"patience_ms", "5000"}, {"bootstrap", "self"}.  An option
 * that has no effect on a store of that type gives TKV_INVALID_ARGUMENT. */
typedef struct tkv_option {
  const char* name;
  const char* value;
} tkv_option;
typedef struct tkv_store_options {
  size_t size;
  const tkv_option* options; /* override the environment, TKV_* */
  size_t option_count;
  int32_t ignores_environment;
  tkv_log log;
  void* log_context;
  tkv_free log_free;
  tkv_interrupt interrupt;
  void* interrupt_context;
  tkv_free interrupt_free;
} tkv_store_options;
/* type: "local", "device", "dist_sync", "dist_async" or another of docs/api.md, in upper or lower
 * case. */
TKV_API tkv_code tkv_store_create(const char* type, const tkv_store_options* options,
                                  tkv_store** store, tkv_error** error);
/* Opens a store of a running job as an observer, which can only read: see KVStore::Connect.
 *   url     "tkv://HOST:PORT/JOB"; null: the job of TKV_HEAD, or the only one of this machine.  The
 *           option token_file, or TKV_TOKEN_FILE, names its secret
 *   number  of the store in the job, in the order in which workers created theirs */
TKV_API tkv_code tkv_store_connect(const char* url, uint32_t number,
                                   const tkv_store_options* options, tkv_store** store,
                                   tkv_error** error);
TKV_API tkv_store* tkv_store_retain(tkv_store* store);
/* The last release closes the store; an error of that is only logged. */
TKV_API void tkv_store_release(tkv_store* store);
/* Frees all values.  Later calls, except another close, return TKV_FAILED_PRECONDITION.
 *   has_failed  the program has failed: other workers see this one as dead, not as having left */
TKV_API tkv_code tkv_store_close(tkv_store* store, int32_t has_failed, tkv_error** error);

/* A key with arrays: a value for init and broadcast, values to sum for push, outputs for pull. */
typedef struct tkv_item {
  tkv_key key;
  tkv_array* const* arrays;
  size_t array_count;
  int32_t priority; /* messages queued for a server leave in this order, highest first */
  const char* mode; /* of a new key: "sync" or "async"; null: the store's */
} tkv_item;

/* The functions of KVStore (tkv/kvstore.h).  Init creates keys.  Push sums the arrays of each key
 * and passes the sum to the updater.  Pull copies the values into the arrays.  Pushpull and
 * broadcast do two of these in one call.  Each checks the whole list before it changes anything. */
TKV_API tkv_code tkv_store_init(tkv_store* store, const tkv_item* items, size_t count,
                                tkv_error** error);
TKV_API tkv_code tkv_store_push(tkv_store* store, const tkv_item* items, size_t count,
                                tkv_error** error);
TKV_API tkv_code tkv_store_pull(tkv_store* store, const tkv_item* items, size_t count,
                                tkv_error** error);
TKV_API tkv_code tkv_store_pushpull(tkv_store* store, const tkv_item* values, size_t value_count,
                                    const tkv_item* outs, size_t out_count, tkv_error** error);
TKV_API tkv_code tkv_store_broadcast(tkv_store* store, const tkv_item* values, size_t value_count,
                                     const tkv_item* outs, size_t out_count, tkv_error** error);
/* Removes a key.  In a job every worker calls it, between two barriers. */
TKV_API tkv_code tkv_store_delete(tkv_store* store, const tkv_key* key, tkv_error** error);

/* Waits until every worker of the job has called it; returns at once in one process. */
TKV_API tkv_code tkv_store_barrier(tkv_store* store, tkv_error** error);

/* ---- tickets: calls that are still running */

/* A call that may still be running.  A push ends when its round is complete, a pull when its arrays
 * are written, a save when its files are on the disk.  The ticket keeps the call's arrays until the
 * call ends; outputs are undefined until then. */
typedef struct tkv_ticket tkv_ticket;
TKV_API tkv_code tkv_store_push_async(tkv_store* store, const tkv_item* items, size_t count,
                                      tkv_ticket** ticket, tkv_error** error);
TKV_API tkv_code tkv_store_pull_async(tkv_store* store, const tkv_item* items, size_t count,
                                      tkv_ticket** ticket, tkv_error** error);
TKV_API tkv_code tkv_store_pushpull_async(tkv_store* store, const tkv_item* values,
                                          size_t value_count, const tkv_item* outs,
                                          size_t out_count, tkv_ticket** ticket, tkv_error** error);
TKV_API tkv_code tkv_store_barrier_async(tkv_store* store, tkv_ticket** ticket, tkv_error** error);
TKV_API tkv_code tkv_store_save_async(tkv_store* store, const char* path, tkv_ticket** ticket,
                                      tkv_error** error);
TKV_API tkv_ticket* tkv_ticket_retain(tkv_ticket* ticket);
TKV_API void tkv_ticket_release(tkv_ticket* ticket); /* the call continues */
TKV_API int32_t tkv_ticket_is_done(const tkv_ticket* ticket);
/* Waits until the call has ended and returns its error, each time.  If nobody waits, the next call
 * on one of its keys and the close return the error.
 *   blocks  at most patience_ms, then returns TKV_DEADLINE_EXCEEDED, and the call continues */
TKV_API tkv_code tkv_ticket_wait(tkv_ticket* ticket, int64_t patience_ms, tkv_error** error);
/* Returns 1 if the call now ends with TKV_CANCELLED, 0 if it had already ended or is null. */
TKV_API int32_t tkv_ticket_cancel(tkv_ticket* ticket);
/* Calls `ended` when the call has ended; at once if it already has.  Any thread may run it, with
 * locks of the store held, so it must only notify another thread. */
TKV_API tkv_code tkv_ticket_on_end(tkv_ticket* ticket, void (*ended)(void* context), void* context,
                                   tkv_free free, tkv_error** error);

/* ---- updaters */

/* Combines the sum of a push with the stored value by changing `stored` in place.  The thread that
 * pushes calls it.  The arrays belong to the library and last as long as the call.  An error that
 * it returns belongs to the library and reaches the caller of the push; then no key of the push has
 * changed. */
typedef tkv_error* (*tkv_updater)(void* context, const tkv_key* key, tkv_array* sum,
                                  tkv_array* stored);
/* A null updater restores assignment.  Stores of several processes accept only optimizers. */
TKV_API tkv_code tkv_store_set_updater(tkv_store* store, tkv_updater updater, void* context,
                                       tkv_free free, tkv_error** error);
TKV_API tkv_code tkv_store_set_optimizer(tkv_store* store, tkv_optimizer* optimizer,
                                         tkv_error** error);
/* Compresses later pushes of the keys that match a pattern, as KVStore::SetGradientCompression.
 *   type       "none", "fp16", "bf16", "int8", "2bit", "1bit", "topk"
 *   threshold  of 2bit and 1bit
 *   ratio      of topk: the share of the elements that is sent, above 0 and at most 1
 *   keys       with `*`, `?`, `[a-z]`, `[!a-z]`; null: all keys */
TKV_API tkv_code tkv_store_set_compression(tkv_store* store, const char* type, double threshold,
                                           double ratio, const char* keys, tkv_error** error);

/* ---- rows: keys kept row by row */

#define TKV_ROWS_MAX ((uint64_t)1 << 63)
typedef enum tkv_row_kind TKV_INT {
  TKV_ROW_CONSTANT = 0, /* a */
  TKV_ROW_UNIFORM = 1,  /* from a to b */
  TKV_ROW_NORMAL = 2    /* mean a, standard deviation b */
} tkv_row_kind;
typedef enum tkv_row_score TKV_INT {
  TKV_SCORE_AGE = 0,
  TKV_SCORE_COUNT = 1,
  TKV_SCORE_NORM = 2
} tkv_row_score;
typedef struct tkv_table_options {
  size_t size;
  const int64_t* row_shape; /* of one row */
  int32_t row_rank;
  tkv_dtype dtype;
  uint64_t row_count; /* ids are below it; 0: TKV_ROWS_MAX */
  tkv_row_kind initializer;
  double initializer_a;
  double initializer_b;
  uint64_t seed;
  tkv_array* ids; /* initial rows, or null */
  tkv_array* values;
  tkv_optimizer* optimizer; /* of this key alone; null: the store's */
  uint32_t admit_count;     /* the push of an id that creates its row; 0: the first */
  uint64_t age_max;         /* most versions that a row stays without a push; 0: no limit */
  uint64_t rows_max;        /* 0: no limit */
  tkv_row_score score;      /* rows with the lowest are removed */
  int32_t has_notes;        /* for is_new of an export; Python and Java set it by default */
  uint64_t memory_max;      /* bytes of rows in memory, others are on a disk; 0: all in memory */
  const char* mode;         /* as in a tkv_item */
} tkv_table_options;
/* Creates a key that is kept row by row: memory grows only with the rows that are pushed. */
TKV_API tkv_code tkv_store_init_table(tkv_store* store, const tkv_key* key,
                                      const tkv_table_options* options, tkv_error** error);
/* ids: (n,) of int64; values: (n, ...).  For pulls `values` is the output. */
typedef struct tkv_rows_item {
  tkv_key key;
  tkv_array* ids;
  tkv_array* values;
  int32_t priority;
} tkv_rows_item;
/* Push rows, or pull them in the order of `ids`.  Rows of one key in several items of a push are
 * summed, each id by itself. */
TKV_API tkv_code tkv_store_push_rows(tkv_store* store, const tkv_rows_item* items, size_t count,
                                     tkv_error** error);
TKV_API tkv_code tkv_store_pull_rows(tkv_store* store, const tkv_rows_item* items, size_t count,
                                     tkv_error** error);
TKV_API tkv_code tkv_store_push_rows_async(tkv_store* store, const tkv_rows_item* items,
                                           size_t count, tkv_ticket** ticket, tkv_error** error);
TKV_API tkv_code tkv_store_pull_rows_async(tkv_store* store, const tkv_rows_item* items,
                                           size_t count, tkv_ticket** ticket, tkv_error** error);
typedef struct tkv_rows_filter {
  size_t size;
  uint64_t first;
  uint64_t end;   /* 0: TKV_ROWS_MAX */
  int32_t is_new; /* only rows that were pushed after version `since` */
  uint64_t since;
} tkv_rows_filter;
/* Returns the existing rows, in ascending order of ids, at one version. */
TKV_API tkv_code tkv_store_export_rows(tkv_store* store, const tkv_key* key,
                                       const tkv_rows_filter* filter, tkv_array** ids,
                                       tkv_array** values, uint64_t* version, tkv_error** error);
/* Replaces rows by new ones with these values; the updater does not run, and the states of the old
 * rows are deleted.  In a job only the lowest live rank may call it, between two barriers. */
TKV_API tkv_code tkv_store_import_rows(tkv_store* store, const tkv_key* key, tkv_array* ids,
                                       tkv_array* values, tkv_error** error);
typedef struct tkv_table_stats {
  size_t size;
  uint64_t rows;       /* existing rows, also those that are too old and not deleted yet */
  uint64_t candidates; /* ids that were pushed too rarely to have a row */
  uint64_t evicted;    /* rows that were removed by age_max or rows_max so far */
  uint64_t memory_bytes;
  uint64_t version;   /* of the rows */
  uint64_t disk_rows; /* the part of `rows` that is on a disk */
  uint64_t disk_bytes;
} tkv_table_stats;
/* Counts the rows of a key on all servers. */
TKV_API tkv_code tkv_store_table_stats(tkv_store* store, const tkv_key* key, tkv_table_stats* stats,
                                       tkv_error** error);

/* ---- on disk */

/* Saves values and optimizer states of all keys as a new snapshot in the folder `path`: safetensors
 * files with an index.  A snapshot appears whole or not at all.  In a job every worker may call it;
 * the lowest live rank writes.
 *   snapshot  the path of the snapshot, PATH/000001 and so on; "" on a rank that wrote nothing
 *   blocks    until all of it is on the disk */
TKV_API tkv_code tkv_store_save(tkv_store* store, const char* path, tkv_text** snapshot,
                                tkv_error** error);
/* Restores the newest snapshot in `path`, or the snapshot that `path` names.  The store must have
 * the same keys, shapes and dtypes, and the same optimizer if the snapshot has states.  In a job
 * every worker calls it.
 *   TKV_NOT_FOUND  no snapshot there;  TKV_DATA_LOSS  a file is not as it was saved */
TKV_API tkv_code tkv_store_load(tkv_store* store, const char* path, tkv_error** error);
/* Creates the keys and the optimizer of a snapshot in a store without keys, then loads it.  A
 * damaged snapshot is an error that leaves neither. */
TKV_API tkv_code tkv_store_restore(tkv_store* store, const char* path, tkv_error** error);
TKV_API tkv_code tkv_store_has_snapshot(const char* path, int32_t* has, tkv_error** error);
/* Save or load only the optimizer's states, in one file.  In a job every worker calls them, and the
 * lowest live rank writes. */
TKV_API tkv_code tkv_store_save_states(tkv_store* store, const char* file, tkv_error** error);
TKV_API tkv_code tkv_store_load_states(tkv_store* store, const char* file, tkv_error** error);

/* ---- properties of a store */

TKV_API tkv_code tkv_store_type(tkv_store* store, tkv_text** type, tkv_error** error);
TKV_API int32_t tkv_store_rank(const tkv_store* store);        /* -1 for null */
TKV_API int32_t tkv_store_num_workers(const tkv_store* store); /* -1 for null */
/* Returns 1 if this worker goes on where an earlier process of it was: it was started again, and a
   worker had pushed before; 0 for null. */
TKV_API int32_t tkv_store_has_rejoined(const tkv_store* store);
/* Returns 1 if the type of the store is for several processes; 0 for null. */
TKV_API int32_t tkv_store_is_distributed(const tkv_store* store);
/* Returns how many processes of the job are dead according to the head; 0 in a store of one
 * process.
 *   node  a sum of 1 (the head), 2 (all servers) and 4 (all workers), or one process by its number
 *         in MXNet: 8 + 2 * rank of a server, 9 + 2 * rank of a worker */
TKV_API tkv_code tkv_store_num_dead_node(tkv_store* store, int32_t node, int32_t* dead,
                                         tkv_error** error);
/* Returns the number of this worker's last push of the key, even if the push is still queued. */
TKV_API tkv_code tkv_store_round(tkv_store* store, const tkv_key* key, uint64_t* round,
                                 tkv_error** error);
TKV_API tkv_code tkv_store_size(tkv_store* store, size_t* keys, tkv_error** error);
TKV_API tkv_code tkv_store_contains(tkv_store* store, const tkv_key* key, int32_t* contains,
                                    tkv_error** error);
typedef struct tkv_key_info {
  size_t size;
  int32_t rank; /* of the shape; if by_rows, of the shape of one row */
  int64_t shape[32];
  tkv_dtype dtype;
  tkv_context context;
  int32_t by_rows;
  uint64_t row_count;
} tkv_key_info;
/* Describes a key.  Writes at most the `size` bytes that the caller has set in *info. */
TKV_API tkv_code tkv_store_describe(tkv_store* store, const tkv_key* key, tkv_key_info* info,
                                    tkv_error** error);
/* Returns the keys in the order of init.  The array lives as long as its handle. */
typedef struct tkv_keys tkv_keys;
TKV_API tkv_code tkv_store_keys(tkv_store* store, tkv_keys** keys, tkv_error** error);
TKV_API const tkv_key* tkv_keys_data(const tkv_keys* keys);
TKV_API size_t tkv_keys_size(const tkv_keys* keys);
TKV_API void tkv_keys_release(tkv_keys* keys);
/* Returns the store's counters as JSON: the fields of docs/api.md, kv.stats(). */
TKV_API tkv_code tkv_store_stats(tkv_store* store, tkv_text** json, tkv_error** error);
/* Returns the state of the job as JSON: the fields of kv.status(), for stores of several processes.
 */
TKV_API tkv_code tkv_store_status(tkv_store* store, tkv_text** json, tkv_error** error);
/* Returns the URL of the job; empty if no other process can reach it. */
TKV_API tkv_code tkv_store_url(tkv_store* store, tkv_text** url, tkv_error** error);

/* ---- traces: when this process did what, as JSON that chrome://tracing and Perfetto show */

/* Start recording, stop until the next start, and write the trace to a file, which ends it.  In a
 * job the servers record, too. */

TKV_API tkv_code tkv_store_start_trace(tkv_store* store, tkv_error** error);
TKV_API tkv_code tkv_store_pause_trace(tkv_store* store, tkv_error** error);
TKV_API tkv_code tkv_store_write_trace(tkv_store* store, const char* file, tkv_error** error);

/* ---- servers */

/* Serves as the environment says (tkv launch, DMLC_ROLE, an MPI launcher) until every worker has
 * left. */
TKV_API tkv_code tkv_server_run(const tkv_store_options* options, tkv_error** error);
/* Returns "worker", "server" or "head" in a launched job, else "". */
TKV_API tkv_code tkv_process_role(tkv_text** role, tkv_error** error);

#ifdef __cplusplus
}
#endif

#endif /* TKV_TKV_H_ */
