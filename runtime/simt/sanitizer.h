/* sanitizer.h: what AddressSanitizer and ThreadSanitizer must be told about fibers; nothing in other builds. */
#ifndef TQ_SIMT_SANITIZER_H
#define TQ_SIMT_SANITIZER_H

#include <stddef.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define SIMT_ASAN 1
#endif
#ifdef __SANITIZE_THREAD__
#define SIMT_TSAN 1
#endif

/* Before functions of the executor: fibers share its data as coroutines do, which ThreadSanitizer, to whom they are
 * threads, must not look at. */
#if defined(SIMT_TSAN) && defined(__clang__)
#define SIMT_UNSEEN __attribute__((no_sanitize("thread"), disable_sanitizer_instrumentation))
#elif defined(SIMT_TSAN)
#define SIMT_UNSEEN __attribute__((no_sanitize("thread")))
#else
#define SIMT_UNSEEN
#endif

#ifdef SIMT_TSAN
#include <sanitizer/tsan_interface.h>
#define TSAN_DO(call) call
#else
#define TSAN_DO(call) ((void)0)
#endif
#ifdef SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define ASAN_DO(call) call
#else
#define ASAN_DO(call) ((void)0)
#endif

#endif
