/* registry.c: the generated registries: which formats and variants this build has, and which device runs them. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ADDED = 64 };

static const tq_registry *added[MAX_ADDED];
static int n_added;

int tq_registry_count(void) {
    return tq_n_builtin_registries + n_added;
}

const tq_registry *tq_registry_at(int index) {
    return index < n_added ? added[n_added - 1 - index] : tq_builtin_registries[index - n_added];
}

tq_status tq_registry_add(const tq_registry *registry) {
    if (!registry)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_registry_add: registry is NULL");
    if (registry->abi != TQ_KERNEL_ABI)
        return tq_fail(TQ_ERR_UNSUPPORTED,
                       "tq_registry_add: the registry has kernel ABI %d; this libtq has %d; generate it again",
                       registry->abi, TQ_KERNEL_ABI);
    for (int i = 0; i < tq_registry_count(); i++)
        if (tq_registry_at(i) == registry)
            return TQ_OK;
    if (n_added == MAX_ADDED)
        return tq_fail(TQ_ERR_UNSUPPORTED, "tq_registry_add: %d registries were added; that is the limit", MAX_ADDED);
    added[n_added++] = registry;
    return TQ_OK;
}

int tq_device_has(const tq_device *device, const char *needs) {
    return tq_has_words(device->features, needs);
}

int tq_device_runs_registry(const tq_device *device, const tq_registry *registry) {
    return device->kind == registry->kind && tq_device_has(device, registry->needs);
}

int tq_device_runs(const tq_device *device, const char *target) {
    if (!device || !target)
        return 0;
    for (int i = 0; i < tq_registry_count(); i++)
        if (strcmp(tq_registry_at(i)->target, target) == 0)
            return tq_device_runs_registry(device, tq_registry_at(i));
    return 0;
}

/* ---- formats ---------------------------------------------------------------------------------------------------- */

/* Registries of several targets hold the same formats; each counts once, where it stands first. */
static int seen_before(int registry, const tq_format_spec *spec) {
    for (int r = 0; r < registry; r++)
        for (int f = 0; f < tq_registry_at(r)->n_formats; f++) {
            const tq_format_spec *other = tq_registry_at(r)->formats[f];
            if (other->head_dim == spec->head_dim && strcmp(other->name, spec->name) == 0)
                return 1;
        }
    return 0;
}

const tq_format_spec *tq_format_spec_at(int index) {
    for (int r = 0; r < tq_registry_count() && index >= 0; r++)
        for (int f = 0; f < tq_registry_at(r)->n_formats; f++) {
            const tq_format_spec *spec = tq_registry_at(r)->formats[f];
            if (!seen_before(r, spec) && index-- == 0)
                return spec;
        }
    return NULL;
}

int tq_format_count(void) {
    int n = 0;
    while (tq_format_spec_at(n))
        n++;
    return n;
}

static void describe(const tq_format_spec *spec, tq_format_info *out) {
    *out = (tq_format_info){.name = spec->name,
                            .head_dim = spec->head_dim,
                            .bits = spec->bits,
                            .block = spec->block,
                            .row_bytes = spec->row_bytes,
                            .rotated = spec->rotated,
                            .bytes_per_value = (double)spec->row_bytes / spec->head_dim,
                            .modes = spec->modes};
}

tq_status tq_format_at(int index, tq_format_info *out) {
    const tq_format_spec *spec = tq_format_spec_at(index);
    if (!out)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_format_at: out is NULL");
    if (!spec)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_format_at: index is %d; legal is 0 to %d", index, tq_format_count() - 1);
    describe(spec, out);
    return TQ_OK;
}

tq_status tq_format_lookup(const char *argument, const char *name, int head_dim, const tq_format_spec **out) {
    const tq_format_spec *spec;
    tq_list names = {""}, head_dims = {""};
    int below = 0, above = 0;
    for (int i = 0; (spec = tq_format_spec_at(i)); i++) {
        tq_list_add(&names, spec->name);
        if (strcmp(spec->name, name) != 0)
            continue;
        if (spec->head_dim == head_dim) {
            *out = spec;
            return TQ_OK;
        }
        char number[16];
        snprintf(number, sizeof number, "%d", spec->head_dim);
        tq_list_add(&head_dims, number);
        if (spec->head_dim < head_dim && spec->head_dim > below)
            below = spec->head_dim;
        if (spec->head_dim > head_dim && (!above || spec->head_dim < above))
            above = spec->head_dim;
    }
    if (!head_dims.text[0])
        return tq_fail(TQ_ERR_UNSUPPORTED, "%s is '%s', which this build does not have; legal are %s", argument, name,
                       names.text);
    int nearest = below && (!above || head_dim - below <= above - head_dim) ? below : above;
    return tq_fail(TQ_ERR_UNSUPPORTED, "head_dim is %d; for %s '%s' this build has %s, nearest %d", head_dim, argument,
                   name, head_dims.text, nearest);
}

tq_status tq_format_find(const char *name, int head_dim, tq_format_info *out) {
    const tq_format_spec *spec;
    if (!name || !out)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_format_find: %s is NULL", name ? "out" : "name");
    tq_status status = tq_format_lookup("format", name, head_dim, &spec);
    if (!status)
        describe(spec, out);
    return status;
}

int tq_v_head_dim(int head_dim) {
    for (int r = 0; r < tq_registry_count(); r++)
        for (int i = 0; i < tq_registry_at(r)->n_variants; i++) {
            const tq_variant *v = tq_registry_at(r)->variants[i];
            if (v->k && v->v && v->k->head_dim == head_dim)
                return v->v->head_dim;
        }
    return head_dim;
}

/* The first of space-separated words. */
static tq_scale_mode first_mode(const char *modes) {
    for (int m = TQ_SCALE_NONE; m <= TQ_SCALE_SEARCHED; m++) {
        const char *name = tq_scale_mode_name((tq_scale_mode)m);
        if (strcspn(modes, " ") == strlen(name) && strncmp(modes, name, strlen(name)) == 0)
            return (tq_scale_mode)m;
    }
    return TQ_SCALE_DEFAULT;
}

tq_status tq_resolve_mode(const char *call, const tq_format_spec *format, tq_scale_mode mode, int *out) {
    if (mode != TQ_SCALE_DEFAULT && !tq_has_word(format->modes, tq_scale_mode_name(mode)))
        return tq_fail(TQ_ERR_ARGUMENT, "%s: args.mode is %s (%d), which '%s' does not have; legal are: default%s%s",
                       call, tq_scale_mode_name(mode), (int)mode, format->name, format->modes[0] ? " " : "",
                       format->modes);
    *out = (int)(mode == TQ_SCALE_DEFAULT ? first_mode(format->modes) : mode);
    return TQ_OK;
}

/* ---- layouts ---------------------------------------------------------------------------------------------------- */

size_t tq_unit_bytes(const tq_format_spec *format, const char *layout, int keys_per_unit) {
    enum { SCALE_BYTES = 2, GAIN_BITS = 4 };
    if (keys_per_unit == 1 || strcmp(layout, "tile_cpu") == 0)
        return (size_t)keys_per_unit * (size_t)format->row_bytes;
    /* Of each chunk and key: codes, gain codes, one scale. */
    const int size = format->chunks[0].size;
    size_t gains = format->sub ? (size_t)(size / format->sub) * GAIN_BITS / 8 : 0;
    size_t per_key = (size_t)(size * format->bits / 8) + gains + SCALE_BYTES;
    return (size_t)format->n_chunks * (size_t)keys_per_unit * per_key;
}

static int has_format(const tq_format_spec *found, const tq_format_spec *wanted) {
    return found && found->head_dim == wanted->head_dim && strcmp(found->name, wanted->name) == 0;
}

/* Layouts are known by the variants that work on them. */
tq_status tq_layout_lookup(const char *layout, const tq_format_spec *format, int *keys_per_unit) {
    tq_list known = {"rows"};
    *keys_per_unit = 1;
    if (strcmp(layout, "rows") == 0)
        return TQ_OK;
    for (int r = 0; r < tq_registry_count(); r++)
        for (int i = 0; i < tq_registry_at(r)->n_variants; i++) {
            const tq_variant *v = tq_registry_at(r)->variants[i];
            if (!has_format(v->k, format) && !has_format(v->v, format))
                continue;
            if (strcmp(v->layout, layout) == 0) {
                *keys_per_unit = tq_keys_per_unit(v);
                return TQ_OK;
            }
            tq_list_add(&known, v->layout);
        }
    return tq_fail(TQ_ERR_UNSUPPORTED, "layout is '%s'; for format '%s' at head_dim %d this build has: %s", layout,
                   format->name, format->head_dim, known.text);
}

tq_status tq_layout_find(const char *layout, const char *format, int head_dim, tq_layout_info *out) {
    const tq_format_spec *spec;
    int keys_per_unit;
    if (!layout || !format || !out)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_layout_find: %s is NULL", !layout ? "layout" : !format ? "format" : "out");
    tq_status status = tq_format_lookup("format", format, head_dim, &spec);
    if (status || (status = tq_layout_lookup(layout, spec, &keys_per_unit)))
        return status;
    *out = (tq_layout_info){layout, keys_per_unit, tq_unit_bytes(spec, layout, keys_per_unit)};
    return TQ_OK;
}

/* ---- variants --------------------------------------------------------------------------------------------------- */

int tq_variant_count(void) {
    int n = 0;
    for (int r = 0; r < tq_registry_count(); r++)
        n += tq_registry_at(r)->n_variants;
    return n;
}

tq_status tq_variant_at(int index, tq_variant_info *out) {
    int count = tq_variant_count(), r = 0;
    if (!out)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_variant_at: out is NULL");
    if (index < 0 || index >= count)
        return tq_fail(TQ_ERR_ARGUMENT, "tq_variant_at: index is %d; legal is 0 to %d", index, count - 1);
    while (index >= tq_registry_at(r)->n_variants)
        index -= tq_registry_at(r++)->n_variants;
    const tq_registry *registry = tq_registry_at(r);
    const tq_variant *v = registry->variants[index];
    const tq_device *device = tq_device_that_runs(registry);
    *out = (tq_variant_info){.name = v->name,
                             .op = (tq_op)v->op,
                             .head_dim = (v->k ? v->k : v->v)->head_dim,
                             .gqa = v->gqa,
                             .k = v->k ? v->k->name : NULL,
                             .v = v->v ? v->v->name : NULL,
                             .layout = v->layout,
                             .target = v->target,
                             .key = v->key,
                             .runs_here = device != NULL,
                             .kind = tq_kind_name(registry->kind),
                             .device = device ? device->name : NULL};
    return TQ_OK;
}

const tq_variant *tq_variant_find(const char *name, const tq_registry **registry) {
    for (int r = 0; r < tq_registry_count(); r++)
        for (int i = 0; i < tq_registry_at(r)->n_variants; i++)
            if (strcmp(tq_registry_at(r)->variants[i]->name, name) == 0) {
                if (registry)
                    *registry = tq_registry_at(r);
                return tq_registry_at(r)->variants[i];
            }
    return NULL;
}
