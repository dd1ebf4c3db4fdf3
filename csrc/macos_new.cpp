// Only for cross-compiled macOS libraries, which contain a C++ runtime of their own. Its operators new and delete would be
// exported, and macOS would then use one library's operators for all libraries of the process. These are hidden. They are
// defined by their linker names, since the standard's declarations insist on being exported.
#include <new>
#include <stdlib.h>

#define KRU_OPERATOR(name) __asm__("__" name) __attribute__((visibility("hidden")))

namespace {

void* take(size_t bytes, size_t alignment) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes ? bytes : 1))
    throw std::bad_alloc();
  return memory;
}

}  // namespace

extern "C" {

void* kru_new(size_t) KRU_OPERATOR("Znwm");
void* kru_new_array(size_t) KRU_OPERATOR("Znam");
void* kru_new_aligned(size_t, size_t) KRU_OPERATOR("ZnwmSt11align_val_t");
void* kru_new_array_aligned(size_t, size_t) KRU_OPERATOR("ZnamSt11align_val_t");
void* kru_new_nothrow(size_t, const void*) KRU_OPERATOR("ZnwmRKSt9nothrow_t");
void kru_delete(void*) KRU_OPERATOR("ZdlPv");
void kru_delete_array(void*) KRU_OPERATOR("ZdaPv");
void kru_delete_sized(void*, size_t) KRU_OPERATOR("ZdlPvm");
void kru_delete_array_sized(void*, size_t) KRU_OPERATOR("ZdaPvm");
void kru_delete_aligned(void*, size_t) KRU_OPERATOR("ZdlPvSt11align_val_t");
void kru_delete_array_aligned(void*, size_t) KRU_OPERATOR("ZdaPvSt11align_val_t");
void kru_delete_sized_aligned(void*, size_t, size_t) KRU_OPERATOR("ZdlPvmSt11align_val_t");
void kru_delete_array_sized_aligned(void*, size_t, size_t) KRU_OPERATOR("ZdaPvmSt11align_val_t");

void* kru_new(size_t bytes) { return take(bytes, 16); }
void* kru_new_array(size_t bytes) { return take(bytes, 16); }
void* kru_new_aligned(size_t bytes, size_t alignment) { return take(bytes, alignment); }
void* kru_new_array_aligned(size_t bytes, size_t alignment) { return take(bytes, alignment); }
void* kru_new_nothrow(size_t bytes, const void*) { return malloc(bytes ? bytes : 1); }
void kru_delete(void* memory) { free(memory); }
void kru_delete_array(void* memory) { free(memory); }
void kru_delete_sized(void* memory, size_t) { free(memory); }
void kru_delete_array_sized(void* memory, size_t) { free(memory); }
void kru_delete_aligned(void* memory, size_t) { free(memory); }
void kru_delete_array_aligned(void* memory, size_t) { free(memory); }
void kru_delete_sized_aligned(void* memory, size_t, size_t) { free(memory); }
void kru_delete_array_sized_aligned(void* memory, size_t, size_t) { free(memory); }

}  // extern "C"
