/* gpu_errors_test: a program that finds a device, plans, launches and cleans up, in which one call to the driver after the
 * other gives one error code after the other. Each time the program gets a sentence with the call, the error and the
 * device, nothing is left behind, and the same program works right afterwards. Every case is a process of its own, since
 * devices are looked for only once. */
#include "gpu_support.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define LEAKS() __lsan_do_recoverable_leak_check()
#else
#define LEAKS() 0
#endif

enum { ORDINAL = 1, MAX_SITES = 256, CALL_BYTES = 40 };

/* What a case leaves, in memory that it shares with the test. */
typedef struct outcome {
    int n_calls, n_enumerating, n_before_end; /* calls until devices were known, until cleaning up began */
    char calls[MAX_SITES][CALL_BYTES];
    int n_devices;
    tq_status status, status_again;
    char message[1024], absence[256], problem[320];
} outcome;

static outcome *shared;

static int set_up(void **state) {
    (void)state;
    if (open_stubs())
        return 1;
    for (int i = 0; i < N_VENDORS; i++)
        add_registries(&vendors[i]);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

static int tear_down(void **state) {
    (void)state;
    return munmap(shared, sizeof *shared);
}

static void note(const char *what, int found) {
    if (found && !shared->problem[0])
        snprintf(shared->problem, sizeof shared->problem, "%s: %d", what, found);
}

static int count_devices(const vendor *v) {
    int n = 0;
    for (int i = 0; i < tq_device_count(); i++)
        n += tq_device_at(i)->kind == v->kind;
    return n;
}

static void note_what_is_left(const vendor *v, const char *failed) {
    const stub_state *state = v->stub->state;
    int left_early = strcmp(failed, "cuCtxPopCurrent_v2") == 0 || strcmp(failed, "hipSetDevice") == 0;
    note(state->violation, state->n_violations);
    note("allocations are left", state->n_allocations);
    note("events are left", state->n_events);
    if (v->kind == TQ_KIND_CUDA) {
        note("contexts are left", v->stub->context_depth() > left_early);
    } else {
        note("the current device is another", v->stub->get_device() && !left_early);
        note("hipGetLastError would give", v->stub->last_error());
    }
}

/* The case, in its own process. */
static void run_case(const vendor *v, int fail_at, int code, int look_for_leaks) {
    stub_state *state = v->stub->state;
    session s;
    state->fail_at = fail_at;
    state->fail_code = code;
    shared->n_devices = count_devices(v);
    shared->n_enumerating = state->n_calls;
    shared->status = session_begin(&s, v, ORDINAL);
    if (!shared->status)
        shared->status = session_run(&s);
    snprintf(shared->message, sizeof shared->message, "%s", shared->status ? tq_error_message() : "");
    snprintf(shared->absence, sizeof shared->absence, "%s", tq_gpu_absence_of(v->kind)->text);
    shared->n_before_end = state->n_calls;
    session_end(&s);
    shared->n_calls = state->n_calls;
    for (int i = 0; i < state->n_calls && i < MAX_SITES; i++)
        snprintf(shared->calls[i], CALL_BYTES, "%s", state->calls[i]);
    if (fail_at < shared->n_before_end)
        note_what_is_left(v, fail_at >= 0 ? state->calls[fail_at] : "");

    state->fail_at = -1;
    shared->status_again = session_begin(&s, v, ORDINAL);
    if (!shared->status_again)
        shared->status_again = session_run(&s);
    session_end(&s);
    if (look_for_leaks)
        note("memory leaks", LEAKS());
}

static void run_apart(const vendor *v, int fail_at, int code, int look_for_leaks) {
    int how = 0;
    memset(shared, 0, sizeof *shared);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run_case(v, fail_at, code, look_for_leaks);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        snprintf(shared->problem, sizeof shared->problem, "the process ended with %d", how);
}

/* What is wrong with how the case went; NULL if nothing is. */
static const char *judge(const vendor *v, int fail_at, const driver_error *error) {
    const char *call = shared->calls[fail_at];
    char device[16];
    snprintf(device, sizeof device, "%s:%d", v->name, ORDINAL);
    if (shared->problem[0])
        return shared->problem;
    if (fail_at < shared->n_enumerating) { /* a device is missing, or all are; the others work */
        if (!strstr(shared->absence, call) || !strstr(shared->absence, error->name))
            return "why devices are missing is not told";
        if (shared->n_devices >= v->n_devices)
            return "the device is there all the same";
        if (shared->status && (shared->status != TQ_ERR_DEVICE || !strstr(shared->message, device)))
            return "the missing device is not named";
        return shared->status == shared->status_again ? NULL : "devices came or went";
    }
    if (shared->status_again)
        return "it does not work again";
    if (fail_at >= shared->n_before_end || strcmp(call, "cuCtxGetId") == 0)
        return shared->status ? "cleaning up is no failure" : NULL;
    if (shared->status != (error->code == 2 ? TQ_ERR_MEMORY : TQ_ERR_DEVICE))
        return "the status is wrong";
    if (!strstr(shared->message, call) || !strstr(shared->message, error->name) || !strstr(shared->message, device))
        return "the message lacks the call, the error or the device";
    return NULL;
}

static void test_every_error_at_every_call(void **state) {
    const vendor *v = *state;
    run_apart(v, -1, 0, 1);
    assert_string_equal(shared->problem, "");
    assert_int_equal(shared->status, TQ_OK);
    assert_int_equal(shared->status_again, TQ_OK);
    int n_calls = shared->n_calls, n_cases = 0, n_bad = 0;
    int stride = SANITIZED ? 23 : 1; /* of the codes; 23 divides no number of them */
    assert_in_range(n_calls, 50, MAX_SITES);
    for (int fail_at = 0; fail_at < n_calls; fail_at++)
        for (int e = fail_at % stride; e < v->n_errors; e += stride) {
            run_apart(v, fail_at, v->errors[e].code, SANITIZED && e < stride);
            const char *wrong = judge(v, fail_at, &v->errors[e]);
            n_cases++;
            if (wrong && n_bad++ < 10)
                print_error("call %d, %s, giving %s: %s\n  status %d, message '%s', absence '%s'\n", fail_at,
                            shared->calls[fail_at], v->errors[e].name, wrong, (int)shared->status, shared->message,
                            shared->absence);
        }
    print_message("%s: %d calls, %d cases\n", v->name, n_calls, n_cases);
    assert_int_equal(n_bad, 0);
}

static void test_no_device(void **state) {
    const vendor *v = *state;
    v->stub->state->n_devices = 0;
    run_apart(v, -1, 0, 1);
    v->stub->state->n_devices = v->n_devices;
    assert_string_equal(shared->problem, "");
    assert_int_equal(shared->n_devices, 0);
    assert_int_equal(shared->status, TQ_ERR_DEVICE);
    assert_non_null(strstr(shared->message, "no device"));
    assert_non_null(strstr(shared->message, "cpu")); /* what there is */
    assert_non_null(strstr(shared->absence, "Init"));
}

#define ON_BOTH(test)                                                                                                  \
    {#test " (cuda)", test, NULL, NULL, &vendors[CUDA]}, {                                                             \
#test " (hip)", test, NULL, NULL, &vendors[HIP]                                                                \
    }

int main(void) {
    const struct CMUnitTest tests[] = {ON_BOTH(test_every_error_at_every_call), ON_BOTH(test_no_device)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
