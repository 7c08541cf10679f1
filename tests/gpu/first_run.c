/* first_run.c: the program behind first_run.sh: PHASE DEVICE DIRECTORY SECONDS [MICRO].
 *   find     writes the GPUs of this machine: name, features, model; ends with 77 if there is none
 *   name     of the files of a device: name DEVICE
 *   micro    rates of single operations and of reading memory                         micro.tsv
 *   verify   every variant that the device runs, against the double-precision reference  verify.tsv
 *   tune     the variants that were right, at three shapes                             tune.tsv and the tuning file
 *   depth    every format against f16 over the depth of the cache                      depth.tsv
 *   report   report.md and its pictures */
#include "first_run.h"

#include "gpu_driver.h"
#include "harness.h"
#include "memory.h"
#include "stats.h"
#include "tunefile.h"
#include "verify.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEED = 1, VARIANT_SECONDS = 60, NO_DEVICE = 77, MAX_CANDIDATES = 64, MAX_CONTRACTS = 64 };

/* ---- tables ----------------------------------------------------------------------------------------------------- */

static char *path_of(const first_run *run, const char *name) {
    return cli_format("%s/%s", run->directory, name);
}

FILE *table_append(const first_run *run, const char *name, const char *names) {
    char *path = path_of(run, name);
    FILE *file = fopen(path, "a");
    if (!file)
        cli_fail("%s: cannot be written", path);
    if (fseek(file, 0, SEEK_END) == 0 && ftell(file) == 0)
        fprintf(file, "%s\n", names);
    free(path);
    return file;
}

static int split(char *line, char **fields) {
    int n = 0;
    for (; n < TABLE_COLUMNS && line; n++) {
        fields[n] = line;
        line = strchr(line, '\t');
        if (line)
            *line++ = '\0';
    }
    for (int i = n; i < TABLE_COLUMNS; i++)
        fields[i] = "";
    return n;
}

text_table table_read(const first_run *run, const char *name) {
    text_table table = {0};
    char *path = path_of(run, name);
    FILE *file = fopen(path, "r");
    free(path);
    if (!file)
        return table;
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    table.text = cli_alloc(bytes + 1, 1);
    table.text[fread(table.text, 1, bytes, file)] = '\0';
    fclose(file);
    int n_lines = 0;
    for (const char *at = table.text; (at = strchr(at, '\n')); at++)
        n_lines++;
    table.rows = cli_alloc((size_t)n_lines + 1, sizeof *table.rows);
    for (char *line = table.text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end)
            *end++ = '\0';
        if (!table.n_columns)
            table.n_columns = split(line, table.names);
        else
            split(line, table.rows[table.n_rows++]);
    }
    return table;
}

void table_free(text_table *table) {
    free(table->rows);
    free(table->text);
}

const char *table_text(const text_table *table, int row, const char *column) {
    for (int i = 0; i < table->n_columns; i++)
        if (strcmp(table->names[i], column) == 0)
            return table->rows[row][i];
    return "";
}

double table_number(const text_table *table, int row, const char *column) {
    const char *text = table_text(table, row, column);
    return *text ? strtod(text, NULL) : NAN;
}

/* "NVIDIA H200": "nvidia-h200" */
static const char *name_of(const tq_device *device) {
    static char name[64];
    char *to = name;
    for (const char *from = tq_device_model(device); *from && to < name + sizeof name - 1; from++)
        if (isalnum((unsigned char)*from))
            *to++ = (char)tolower((unsigned char)*from);
        else if (to > name && to[-1] != '-')
            *to++ = '-';
    while (to > name && to[-1] == '-')
        to--;
    *to = '\0';
    return name;
}

char *first_run_tuning_file(const first_run *run) {
    return cli_format("%s/%s.tsv", run->directory, name_of(run->device));
}

/* ---- find ------------------------------------------------------------------------------------------------------- */

static int find(void) {
    int n = 0;
    for (int i = 0; i < tq_device_count(); i++) {
        const tq_device *device = tq_device_at(i);
        if (device->kind <= TQ_KIND_SIMT)
            continue;
        printf("%s\t%s\t%s\n", device->name, device->features, device->model);
        n++;
    }
    for (int kind = TQ_KIND_CUDA; kind <= TQ_KIND_HIP && !n; kind++)
        fprintf(stderr, "no %s device: %s\n", tq_kind_name((tq_device_kind)kind),
                tq_gpu_absence_of((tq_device_kind)kind)->text);
    return n ? 0 : NO_DEVICE;
}

/* ---- variants and contracts ------------------------------------------------------------------------------------- */

/* The next variant at or after *index that the device runs. */
static bool next_variant(const first_run *run, int *index, tq_variant_info *v) {
    for (; *index < tq_variant_count(); (*index)++) {
        cli_check(tq_variant_at(*index, v));
        if (tq_device_runs(run->device, v->target))
            return true;
    }
    return false;
}

static bool was_right(const text_table *verified, const char *variant) {
    for (int i = 0; i < verified->n_rows; i++)
        if (strcmp(table_text(verified, i, "variant"), variant) == 0)
            return table_number(verified, i, "error") <= 1;
    return false;
}

/* What decode variants of this GQA ratio there are contracts of. */
static int decode_contracts(const first_run *run, int gqa, contract *out) {
    tq_variant_info v;
    int n = 0;
    for (int i = 0; next_variant(run, &i, &v); i++) {
        if (v.op != TQ_OP_DECODE || v.gqa != gqa)
            continue;
        contract c = contract_of(&v);
        int known = 0;
        while (known < n && !contract_equal(&out[known], &c))
            known++;
        if (known == n && n < MAX_CONTRACTS)
            out[n++] = c;
    }
    return n;
}

/* ---- verify ----------------------------------------------------------------------------------------------------- */

typedef struct place {
    int index; /* of the variant */
    int rank;  /* among those that do the same */
} place;

static int by_rank(const void *a, const void *b) {
    const place *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank)
                              : (x->index > y->index) - (x->index < y->index);
}

/* What is to be verified, so that time that is too short leaves something of everything: the first of every contract, then
 * the second. */
static place *verify_order(const first_run *run, int *n) {
    place *order = cli_alloc((size_t)tq_variant_count(), sizeof *order);
    tq_variant_info v, earlier;
    *n = 0;
    for (int i = 0; next_variant(run, &i, &v); i++) {
        if (v.op == TQ_OP_PREFILL)
            continue;
        contract c = contract_of(&v);
        place here = {i, 0};
        for (int j = 0; j < *n; j++) {
            cli_check(tq_variant_at(order[j].index, &earlier));
            contract other = contract_of(&earlier);
            here.rank += contract_equal(&c, &other);
        }
        order[(*n)++] = here;
    }
    qsort(order, (size_t)*n, sizeof *order, by_rank);
    return order;
}

/* From the variant on with which an earlier process ended. A line is begun before its variant is run, so that it tells whose
 * fault it was if this process ends in between. */
static void verify_on(const first_run *run, int done, double until) {
    pool *p = pool_create(pool_processors());
    FILE *file = table_append(run, "verify.tsv", "variant\terror\tseconds");
    int n;
    place *order = verify_order(run, &n);
    for (int i = done; i < n && now_ns() < until; i++) {
        double start = now_ns();
        tq_variant_info v;
        cli_check(tq_variant_at(order[i].index, &v));
        contract c = contract_of(&v);
        fprintf(file, "%s\t", v.name);
        fflush(file);
        alarm(VARIANT_SECONDS);
        double error = verify_variant(run->device, p, &c, v.name, SEED);
        alarm(0);
        fprintf(file, "%.4g\t%.2f\n", error, (now_ns() - start) * 1e-9);
        fflush(file);
        if (!(error <= 1))
            cli_warn("%s: error is %.3g times what is allowed", v.name, error);
    }
    free(order);
    fclose(file);
    pool_destroy(p);
}

static int count_lines(const first_run *run, const char *name) {
    text_table table = table_read(run, name);
    int n = table.n_rows;
    table_free(&table);
    return n;
}

/* A kernel that traps takes its process along; the next one goes on behind it. Only children see the device. */
static void verify(const char *device, first_run *run) {
    double until = now_ns() + run->seconds * 1e9;
    for (int how = 1; how != 0;) {
        int done = count_lines(run, "verify.tsv");
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            cli_check(tq_device_find(device, &run->device));
            verify_on(run, done, until);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &how, 0) != child)
            cli_fail("cannot start a process");
        if (how == 0)
            return;
        if (count_lines(run, "verify.tsv") == done)
            cli_fail("verifying does not even begin");
        FILE *file = table_append(run, "verify.tsv", "");
        fprintf(file, "inf\t%s\n", WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM ? "hung" : "ended the process");
        fclose(file);
    }
}

/* ---- tune ------------------------------------------------------------------------------------------------------- */

typedef struct shape {
    int gqa, n_kv_heads, n_kv;
} shape;

static const shape shapes[] = {{4, 8, 4096}, {4, 8, 65536}, {8, 8, 32768}};
static const shape tiny_shapes[] = {{4, 1, 64}, {4, 1, 160}, {8, 1, 96}};
enum { N_SHAPES = 3 };

static void tune_contract(const first_run *run, const contract *c, const shape *s, const text_table *verified,
                          double seconds) {
    tq_tune_row rows[MAX_CANDIDATES];
    tq_variant_info v;
    pool *p = pool_create(1);
    int n = 0;
    harness *h = harness_create(&(harness_options){run->device, p, s->n_kv, s->n_kv_heads, SEED, 3, NULL, false});
    for (int i = 0; contract_candidate(run->device, c, &i, &v) && n < MAX_CANDIDATES; i++)
        if (was_right(verified, v.name)) {
            harness_add(h, c, v.name);
            rows[n] = (tq_tune_row){
                .key = v.key, .n_kv_heads = s->n_kv_heads, .n_kv = s->n_kv, .batch = 1, .threads = 1, .verified = 1};
            snprintf(rows[n++].variant, sizeof rows[0].variant, "%s", v.name);
        }
    if (n) {
        char *path = first_run_tuning_file(run);
        FILE *file = table_append(run, "tune.tsv",
                                  "gqa\tn_kv_heads\tn_kv\tk\tv\tlayout\tvariant\tmedian_ns\tspread\tcache_bytes");
        harness_run(h, seconds, run->tiny ? 1 : 7, run->tiny ? 1 : 1000);
        for (int i = 0; i < n; i++) {
            rows[i].median_ns = stats_median(harness_samples(h, i), harness_rounds(h, i));
            rows[i].spread = run->tiny ? 0 : stats_spread(harness_samples(h, i), harness_rounds(h, i));
            fprintf(file, "%d\t%d\t%d\t%s\t%s\t%s\t%s\t%.1f\t%.4f\t%.0f\n", c->gqa, s->n_kv_heads, s->n_kv, c->k, c->v,
                    c->layout, rows[i].variant, rows[i].median_ns, rows[i].spread, harness_cache_bytes(h, i));
        }
        fclose(file);
        cli_check(tq_tunefile_save(path, tq_device_model(run->device), rows, n));
        free(path);
    }
    harness_destroy(h);
    pool_destroy(p);
}

static void tune(const first_run *run) {
    text_table verified = table_read(run, "verify.tsv");
    contract contracts[MAX_CONTRACTS];
    double until = now_ns() + run->seconds * 1e9;
    for (int s = 0; s < N_SHAPES; s++) {
        const shape *shape = run->tiny ? &tiny_shapes[s] : &shapes[s];
        int n = decode_contracts(run, shape->gqa, contracts);
        double each = (until - now_ns()) * 1e-9 / (N_SHAPES - s) / (n ? n : 1);
        for (int i = 0; i < n && now_ns() < until; i++)
            tune_contract(run, &contracts[i], shape, &verified, 0.6 * each); /* the rest goes into filling caches */
    }
    table_free(&verified);
}

/* ---- depth ------------------------------------------------------------------------------------------------------ */

/* The variant of a contract that was fastest where n_kv was nearest; NULL if none was measured. */
static const char *tuned_variant(const text_table *tuned, const contract *c, int n_kv) {
    int best = -1;
    double distance = INFINITY;
    for (int i = 0; i < tuned->n_rows; i++) {
        if (table_number(tuned, i, "gqa") != c->gqa || strcmp(table_text(tuned, i, "k"), c->k) != 0 ||
            strcmp(table_text(tuned, i, "v"), c->v) != 0 || strcmp(table_text(tuned, i, "layout"), c->layout) != 0)
            continue;
        double here = fabs(log2(table_number(tuned, i, "n_kv") / n_kv));
        if (here < distance ||
            (here == distance && table_number(tuned, i, "median_ns") < table_number(tuned, best, "median_ns"))) {
            best = i;
            distance = here;
        }
    }
    return best < 0 ? NULL : table_text(tuned, best, "variant");
}

static void compare_at(const first_run *run, int n_kv, int n_kv_heads, const contract *contracts, int n,
                       const text_table *tuned, double seconds) {
    const contract *of[MAX_CONTRACTS];
    pool *p = pool_create(1);
    harness *h = harness_create(&(harness_options){run->device, p, n_kv, n_kv_heads, SEED, 0, NULL, false});
    int n_added = 0, f16 = -1;
    for (int i = 0; i < n; i++) {
        const char *variant = tuned_variant(tuned, &contracts[i], n_kv);
        if (!variant)
            continue;
        if (strcmp(contracts[i].k, "f16") == 0)
            f16 = n_added;
        of[n_added++] = &contracts[i];
        harness_add(h, &contracts[i], variant);
    }
    FILE *file =
        table_append(run, "depth.tsv", "n_kv\tk\tv\tlayout\tvariant\tmedian_ns\tspeedup\tlow\thigh\tcache_bytes");
    if (n_added)
        harness_run(h, seconds, run->tiny ? 1 : 9, run->tiny ? 1 : 1000);
    for (int i = 0; i < n_added; i++) {
        int rounds = harness_rounds(h, i);
        double *ratios = cli_alloc((size_t)rounds, sizeof *ratios);
        for (int r = 0; r < rounds; r++)
            ratios[r] = f16 < 0 ? NAN : harness_samples(h, f16)[r] / harness_samples(h, i)[r];
        interval between = stats_median_interval(ratios, rounds);
        fprintf(file, "%d\t%s\t%s\t%s\t%s\t%.1f\t%.4f\t%.4f\t%.4f\t%.0f\n", n_kv, of[i]->k, of[i]->v, of[i]->layout,
                harness_variant(h, i), stats_median(harness_samples(h, i), rounds), stats_median(ratios, rounds),
                between.low, between.high, harness_cache_bytes(h, i));
        free(ratios);
    }
    fclose(file);
    harness_destroy(h);
    pool_destroy(p);
}

static void depth(const first_run *run) {
    text_table tuned = table_read(run, "tune.tsv");
    contract contracts[MAX_CONTRACTS];
    int gqa = 4, n = decode_contracts(run, gqa, contracts);
    int first = run->tiny ? 64 : 1024, last = run->tiny ? 256 : 131072, steps = 1;
    for (int n_kv = first; n_kv < last; n_kv *= 2)
        steps++;
    double until = now_ns() + run->seconds * 1e9;
    for (int n_kv = first; n_kv <= last && now_ns() < until; n_kv *= 2, steps--)
        compare_at(run, n_kv, run->tiny ? 1 : 8, contracts, n, &tuned, 0.6 * (until - now_ns()) * 1e-9 / steps);
    table_free(&tuned);
}

/* ---- all -------------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "find") == 0)
        return find();
    if (argc == 3 && strcmp(argv[1], "name") == 0) {
        const tq_device *device;
        cli_check(tq_device_find(argv[2], &device));
        puts(name_of(device));
        return 0;
    }
    if (argc < 5 || argc > 6)
        cli_fail("first_run PHASE DEVICE DIRECTORY SECONDS [MICRO]");
    const char *phase = argv[1], *device = argv[2];
    first_run run = {.directory = argv[3],
                     .micro = argc == 6 ? argv[5] : "",
                     .seconds = atof(argv[4]),
                     .tiny = strncmp(device, "simt", 4) == 0};
    if (strcmp(phase, "verify") == 0) {
        verify(device, &run);
        return 0;
    }
    cli_check(tq_device_find(device, &run.device));
    if (strcmp(phase, "micro") == 0)
        first_run_micro(&run);
    else if (strcmp(phase, "tune") == 0)
        tune(&run);
    else if (strcmp(phase, "depth") == 0)
        depth(&run);
    else if (strcmp(phase, "report") == 0)
        first_run_report(&run);
    else
        cli_fail("there is no phase '%s'", phase);
    return 0;
}
