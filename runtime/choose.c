/* choose.c: which candidate a plan runs: by pin, tuning file, measurement, or registry order. */
#include "internal.h"
#include "tunefile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Times closer than this are a tie, which registry order decides. */
static const double tie = 1.02;

tq_status tq_check_pin(const tq_device *device, const char *pin) {
    const tq_registry *registry;
    if (!pin)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_plan_create: desc.pin is NULL; TQ_EFFORT_PINNED needs a variant name");
    if (!tq_variant_find(pin, &registry))
        return tq_fail(TQ_ERR_ARGUMENT,
                       "tq_plan_create: desc.pin is '%s', which is no variant of this build; tq_variant_at lists them",
                       pin);
    if (registry->kind != device->kind)
        return tq_fail(TQ_ERR_DEVICE, "tq_plan_create: desc.pin '%s' is for %s devices%s%s; device %s is of kind %s",
                       pin, tq_kind_name(registry->kind), *registry->needs ? " with " : "", registry->needs,
                       device->name, tq_kind_name(device->kind));
    if (!tq_device_has(device, registry->needs))
        return tq_fail(TQ_ERR_DEVICE, "tq_plan_create: desc.pin '%s' needs %s; device %s has %s", pin, registry->needs,
                       device->name, device->features);
    return TQ_OK;
}

static void move_to_front(tq_plan *plan, int index) {
    const tq_variant *chosen = plan->candidates[index];
    memmove(plan->candidates + 1, plan->candidates, (size_t)index * sizeof *plan->candidates);
    plan->candidates[0] = chosen;
}

static tq_status choose_pinned(tq_plan *plan, const char *pin) {
    tq_list names = {""};
    for (int i = 0; i < plan->n_candidates; i++) {
        if (strcmp(plan->candidates[i]->name, pin) == 0) {
            move_to_front(plan, i);
            snprintf(plan->why, sizeof plan->why, "pinned by the caller; %d other candidates", plan->n_candidates - 1);
            return TQ_OK;
        }
        tq_list_add(&names, plan->candidates[i]->name);
    }
    return tq_fail(TQ_ERR_ARGUMENT, "tq_plan_create: desc.pin '%s' is not for this shape; legal are: %s", pin,
                   names.text);
}

/* Orders by times[i], INFINITY where a candidate was not measured, and appends the numbers to why. */
static void choose_fastest(tq_plan *plan, double *times) {
    int n = plan->n_candidates, n_measured = 0, winner = 0;
    double best = INFINITY;
    for (int i = 0; i < n; i++) {
        best = times[i] < best ? times[i] : best;
        n_measured += times[i] < INFINITY;
    }
    while (times[winner] > tie * best)
        winner++;
    const tq_variant *chosen = plan->candidates[winner];
    double chosen_time = times[winner];
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && times[j] < times[j - 1]; j--) {
            double time = times[j];
            const tq_variant *candidate = plan->candidates[j];
            times[j] = times[j - 1];
            times[j - 1] = time;
            plan->candidates[j] = plan->candidates[j - 1];
            plan->candidates[j - 1] = candidate;
        }
    for (int i = 0; i < n; i++)
        if (plan->candidates[i] == chosen)
            winner = i;
    move_to_front(plan, winner);

    size_t used = strlen(plan->why);
    char *rest = plan->why + used;
    size_t room = sizeof plan->why - used;
    if (n_measured > 1) /* the next is the fastest of the others */
        snprintf(rest, room, ": %.0f ns; next %s %.0f ns%s; %d of %d candidates measured", chosen_time,
                 plan->candidates[1]->name, winner ? best : times[1],
                 winner ? " (within 2 %, registry order decides)" : "", n_measured, n);
    else
        snprintf(rest, room, ": %.0f ns; the only one measured of %d candidates", chosen_time, n);
}

/* ---- tuning file ------------------------------------------------------------------------------------------------ */

static int same_vendor(const char *a, const char *b) {
    size_t n = strcspn(a, " ");
    return n == strcspn(b, " ") && strncmp(a, b, n) == 0;
}

static int candidate_of(const tq_plan *plan, const tq_tune_row *row) {
    for (int i = 0; i < plan->n_candidates; i++)
        if (row->verified && row->key == plan->candidates[i]->key &&
            strcmp(row->variant, plan->candidates[i]->name) == 0)
            return i;
    return -1;
}

static double octaves(int a, int b) {
    return fabs(log2((double)a / (double)b));
}

/* How far a measurement is from the plan: n_kv decides, then threads, batch, KV heads. */
static double distance(const tq_tune_row *row, const tq_plan_desc *desc) {
    return 1e6 * octaves(row->n_kv, desc->max_n_kv) + 1e4 * octaves(row->threads, desc->n_threads) +
           1e2 * octaves(row->batch, desc->max_batch) + octaves(row->n_kv_heads, desc->n_kv_heads);
}

/* Fills times from the rows measured under the conditions nearest to the plan; those rows can be compared. */
static const tq_tune_row *nearest_times(const tq_plan *plan, const tq_plan_desc *desc, const tq_tune_file *file,
                                        double *times) {
    const tq_tune_row *nearest = NULL;
    for (int i = 0; i < file->n_rows; i++)
        if (candidate_of(plan, &file->rows[i]) >= 0 &&
            (!nearest || distance(&file->rows[i], desc) < distance(nearest, desc)))
            nearest = &file->rows[i];
    for (int i = 0; i < file->n_rows && nearest; i++) {
        const tq_tune_row *row = &file->rows[i];
        int candidate = candidate_of(plan, row);
        if (candidate >= 0 && row->n_kv == nearest->n_kv && row->threads == nearest->threads &&
            row->batch == nearest->batch && row->n_kv_heads == nearest->n_kv_heads)
            times[candidate] = row->median_ns;
    }
    return nearest;
}

/* A tuning file decided if *decided; else why tells what was the matter. */
static tq_status choose_from_file(tq_plan *plan, const tq_plan_desc *desc, double *times, int *decided) {
    struct stat exists;
    const char *path = desc->tuning_file ? desc->tuning_file : getenv("TQ_TUNING"), *here = plan->device->model;
    if (!path || !*path) {
        snprintf(plan->why, sizeof plan->why, "no tuning file was given");
        return TQ_OK;
    }
    if (!desc->tuning_file && stat(path, &exists) != 0) {
        snprintf(plan->why, sizeof plan->why, "tuning file '%.200s' of $TQ_TUNING does not exist", path);
        return TQ_OK;
    }
    tq_tune_file file;
    tq_status status = tq_tunefile_read(path, &file);
    if (status)
        return status;
    const tq_tune_row *nearest = same_vendor(file.model, here) ? nearest_times(plan, desc, &file, times) : NULL;
    if (!same_vendor(file.model, here)) {
        snprintf(plan->why, sizeof plan->why, "tuning file '%.200s' is of %s, this device is %s", path, file.model,
                 here);
    } else if (!nearest) {
        snprintf(plan->why, sizeof plan->why, "tuning file '%.200s' has no verified row for these kernels", path);
    } else {
        const char *model = strcmp(file.model, here) == 0 ? "this device model" : file.model;
        snprintf(plan->why, sizeof plan->why, "tuning file '%.200s' of %s, n_kv %d, threads %d, batch %d, KV heads %d",
                 path, model, nearest->n_kv, nearest->threads, nearest->batch, nearest->n_kv_heads);
        choose_fastest(plan, times);
        *decided = 1;
    }
    tq_tunefile_free(&file);
    return TQ_OK;
}

/* ---- all together ----------------------------------------------------------------------------------------------- */

static tq_status choose_measured(tq_plan *plan, double *times) {
    int n_kv;
    tq_status status = tq_measure(plan, times, &n_kv);
    if (status)
        return status;
    if (tq_on_gpu(plan))
        snprintf(plan->why, sizeof plan->why, "measured now on %s with n_kv %d", plan->device->name, n_kv);
    else
        snprintf(plan->why, sizeof plan->why, "measured now on one thread with n_kv %d", n_kv);
    choose_fastest(plan, times);
    return TQ_OK;
}

static tq_status choose(tq_plan *plan, const tq_plan_desc *desc, double *times) {
    int decided = 0;
    if (desc->effort == TQ_EFFORT_PINNED)
        return choose_pinned(plan, desc->pin);
    if (desc->effort == TQ_EFFORT_MEASURE)
        return choose_measured(plan, times);
    tq_status status = choose_from_file(plan, desc, times, &decided);
    if (status || decided)
        return status;
    char reason[sizeof plan->why];
    memcpy(reason, plan->why, sizeof reason);
    if (desc->effort == TQ_EFFORT_FILE_ONLY)
        return tq_fail(TQ_ERR_UNSUPPORTED, "tq_plan_create: desc.effort is TQ_EFFORT_FILE_ONLY, and %s", reason);
    snprintf(plan->why, sizeof plan->why, "first of %d candidates in registry order; %.500s", plan->n_candidates,
             reason);
    return TQ_OK;
}

tq_status tq_choose(tq_plan *plan, const tq_plan_desc *desc) {
    double *times = malloc((size_t)plan->n_candidates * sizeof *times);
    if (!times)
        return tq_fail(TQ_ERR_MEMORY, "tq_plan_create: out of memory");
    for (int i = 0; i < plan->n_candidates; i++)
        times[i] = INFINITY;
    tq_status status = choose(plan, desc, times);
    free(times);
    return status;
}
