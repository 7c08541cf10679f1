/* stub_incomplete.c: a driver library of another age: it begins as it should, and most of the functions are missing. */
#define API __attribute__((visibility("default")))

API int cuInit(unsigned flags) {
    return (int)flags;
}

API int hipInit(unsigned flags) {
    return (int)flags;
}
