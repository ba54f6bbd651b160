#pragma once
/// \file
/// Counts what must not happen once a chunk: allocations and calls that take a lock. Included by one source file: it
/// replaces operator new, and stands in front of the C library's lock functions. Any thread.

#include <dlfcn.h>
#include <pthread.h>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace hotpath {

inline std::uint64_t allocations = 0, locks = 0;

/// The function that a definition of ours hides.
template <class F>
F* hidden(const char* name) noexcept {
    return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace hotpath

// Not inlined: the compiler would see malloc and free behind a new-expression and complain that they do not match.
[[gnu::noinline]] void* operator new(std::size_t n) {
    ++hotpath::allocations;
    if (void* p = std::malloc(n)) return p;
    throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

#define HOTPATH_COUNT_LOCK(function, type)                               \
    extern "C" int function(type* lock) noexcept {                       \
        ++hotpath::locks;                                                \
        static const auto real = hotpath::hidden<int(type*)>(#function); \
        return real(lock);                                               \
    }
HOTPATH_COUNT_LOCK(pthread_mutex_lock, pthread_mutex_t)
HOTPATH_COUNT_LOCK(pthread_mutex_trylock, pthread_mutex_t)
HOTPATH_COUNT_LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
HOTPATH_COUNT_LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)
#undef HOTPATH_COUNT_LOCK
