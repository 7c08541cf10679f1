/* gpu_objects_test: code objects as compilers made them: what each says about its kernels is what the runtime believes of
 * them, and what a driver would read of a launch's arguments is what the runtime passes, byte for byte. */

/* Hosts and devices see one layout of the arguments: the same types, in the same order, without a gap anywhere. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#include "tq_gpu.h"
#pragma GCC diagnostic pop

#include "code_object.h"
#include "gpu_support.h"

/* registries.h, by CMake: those that were compiled for this test, beside those of the build. */
#define REGISTRY(id) extern const tq_registry tq_registry_##id;
#include "registries.h"
#undef REGISTRY
#define REGISTRY(id) &tq_registry_##id,
static const tq_registry *const compiled[] = {
#include "registries.h"
    NULL};

static const vendor *vendor_of(const tq_registry *registry) {
    for (int i = 0; i < N_VENDORS; i++)
        if (vendors[i].kind == registry->kind)
            return &vendors[i];
    return NULL;
}

/* Gives the stub driver a device of the registry's architecture. */
static void add_stub_device(const tq_registry *registry) {
    vendor *v = &vendors[vendor_of(registry) - vendors];
    stub_device device = {"Stub", registry->target, 64, v->kind == TQ_KIND_CUDA ? 232448 : 65536, (size_t)1 << 30};
    for (int i = 0; i < v->n_devices; i++)
        if (strcmp(v->devices[i].arch, device.arch) == 0)
            return;
    assert_true(v->n_devices < STUB_MAX_DEVICES);
    v->devices[v->n_devices++] = device;
}

static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < N_VENDORS; i++)
        vendors[i].n_devices = 0;
    for (int i = 0; compiled[i]; i++)
        if (tq_registry_add(compiled[i]))
            return 1;
    for (int i = 0; i < tq_registry_count(); i++)
        if (vendor_of(tq_registry_at(i)))
            add_stub_device(tq_registry_at(i));
    return open_stubs();
}

static const tq_device *stub_device_of(const tq_registry *registry) {
    for (int i = 0; i < tq_device_count(); i++)
        if (tq_device_at(i)->kind == registry->kind && strcmp(tq_device_at(i)->arch, registry->target) == 0)
            return tq_device_at(i);
    return NULL;
}

static const char *disagreement(const tq_variant *variant, const code_object *object, const tq_device *device) {
    const code_kernel *kernel = code_object_find(object, variant->gpu->symbol);
    if (strcmp(object->arch, variant->target) != 0)
        return "the architecture is another";
    if (!kernel)
        return "the kernel is not in its code object";
    if (kernel->n_arguments != 1 || kernel->arguments[0].offset != 0)
        return "it does not take one argument";
    if (kernel->arguments[0].bytes != params_bytes((tq_op)variant->op))
        return "its argument has another size";
    if ((int)kernel->max_threads != variant->gpu->threads)
        return "it is built for another number of threads";
    if ((int)kernel->wave != device->warp)
        return "its warps are of another size";
    if (kernel->static_bytes + (size_t)variant->gpu->shared_bytes > device->shared_bytes)
        return "it wants more shared memory than there is";
    return NULL;
}

/* Loads and launches the variant with arguments that are all different. */
static const char *run(const tq_registry *registry, const tq_variant *variant, const tq_device *device) {
    const vendor *v = vendor_of(registry);
    const stub_launch *launch = v->stub->state->launches;
    const unsigned grid[3] = {3, 2, 1};
    size_t bytes = params_bytes((tq_op)variant->op);
    unsigned char params[STUB_MAX_PARAMS];
    void *function;
    for (size_t i = 0; i < bytes; i++)
        params[i] = (unsigned char)(i * 151 + 17);
    v->stub->state->n_launches = 0;
    if (device->ops->prepare(device, registry, variant, &function) ||
        device->ops->launch(device, variant->gpu, function, grid, params, bytes, NULL))
        return tq_error_message();
    if (launch->params_bytes != bytes || memcmp(launch->params, params, bytes) != 0)
        return "other arguments arrive";
    return strcmp(launch->symbol, variant->gpu->symbol) == 0 ? NULL : "another kernel runs";
}

static void test_objects(void **state) {
    static code_object object;
    int n = 0, n_bad = 0;
    (void)state;
    for (int r = 0; r < tq_registry_count(); r++) {
        const tq_registry *registry = tq_registry_at(r);
        const tq_device *device = vendor_of(registry) ? stub_device_of(registry) : NULL;
        if (!device)
            continue;
        for (int i = 0; i < registry->n_variants; i++) {
            const tq_variant *variant = registry->variants[i];
            const tqg_module *module = &registry->modules[variant->gpu->module];
            const char *wrong = "its code object cannot be read";
            if (code_object_read(module->image, &object))
                wrong = disagreement(variant, &object, device);
            if (!wrong)
                wrong = run(registry, variant, device);
            n++;
            if (wrong && n_bad++ < 10)
                print_error("%s in %s: %s\n", variant->name, module->name, wrong);
        }
        print_message("%s: %d variants in %d code objects\n", registry->target, registry->n_variants,
                      registry->n_modules);
    }
    for (int i = 0; i < N_VENDORS; i++)
        assert_clean(&vendors[i]);
    assert_int_equal(n_bad, 0);
    if (n == 0) {
        print_message("this build has no code objects, and no compiler for any was found\n");
        skip();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_objects)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}
