/* What append, dequantise and repack of a format share. A team of 32 lanes works on one row: lane l holds the quads
 * (values 4q to 4q + 3) q = l, l + 32, ... of it, one per slot. All lanes of a warp run the same code, rows or not. */
% local chunk = f.bits < 16 and f.chunk or f.head_dim
% local block = f.bits < 16 and f.block or f.head_dim
enum {
    TEAM = 32,
    HEAD_DIM = ${f.head_dim},
    QUADS = ${f.head_dim // 4},
    SLOTS = ${(f.head_dim + 127) // 128},
    CHUNK_QUADS = ${chunk // 4},
    BLOCK_QUADS = ${block // 4},
};

TQG_FN int tqr_lane(void) {
    return tqg_lane() & (TEAM - 1);
}
/* A lane of the same team. */
TQG_FN tqg_u32 tqr_shfl(tqg_u32 x, int lane) {
    return tqg_shfl_u(x, TQG_WARP == TEAM ? lane : lane | (tqg_lane() & ~(TEAM - 1)));
}
/* Does it hold in some lane of the team? */
TQG_FN int tqr_any(int condition) {
    const tqg_u64 lanes = tqg_ballot(condition);
    return (tqg_u32)(TQG_WARP == TEAM ? lanes : lanes >> (tqg_lane() & ~(TEAM - 1))) != 0;
}
TQG_FN int tqr_is_quad(int slot) {
    return QUADS % TEAM == 0 || slot * TEAM + tqr_lane() < QUADS;
}

/* The token of this team, of those that a launch is for. Teams behind the last one have a slot to read from, too, but are
 * not wanted; blocks without any have slot < 0. */
typedef struct tqr_job {
    int token, head, sequence, slot, wanted;
} tqr_job;

TQG_FN tqr_job tqr_job_of(const tqg_i32 *first_slot, int n_tokens, int n_slots, int tokens_per_block) {
    tqr_job job;
    const int first = tqg_block_x() * tokens_per_block;
    job.token = first + tqg_thread() / TEAM;
    job.head = tqg_block_y();
    job.sequence = tqg_block_z();
    job.slot = first_slot[job.sequence] + first;
    if (first >= n_tokens || job.slot >= n_slots)
        job.slot = -1;
    const int slot = job.slot + job.token - first;
    job.wanted = job.slot >= 0 && job.token < n_tokens && slot < n_slots;
    job.slot = job.wanted ? slot : job.slot;
    return job;
}

/* Is the slot's quad of this lane in the i-th stretch of `quads`? */
TQG_FN int tqr_is_in(int slot, int i, const int quads) {
    const int first = slot * TEAM - i * quads; /* of the stretch, the quad of lane 0 */
    return first + TEAM - 1 < 0 || first >= quads ? 0
           : first >= 0 && first + TEAM <= quads ? 1
                                                 : first + tqr_lane() >= 0 && first + tqr_lane() < quads;
}

/* ---- reductions: v[slot] becomes the sum or largest of the stretch of `quads` that it lies in. Stretches are of 2, 4 or
 * 8 quads or of a team's slot, or they begin and end anywhere; lanes that hold no quad have zeros ---- */
% local function reduction(name, of)

TQG_FN void tqr_${name}(float *v, const int quads) {
    const int anywhere = quads > 8 && quads != TEAM, n = anywhere ? QUADS / quads : SLOTS; /* stretches, or slots of them */
    float of[(QUADS + 7) / 8];
    TQG_UNROLL
    for (int i = 0; i < n; i++) {
        of[i] = anywhere ? 0.0f : v[i];
        TQG_UNROLL
        for (int s = 0; s < SLOTS && anywhere; s++) {
            const float here = tqr_is_in(s, i, quads) ? v[s] : 0.0f;
            of[i] = ${of("of[i]", "here")};
        }
        TQG_UNROLL
        for (int mask = 1; mask < (quads <= 8 ? quads : TEAM); mask *= 2) {
            const float other = tqg_shfl_xor(of[i], mask);
            of[i] = ${of("of[i]", "other")};
        }
    }
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        v[s] = of[anywhere ? 0 : s];
        TQG_UNROLL
        for (int i = 1; i < n && anywhere; i++)
            v[s] = tqr_is_in(s, i, quads) ? of[i] : v[s];
    }
}
% end
% reduction("sums", function(a, b) return ("%s + %s"):format(a, b) end)
% reduction("maxima", function(a, b) return ("tqg_max(%s, %s)"):format(a, b) end)
% if f.bits < 8 then

/* ---- rotation: T of each chunk, in place -------------------------------------------------------------------------- */

TQG_FN void tqr_rotate(float (*y)[4]) {
    const int lane = tqr_lane();
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        float *v = y[s];
        const float a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];
        v[0] = a + c;
        v[1] = b + d;
        v[2] = a - c;
        v[3] = b - d;
        TQG_UNROLL
        for (int stride = 1; stride < ${f.pow2 // 4}; stride *= 2) {
            TQG_UNROLL
            for (int i = 0; i < 4; i++) {
                const float other = tqg_shfl_xor(v[i], stride);
                v[i] = lane & stride ? other - v[i] : v[i] + other;
                if (stride == 1)
                    v[i] *= ${hexf(1 / math.sqrt(f.pow2))};
            }
        }
    }
%     if f.odd > 1 then
    /* the reflection across the ${f.odd} runs of ${f.pow2} values of a chunk */
    TQG_UNROLL
    for (int c = 0; c < QUADS / CHUNK_QUADS; c++) {
        TQG_UNROLL
        for (int i = 0; i < 4; i++) {
            float sum = 0.0f;
            TQG_UNROLL
            for (int run = 0; run < ${f.odd}; run++) {
                const int quad = c * CHUNK_QUADS + run * ${f.pow2 // 4};
                sum += tqg_float(tqr_shfl(tqg_bits(y[quad / TEAM][i]), (lane & ${f.pow2 // 4 - 1}) | quad % TEAM));
            }
            TQG_UNROLL
            for (int s = 0; s < SLOTS; s++)
                y[s][i] = tqr_is_in(s, c, CHUNK_QUADS) ? y[s][i] - sum * ${hexf(2 / f.odd)} : y[s][i];
        }
    }
%     end
}

/* ---- signs: the values whose bit is set in the mask of a side change theirs --------------------------------------- */
%     local function flip(side, words)

TQG_FN void tqr_flip_${side}(float (*y)[4]) {
    const int lane = tqr_lane();
    tqg_u32 words[SLOTS];
%         for s = 0, (f.head_dim + 127) // 128 - 1 do
%             local choice = ""
%             for i = 0, math.min(4, #words - 4 * s) - 2 do
%                 choice = choice .. ("lane < %d ? 0x%08xu : "):format(8 * i + 8, words[4 * s + i + 1])
%             end
    words[${s}] = ${choice}${string.format("0x%08xu", words[math.min(4 * s + 4, #words)])};
%         end
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            y[s][i] = tqg_float(tqg_bits(y[s][i]) ^ words[s] >> (4 * (lane & 7) + i) << 31);
    }
}
%     end
%     flip("k", f.k_signs)
%     flip("v", f.v_signs)
% end
% if f.bits < 16 then

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

TQG_FN tqg_u32 tqr_byte(tqg_u32 word, int i) {
    return word >> 8 * i & 255;
}
TQG_FN int tqr_signed_byte(tqg_u32 word, int i) {
    return (tqg_i32)(word << (24 - 8 * i)) >> 24;
}
/* Four indices below 16, one per byte, as a table lookup takes them. */
TQG_FN tqg_u32 tqr_nibbles(tqg_u32 indices) {
    tqg_u32 nibbles = 0;
    TQG_UNROLL
    for (int i = 0; i < 4; i++)
        nibbles |= tqr_byte(indices, i) << 4 * TQG_NIBBLE(0, i);
    return nibbles;
}
/* Four bytes of a table of 16 bytes. */
TQG_FN tqg_u32 tqr_lookup(tqg_u32 t0, tqg_u32 t1, tqg_u32 t2, tqg_u32 t3, tqg_u32 nibbles) {
    const tqg_u32 codes = tqg_codes(nibbles, 0);
    return tqg_select(tqg_spread(tqg_nibble_tops(nibbles, 0)), tqg_lookup(t2, t3, codes), tqg_lookup(t0, t1, codes));
}
% end
