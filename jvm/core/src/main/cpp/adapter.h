// What Java cannot say to tkv.h by itself: callbacks that go up into Java, the contexts that they come with,
// and structs that are returned by value.
//
// Thread-safe.  A thread that Java does not know is never made known to it: such threads are the library's,
// and may outlive the virtual machine.

#pragma once

#include <jni.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#include "tkv/tkv.h"

// The layouts that Java writes by hand, in the classes that make a Block.
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
inline Upcalls upcalls;  // written once, by bind()

// The environment of a thread that Java knows, else null.
inline JNIEnv* Environment() {
  void* env = nullptr;
  return upcalls.machine->GetEnv(&env, JNI_VERSION_1_8) == JNI_OK ? static_cast<JNIEnv*>(env)
                                                                  : nullptr;
}

// What a callback of the library stands for in Java.  One that the library has freed waits in a list for
// Java to take its number, because the thread that frees it may be any.
struct Context {
  jlong id;
  Context* next;
};
inline std::mutex released_mutex;
inline Context* released = nullptr;  // under the mutex

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

  env->ExceptionClear();  // thrown by the machine before any of our code has run, such as a full stack
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

// ---- the native methods that are not functions of tkv.h, under their names in Java

// What fails leaves an exception of Java, which is thrown when this returns.
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

// The number of a context that the library has freed, else 0.
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
