// Adapts tkv.h where Java cannot call it directly: callbacks into Java, their contexts, and structs
// returned by value.
//
// Thread-safe.  Never attaches a thread to the virtual machine: unattached threads belong to the
// library and may outlive the machine.

#pragma once

#include <jni.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#include "tkv/tkv.h"

// Layouts that Java's classes write by hand into a Block.
static_assert(sizeof(tkv_key) == 16 && offsetof(tkv_key, number) == 8);
static_assert(sizeof(tkv_item) == 48 && offsetof(tkv_item, mode) == 40);
static_assert(sizeof(tkv_rows_item) == 40 && offsetof(tkv_rows_item, priority) == 32);
static_assert(sizeof(tkv_context) == 8 && offsetof(tkv_context, index) == 4);
static_assert(sizeof(tkv_operands) == 48 && offsetof(tkv_operands, out) == 40);
static_assert(sizeof(tkv_rows_filter) == 40 && offsetof(tkv_rows_filter, since) == 32);
static_assert(sizeof(tkv_table_options) == 136 && offsetof(tkv_table_options, mode) == 128);
static_assert(sizeof(tkv_table_stats) == 64 && offsetof(tkv_table_stats, disk_bytes) == 56);
static_assert(sizeof(tkv_key_info) == 296 && offsetof(tkv_key_info, row_count) == 288);
static_assert(sizeof(tkv_optimizer_options) == 32 &&
              offsetof(tkv_optimizer_options, not_lazy) == 28);
static_assert(sizeof(tkv_param) == 16 && sizeof(tkv_option) == 16);
static_assert(sizeof(tkv_store_options) == 80 && offsetof(tkv_store_options, interrupt_free) == 72);

namespace adapter {

struct Upcalls {
  JavaVM* machine = nullptr;
  jclass target = nullptr;
  jmethodID update = nullptr;
  jmethodID interrupt = nullptr;
};
inline Upcalls upcalls;  // set once, by bind()

// Returns the JNI environment of an attached thread, else null.
inline JNIEnv* Environment() {
  void* env = nullptr;
  return upcalls.machine->GetEnv(&env, JNI_VERSION_1_8) == JNI_OK ? static_cast<JNIEnv*>(env)
                                                                  : nullptr;
}

// The context of a callback, with the number of its Java object.  Any thread may release a context.
// A released context waits in a list until Java takes its number.
struct Context {
  jlong id;
  Context* next;
};
inline std::mutex released_mutex;
inline Context* released = nullptr;  // guarded by the mutex

inline tkv_error* Update(void* context, const tkv_key* key, tkv_array* sum, tkv_array* stored) {
  JNIEnv* env = Environment();
  if (env == nullptr) {
    return tkv_error_create(TKV_INTERNAL,
                            "update: a thread that Java does not know, the pushing one was wanted");
  }
  const jlong error =
      env->CallStaticLongMethod(upcalls.target, upcalls.update, static_cast<Context*>(context)->id,
                                reinterpret_cast<jlong>(key->text), static_cast<jlong>(key->number),
                                reinterpret_cast<jlong>(sum), reinterpret_cast<jlong>(stored));
  if (env->ExceptionCheck() == JNI_FALSE) return reinterpret_cast<tkv_error*>(error);

  env->ExceptionClear();  // thrown before Upcalls ran, for example StackOverflowError
  return tkv_error_create(TKV_RESOURCE_EXHAUSTED, "update: Java could not call the updater");
}

inline tkv_error* Interrupt(void*) {
  JNIEnv* env = Environment();
  if (env == nullptr) return nullptr;
  const jlong error = env->CallStaticLongMethod(upcalls.target, upcalls.interrupt);
  if (env->ExceptionCheck() == JNI_FALSE) return reinterpret_cast<tkv_error*>(error);

  env->ExceptionClear();
  return nullptr;
}

inline void Release(void* context) {
  auto* node = static_cast<Context*>(context);
  const std::lock_guard lock(released_mutex);
  node->next = released;
  released = node;
}

}  // namespace adapter

// ---- native methods that are not functions of tkv.h, under their names in Java

// Looks up the Java methods for callbacks.  After a failure the Java exception is pending.
inline void bind(JNIEnv* env, jclass) {
  using adapter::upcalls;
  jclass found = env->FindClass("org/tensorkv/Upcalls");
  if (found == nullptr || env->GetJavaVM(&upcalls.machine) != JNI_OK) return;
  upcalls.target = static_cast<jclass>(env->NewGlobalRef(found));
  upcalls.update = env->GetStaticMethodID(found, "update", "(JJJJJ)J");
  upcalls.interrupt = env->GetStaticMethodID(found, "interrupt", "()J");
}

inline tkv_updater update_function() { return adapter::Update; }
inline tkv_interrupt interrupt_function() { return adapter::Interrupt; }
inline tkv_free release_function() { return adapter::Release; }

inline void* context_create(jlong id) { return new (std::nothrow) adapter::Context{id, nullptr}; }
inline void context_release(void* context) { delete static_cast<adapter::Context*>(context); }

// Removes a released context from the list and returns its number; 0 if there is none.
inline jlong context_next() {
  adapter::Context* node;
  {
    const std::lock_guard lock(adapter::released_mutex);
    node = adapter::released;
    if (node != nullptr) adapter::released = node->next;
  }
  const jlong id = node == nullptr ? 0 : node->id;
  delete node;
  return id;
}

inline jlong array_context(const tkv_array* array) {
  const tkv_context context = tkv_array_context(array);
  return static_cast<jlong>(context.index) << 32 | static_cast<jlong>(context.device);
}
