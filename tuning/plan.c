/* plan.c: `tq plan`: what libtq chooses for one shape, and why. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "contract.h"
#include "table.h"

static tq_effort parse_effort(const char *text) {
    static const struct {
        const char *name;
        tq_effort effort;
    } efforts[] = {{"default", TQ_EFFORT_DEFAULT}, {"measure", TQ_EFFORT_MEASURE}, {"file-only", TQ_EFFORT_FILE_ONLY}};
    for (int i = 0; i < CLI_COUNT(efforts); i++)
        if (strcmp(text, efforts[i].name) == 0)
            return efforts[i].effort;
    cli_fail("--effort %s: expected default, measure or file-only", text);
}

static void print_json(const contract *c, const char *device, const tq_plan *plan) {
    cJSON *row = cJSON_CreateObject(), *object = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "variant", tq_plan_variant(plan));
    cJSON_AddStringToObject(row, "why", tq_plan_why(plan));
    cJSON_AddStringToObject(row, "op", tq_op_name(c->op));
    cJSON_AddNumberToObject(row, "head_dim", c->head_dim);
    cJSON_AddNumberToObject(row, "gqa", c->gqa);
    cJSON_AddItemToObject(row, "k", c->k ? cJSON_CreateString(c->k) : cJSON_CreateNull());
    cJSON_AddItemToObject(row, "v", c->v ? cJSON_CreateString(c->v) : cJSON_CreateNull());
    cJSON_AddStringToObject(row, "layout", c->layout);
    cJSON_AddStringToObject(row, "device", device);
    cJSON_AddNumberToObject(row, "splits", tq_plan_splits(plan));
    cJSON_AddNumberToObject(row, "workspace_bytes", (double)tq_plan_workspace_bytes(plan));
    cJSON *others = cJSON_AddArrayToObject(row, "runners_up");
    const char *other;
    for (int i = 0; (other = tq_plan_runner_up(plan, i)); i++)
        cJSON_AddItemToArray(others, cJSON_CreateString(other));
    cJSON_AddItemToArray(cJSON_AddArrayToObject(object, "rows"), row);
    json_print(object, stdout);
}

static void print_plain(const contract *c, const char *device, const tq_plan *plan) {
    const bool rows = strcmp(c->layout, "rows") == 0; /* else the text says it */
    printf("contract    %s%s, on %s\n", contract_text(c), rows ? ", rows" : "", device);
    printf("variant     %s\n", tq_plan_variant(plan));
    printf("why         %s\n", tq_plan_why(plan));
    if (c->op == TQ_OP_DECODE)
        printf("splits      %d\n", tq_plan_splits(plan));
    if (tq_plan_workspace_bytes(plan))
        printf("workspace   %zu bytes\n", tq_plan_workspace_bytes(plan));
    const char *other;
    for (int i = 0; (other = tq_plan_runner_up(plan, i)); i++)
        printf("%-11s %s\n", i ? "" : "runners-up", other);
}

int command_plan(int argc, char **argv) {
    const char *op = "decode", *device_name = "cpu", *pin = NULL, *tuning = NULL, *effort = "default";
    contract c = {.head_dim = 128, .gqa = 4, .layout = "rows"};
    int n_kv = CONTRACT_N_KV, n_kv_heads = CONTRACT_KV_HEADS, threads = 1;
    bool json = false;
    const cli_option options[] = {
        {"op", "OP", CLI_TEXT, &op, 0, 0, "decode, append, dequantise, repack or prefill (decode)"},
        {"head-dim", "N", CLI_INT, &c.head_dim, 1, 1 << 16, "values per head vector (128)"},
        {"gqa", "N", CLI_INT, &c.gqa, 1, 1 << 16, "query heads per KV head (4)"},
        {"k", "FORMAT", CLI_TEXT, &c.k, 0, 0, "K format; without --v, V takes the same one"},
        {"v", "FORMAT", CLI_TEXT, &c.v, 0, 0, "V format; append and dequantise take one of --k and --v"},
        {"layout", "NAME", CLI_TEXT, &c.layout, 0, 0, "cache layout (rows)"},
        {"device", "NAME", CLI_TEXT, &device_name, 0, 0, "device (cpu)"},
        {"n-kv", "N", CLI_INT, &n_kv, 1, 1 << 30, "keys per sequence, at most (16384)"},
        {"kv-heads", "N", CLI_INT, &n_kv_heads, 1, 4096, "KV heads (8)"},
        {"threads", "N", CLI_INT, &threads, 1, 1 << 16, "threads that will launch (1)"},
        {"pin", "VARIANT", CLI_TEXT, &pin, 0, 0, "exactly this variant"},
        {"tuning", "FILE", CLI_TEXT, &tuning, 0, 0, "tuning file ($TQ_TUNING)"},
        {"effort", "NAME", CLI_TEXT, &effort, 0, 0, "default, measure or file-only (default)"},
        {"json", NULL, CLI_FLAG, &json, 0, 0, "print JSON"},
    };
    const cli_command command = {
        "plan", "", 0, "The variant that libtq chooses for a shape, why, and the runners-up.", CLI_COUNT(options),
        options};
    cli_parse(&command, argc, argv, NULL);
    cli_check(tq_op_parse(op, &c.op));
    const bool attends = tq_attends(c.op);
    if (attends) {
        c.k = c.k ? c.k : c.v;
        c.v = c.v ? c.v : c.k;
    } else if (c.k && c.v) {
        cli_fail("--k %s --v %s: %s works on one side, expected one of them", c.k, c.v, op);
    }
    if (!c.k && !c.v)
        cli_fail("--k FORMAT: missing; tq info lists the formats");
    c.side = c.k ? TQ_SIDE_K : TQ_SIDE_V;
    tq_plan_desc desc = contract_plan(&c, n_kv_heads, n_kv, threads);
    desc.effort = pin ? TQ_EFFORT_PINNED : parse_effort(effort);
    desc.pin = pin;
    desc.tuning_file = tuning;
    const tq_device *device;
    tq_plan *plan;
    cli_check(tq_device_find(device_name, &device));
    cli_check(tq_plan_create(device, &desc, &plan));
    c.gqa = attends ? c.gqa : 0;
    (json ? print_json : print_plain)(&c, device_name, plan);
    tq_plan_destroy(plan);
    return 0;
}
