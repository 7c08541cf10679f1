/* roundtrip.h: formats as `tq eval` spells them, and tensors sent through libtq's append and dequantise. */
#ifndef TQ_ROUNDTRIP_H
#define TQ_ROUNDTRIP_H

#include "cli.h"
#include "npy.h"
#include "pool.h"

/* format[:mode][+centre], where +centre (K only) subtracts a mean per KV head and channel before quantising. */
typedef struct side_spec {
    const char *format;
    tq_scale_mode mode;
    bool centre;
    double bytes_per_value;
} side_spec;

/* "turbo3:none", or K and V apart: "gain4+centre/gain3". */
typedef struct format_spec {
    const char *name;
    side_spec k, v;
} format_spec;

format_spec format_spec_parse(const char *text, int head_dim);

/* Every format of this build with every scale mode, and again with +centre in its default mode if it is rotated.
 * Returns the count; the caller frees *out. */
int format_spec_all(int head_dim, format_spec **out);

/* What the device's kernels leave of x after quantising, [heads][tokens][head_dim]; the first n_sink tokens pass
 * through f16 instead. The mean of +centre is the one of the first CENTRE_TOKENS tokens: a cache must fix it before it
 * stores them. */
enum { CENTRE_TOKENS = 128 };
void roundtrip(const tq_device *device, pool *p, const npy *x, tq_side side, const side_spec *spec, int n_sink,
               float *out);

/* Mean over vectors of |x - y|^2 / |x|^2. */
double relative_mse(const npy *x, const float *y);

#endif
