/* info.c: `tq info`: what this build holds and what this machine can run of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "cli.h"
#include "gpu_driver.h"
#include "table.h"
#include "tunefile.h"

typedef struct device_row {
    const char *device, *model, *features, *runs, *runs_not;
} device_row;

static const column device_columns[] = {
    {"device", "device", COLUMN_TEXT, offsetof(device_row, device), 0},
    {"model", "model", COLUMN_TEXT, offsetof(device_row, model), 0},
    {"targets", "runs", COLUMN_TEXT, offsetof(device_row, runs), 0},
    {"targets_not", "does not run", COLUMN_TEXT, offsetof(device_row, runs_not), 0},
    {"features", "features", COLUMN_TEXT, offsetof(device_row, features), 0},
};

typedef struct variant_row {
    const char *device, *op, *target;
    int variants;
    bool runs_here;
} variant_row;

static const column variant_columns[] = {
    {"device", "device", COLUMN_TEXT, offsetof(variant_row, device), 0},
    {"op", "op", COLUMN_TEXT, offsetof(variant_row, op), 0},
    {"target", "target", COLUMN_TEXT, offsetof(variant_row, target), 0},
    {"variants", "variants", COLUMN_INT, offsetof(variant_row, variants), 0},
    {"runs_here", "runs here", COLUMN_BOOL, offsetof(variant_row, runs_here), 0},
};

typedef struct format_row {
    const char *format, *modes;
    int head_dim, bits, block, row_bytes;
    bool rotated;
    double bytes_per_value;
} format_row;

static const column format_columns[] = {
    {"format", "format", COLUMN_TEXT, offsetof(format_row, format), 0},
    {"head_dim", "head_dim", COLUMN_INT, offsetof(format_row, head_dim), 0},
    {"bits", "bits", COLUMN_INT, offsetof(format_row, bits), 0},
    {"block", "block", COLUMN_INT, offsetof(format_row, block), 0},
    {"row_bytes", "row bytes", COLUMN_INT, offsetof(format_row, row_bytes), 0},
    {"bytes_per_value", "bytes/value", COLUMN_REAL, offsetof(format_row, bytes_per_value), 4},
    {"rotated", "rotated", COLUMN_BOOL, offsetof(format_row, rotated), 0},
    {"modes", "scale modes", COLUMN_TEXT, offsetof(format_row, modes), 0},
};

enum { MAX_TARGETS = 32, N_OPS = TQ_OP_PREFILL + 1, MAX_DEVICES = 64 };

/* Variants by (target, op), in registry order of the targets. Where no device runs them, their kind stands for it. */
static int collect_variants(variant_row *rows) {
    int n = 0;
    tq_variant_info v;
    for (int i = 0; i < tq_variant_count(); i++) {
        cli_check(tq_variant_at(i, &v));
        int at = 0;
        while (at < n && (strcmp(rows[at].target, v.target) || strcmp(rows[at].op, tq_op_name(v.op))))
            at++;
        if (at == MAX_TARGETS * N_OPS)
            continue;
        if (at == n)
            rows[n++] = (variant_row){v.device ? v.device : v.kind, tq_op_name(v.op), v.target, 0, v.runs_here != 0};
        rows[at].variants++;
    }
    return n;
}

static int collect_devices(device_row *rows, int most, const variant_row *variants, int n_variants) {
    int n = tq_device_count() < most ? tq_device_count() : most;
    for (int d = 0; d < n; d++) {
        const tq_device *device = tq_device_at(d);
        char *lists[2] = {cli_format("%s", ""), cli_format("%s", "")};
        for (int i = 0; i < n_variants; i++) {
            char **list = &lists[!tq_device_runs(device, variants[i].target)];
            int first = 0;
            while (strcmp(variants[first].target, variants[i].target))
                first++;
            if (first == i) {
                char *longer = cli_format("%s%s%s", *list, **list ? " " : "", variants[i].target);
                free(*list);
                *list = longer;
            }
        }
        rows[d] = (device_row){tq_device_name(device), tq_device_model(device), tq_device_features(device), lists[0],
                               lists[1]};
    }
    return n;
}

static format_row *collect_formats(int *n) {
    *n = tq_format_count();
    format_row *rows = cli_alloc((size_t)*n, sizeof *rows);
    for (int i = 0; i < *n; i++) {
        tq_format_info f;
        cli_check(tq_format_at(i, &f));
        rows[i] =
            (format_row){f.name, f.modes, f.head_dim, f.bits, f.block, f.row_bytes, f.rotated != 0, f.bytes_per_value};
    }
    return rows;
}

static bool is_model_here(const char *model) {
    for (int i = 0; i < tq_device_count(); i++)
        if (strcmp(tq_device_model(tq_device_at(i)), model) == 0)
            return true;
    return false;
}

/* The sentence about the tuning file that plans read. */
static char *tuning_text(const char *path) {
    if (!path || !*path)
        return cli_format("none, since TQ_TUNING is not set: plans go by the registry's order");
    tq_tune_file file;
    if (tq_tunefile_read(path, &file) != TQ_OK)
        return cli_format("%s, from TQ_TUNING, cannot be used: %s", path, tq_error_message());
    int live = 0;
    for (int i = 0; i < file.n_rows; i++)
        live += tq_tune_row_is_live(&file.rows[i]);
    char *text =
        is_model_here(file.model)
            ? cli_format("%s, from TQ_TUNING: %d rows, %d of them for variants of this build", path, file.n_rows, live)
            : cli_format("%s, from TQ_TUNING, is of another device: %s", path, file.model);
    tq_tunefile_free(&file);
    return text;
}

/* Why a kind of GPU is missing; NULL if it is not. */
static const char *absence_of(int kind) {
    const char *text = tq_gpu_absence_of((tq_device_kind)kind)->text;
    return text[0] ? text : NULL;
}

int command_info(int argc, char **argv) {
    bool json = false;
    const cli_option options[] = {{"json", NULL, CLI_FLAG, &json, 0, 0, "print JSON"}};
    const cli_command command = {
        "info",
        "",
        0,
        "Devices, the targets that run here and those that do not, variants per device and op,\n"
        "formats, and the tuning file in use.",
        CLI_COUNT(options),
        options};
    cli_parse(&command, argc, argv, NULL);
    variant_row variants[MAX_TARGETS * N_OPS];
    device_row devices[MAX_DEVICES];
    int n_variants = collect_variants(variants), n_formats;
    int n_devices = collect_devices(devices, CLI_COUNT(devices), variants, n_variants);
    format_row *formats = collect_formats(&n_formats);
    const char *tuning = getenv("TQ_TUNING");
    char *why = tuning_text(tuning);

    const table device_table = {device_columns, CLI_COUNT(device_columns), devices, n_devices, sizeof *devices};
    const table variant_table = {variant_columns, CLI_COUNT(variant_columns), variants, n_variants, sizeof *variants};
    const table format_table = {format_columns, CLI_COUNT(format_columns), formats, n_formats, sizeof *formats};
    if (json) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "version", tq_version_string());
        cJSON_AddItemToObject(object, "tuning_file", tuning ? cJSON_CreateString(tuning) : cJSON_CreateNull());
        cJSON_AddStringToObject(object, "tuning_why", why);
        for (int kind = TQ_KIND_CUDA; kind <= TQ_KIND_HIP; kind++) {
            char name[32];
            snprintf(name, sizeof name, "missing_%s", tq_kind_name((tq_device_kind)kind));
            cJSON_AddItemToObject(object, name,
                                  absence_of(kind) ? cJSON_CreateString(absence_of(kind)) : cJSON_CreateNull());
        }
        cJSON_AddItemToObject(object, "variants", table_json(&variant_table));
        cJSON_AddItemToObject(object, "formats", table_json(&format_table));
        table_print(&device_table, TABLE_JSON, object, stdout);
    } else {
        printf("libtq %s\n\nDevices\n", tq_version_string());
        table_print(&device_table, TABLE_PLAIN, NULL, stdout);
        for (int kind = TQ_KIND_CUDA; kind <= TQ_KIND_HIP; kind++)
            if (absence_of(kind))
                printf("Missing %s devices: %s\n", tq_kind_name((tq_device_kind)kind), absence_of(kind));
        printf("\nTuning file: %s\n\nVariants\n", why);
        table_print(&variant_table, TABLE_PLAIN, NULL, stdout);
        printf("\nFormats\n");
        table_print(&format_table, TABLE_PLAIN, NULL, stdout);
    }
    for (int i = 0; i < n_devices; i++) {
        free((char *)devices[i].runs);
        free((char *)devices[i].runs_not);
    }
    free(formats);
    free(why);
    return 0;
}
