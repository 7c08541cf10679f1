/* tune.c: `tq tune`: verifies and times every candidate of every contract, and keeps the evidence of all of them. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "harness.h"
#include "table.h"
#include "tunefile.h"
#include "verify.h"

enum { MAX_CANDIDATES = 64, LEAST_ROUNDS = 7, MOST_ROUNDS = 301 };

/* Candidates this many times slower than the best are not worth more than the least number of launches. */
#define GIVE_UP 2.5

typedef struct row {
    const char *variant, *op, *k, *v, *layout, *device;
    int head_dim, gqa, n_kv, n_kv_heads, threads;
    double median_ns, ns_per_key_head, spread, max_err;
    bool verified, resumed;
} row;

static const column columns[] = {
    {"variant", "variant", COLUMN_TEXT, offsetof(row, variant), 0},
    {"op", NULL, COLUMN_TEXT, offsetof(row, op), 0},
    {"head_dim", NULL, COLUMN_INT, offsetof(row, head_dim), 0},
    {"gqa", NULL, COLUMN_INT, offsetof(row, gqa), 0},
    {"k", NULL, COLUMN_TEXT, offsetof(row, k), 0},
    {"v", NULL, COLUMN_TEXT, offsetof(row, v), 0},
    {"layout", NULL, COLUMN_TEXT, offsetof(row, layout), 0},
    {"n_kv", "n_kv", COLUMN_INT, offsetof(row, n_kv), 0},
    {"n_kv_heads", "KV heads", COLUMN_INT, offsetof(row, n_kv_heads), 0},
    {"threads", "threads", COLUMN_INT, offsetof(row, threads), 0},
    {"device", "device", COLUMN_TEXT, offsetof(row, device), 0},
    {"median_ns", "median ns", COLUMN_REAL, offsetof(row, median_ns), 0},
    {"ns_per_key_head", "ns/key/head", COLUMN_REAL, offsetof(row, ns_per_key_head), 2},
    {"spread", "spread", COLUMN_REAL, offsetof(row, spread), 3},
    {"verified", "verified", COLUMN_BOOL, offsetof(row, verified), 0},
    {"max_err", "max err/tol", COLUMN_REAL, offsetof(row, max_err), 3},
    {"resumed", "from file", COLUMN_BOOL, offsetof(row, resumed), 0},
};

typedef struct tuning {
    const tq_device *device;
    pool *pool;
    const char *file;
    int n_kv, n_kv_heads;
    uint64_t seed;
    bool again;
    tq_tune_file known;
    row *rows;
    int n_rows, n_failed;
} tuning;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

static void add_row(tuning *t, const contract *c, const tq_tune_row *measured, bool resumed) {
    t->rows = realloc(t->rows, (size_t)(t->n_rows + 1) * sizeof *t->rows);
    if (!t->rows)
        cli_fail("out of memory: %d rows", t->n_rows + 1);
    double keys = (double)measured->n_kv * measured->n_kv_heads;
    t->rows[t->n_rows++] = (row){.variant = cli_format("%s", measured->variant),
                                 .op = tq_op_name(c->op),
                                 .k = c->k,
                                 .v = c->v,
                                 .layout = c->layout,
                                 .device = tq_device_name(t->device),
                                 .head_dim = c->head_dim,
                                 .gqa = c->gqa,
                                 .n_kv = measured->n_kv,
                                 .n_kv_heads = measured->n_kv_heads,
                                 .threads = measured->threads,
                                 .median_ns = measured->verified ? measured->median_ns : NAN,
                                 .ns_per_key_head = measured->verified ? measured->median_ns / keys : NAN,
                                 .spread = measured->verified ? measured->spread : NAN,
                                 .max_err = measured->max_err,
                                 .verified = measured->verified != 0,
                                 .resumed = resumed};
}

static int tokens_of(const tuning *t, const contract *c) {
    return harness_launch_tokens(c, t->n_kv);
}

static const tq_tune_row *known_row(const tuning *t, const contract *c, const tq_variant_info *v) {
    for (int i = 0; i < t->known.n_rows && !t->again; i++) {
        const tq_tune_row *r = &t->known.rows[i];
        if (strcmp(r->variant, v->name) == 0 && r->key == v->key && r->n_kv == tokens_of(t, c) &&
            r->n_kv_heads == t->n_kv_heads && r->batch == 1 && r->threads == pool_threads(t->pool))
            return r;
    }
    return NULL;
}

/* What is written of a candidate, but for its times. */
static tq_tune_row verified_row(const tuning *t, const contract *c, const tq_variant_info *v) {
    double error = verify_variant(t->device, t->pool, c, v->name, t->seed);
    tq_tune_row r = {.key = v->key,
                     .n_kv_heads = t->n_kv_heads,
                     .n_kv = tokens_of(t, c),
                     .batch = 1,
                     .threads = pool_threads(t->pool),
                     .verified = error <= 1,
                     .max_err = error};
    snprintf(r.variant, sizeof r.variant, "%s", v->name);
    return r;
}

/* The harness has finished: rows go to the file and to the report. */
static void record(tuning *t, const contract *c, const harness *h, tq_tune_row *rows, int n) {
    int best = 0;
    for (int i = 0; i < n; i++) {
        rows[i].median_ns = stats_median(harness_samples(h, i), harness_rounds(h, i));
        rows[i].spread = stats_spread(harness_samples(h, i), harness_rounds(h, i));
        best = rows[i].median_ns < rows[best].median_ns ? i : best;
        add_row(t, c, &rows[i], false);
    }
    cli_check(tq_tunefile_save(t->file, tq_device_model(t->device), rows, n));
    fprintf(stderr, "    %d timed, best %s %.3f ms\n", n, rows[best].variant, rows[best].median_ns * 1e-6);
}

/* Verifies and times the candidates that the file does not know yet. */
static void tune_contract(tuning *t, const contract *c, double seconds) {
    tq_variant_info v;
    tq_tune_row rows[MAX_CANDIDATES];
    int n = 0, n_known = 0, index = 0;
    harness *h = harness_create(
        &(harness_options){t->device, t->pool, t->n_kv, t->n_kv_heads, t->seed, GIVE_UP, &interrupted, false});
    if (!contract_candidate(t->device, c, &index, &v))
        cli_warn("%s: this build has no kernel that runs here", contract_text(c));
    for (; contract_candidate(t->device, c, &index, &v) && n < MAX_CANDIDATES && !interrupted; index++) {
        const tq_tune_row *known = known_row(t, c, &v);
        if (known) {
            add_row(t, c, known, true);
            n_known++;
            continue;
        }
        rows[n] = verified_row(t, c, &v);
        if (rows[n].verified) {
            harness_add(h, c, v.name);
            n++;
        } else {
            cli_warn("%s: error is %.3g times what is allowed; not timed, not recorded", v.name, rows[n].max_err);
            add_row(t, c, &rows[n], false);
            t->n_failed++;
        }
    }
    if (n_known)
        fprintf(stderr, "    %d known from the file\n", n_known);
    if (n && !interrupted)
        harness_run(h, seconds, LEAST_ROUNDS, MOST_ROUNDS);
    if (n && !interrupted)
        record(t, c, h, rows, n);
    harness_destroy(h);
}

static void read_known(tuning *t) {
    if (access(t->file, F_OK) != 0)
        return;
    cli_check(tq_tunefile_read(t->file, &t->known));
    if (strcmp(t->known.model, tq_device_model(t->device)) != 0) {
        cli_fail("--output %s: holds rows of '%s'; this device is '%s'; name another file", t->file, t->known.model,
                 tq_device_model(t->device));
    }
}

int command_tune(int argc, char **argv) {
    contract_axes axes = CONTRACT_AXES_INIT;
    int n_kv = 0, n_kv_heads = 0, threads = 1, seed = 1;
    double budget = 0;
    bool json = false, again = false;
    const char *file = getenv("TQ_TUNING");
    file = file && *file ? file : "tq-tuning.tsv";
    const cli_option options[] = {
        CONTRACT_OPTIONS(axes),
        {"n-kv", "N", CLI_INT, &n_kv, 1, HARNESS_MAX_N_KV, CONTRACT_N_KV_HELP},
        {"kv-heads", "N", CLI_INT, &n_kv_heads, 1, HARNESS_MAX_KV_HEADS, CONTRACT_KV_HEADS_HELP},
        {"threads", "N", CLI_INT, &threads, 1, POOL_MAX_THREADS, "threads that launch (1)"},
        {"budget", "SECONDS", CLI_REAL, &budget, 0.001, 1e6,
         "timing in all, shared by the contracts; each candidate gets at least\n7 launches (1 per contract)"},
        {"again", NULL, CLI_FLAG, &again, 0, 0, "measure also what the file already knows"},
        {"output", "FILE", CLI_TEXT, &file, 0, 0,
         "also -o; tuning file, rows are merged into it\n"
         "($TQ_TUNING, else ./tq-tuning.tsv)"},
        {"seed", "N", CLI_INT, &seed, 0, 1 << 30, "of the data and of the order (1)"},
        {"json", NULL, CLI_FLAG, &json, 0, 0, "print JSON"},
    };
    const cli_command command = {
        "tune",
        "",
        0,
        "Verifies every candidate of every contract that the axes select (default: all of this\n"
        "build) against the reference, times them interleaved on cold caches, and records each\n"
        "contract as it finishes. An interrupted run resumes.",
        CLI_COUNT(options),
        options};
    cli_parse(&command, argc, argv, NULL);
    contract *contracts;
    int n = contract_list(&axes, &contracts);
    contract_sizes(contract_device(&axes), &n_kv, &n_kv_heads);
    cli_check_writable("output", file);
    tuning t = {.device = contract_device(&axes),
                .file = file,
                .n_kv = n_kv,
                .n_kv_heads = n_kv_heads,
                .seed = (uint64_t)seed,
                .again = again};
    read_known(&t);
    t.pool = pool_create(threads);
    budget = budget > 0 ? budget : n;
    fprintf(stderr, "tuning %d contract%s into %s, about %.0f s of timing, seed %d\n", n, n == 1 ? "" : "s", file,
            budget, seed);
    signal(SIGINT, on_interrupt);
    for (int i = 0; i < n && !interrupted; i++) {
        fprintf(stderr, "[%d/%d] %s\n", i + 1, n, contract_text(&contracts[i]));
        tune_contract(&t, &contracts[i], budget / n);
    }
    const table rows = {columns, CLI_COUNT(columns), t.rows, t.n_rows, sizeof *t.rows};
    cJSON *context = cJSON_CreateObject();
    cJSON_AddStringToObject(context, "file", file);
    cJSON_AddNumberToObject(context, "seed", seed);
    table_print(&rows, json ? TABLE_JSON : TABLE_PLAIN, context, stdout);
    if (interrupted)
        cli_warn("interrupted; contracts that were finished are in %s, the same command resumes", file);
    int status = interrupted ? EXIT_INTERRUPTED : t.n_failed ? EXIT_CHECK_FAILED : t.n_rows ? 0 : EXIT_BAD_ARGUMENT;
    for (int i = 0; i < t.n_rows; i++)
        free((char *)t.rows[i].variant);
    free(t.rows);
    free(contracts);
    tq_tunefile_free(&t.known);
    pool_destroy(t.pool);
    return status;
}
