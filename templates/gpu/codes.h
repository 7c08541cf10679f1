/* Packed words of rows to pairs of halves, by byte tables in registers. For each side of this file, functions under its
 * prefix: P below. Bytes of rows: docs/formats.md.
 *
 * The values come in the order in which the table lookup yields them, which depends on the architecture: half e of pair i
 * of a unit is value P_value(2i + e) of it. Pairs 4j to 4j+3 come from word j of P_nibbles, values of one run of 16. What
 * is multiplied with them takes the same order.
 *   decoded value = half * stored scale * P_UNIT                (turbo, q8_0; f16: the half itself)
 *   decoded value = half * gain's half * stored scale * P_UNIT  (gain formats)
 *
 *   P_nibbles(words, nibbles)  a unit of 32 values, as stored, to 4 words of 8 codes; P_tail_nibbles a last 16 to 2.
 *                              Nibbles: 2 and 3 bits the code; 4 bits the magnitude, and bit 3 set if negative, as in tiles
 *   P_bytes(nibbles, half, lo, hi)  four codes to the low and high bytes of their halves
 *   P_pairs(nibbles, pairs)    8 codes to 4 pairs
 *   P_unit(words, pairs)       a unit to 16 pairs; P_tail a last 16 to 8
 *   P_gain_pairs(word, pairs)  8 gain codes to 4 pairs of gain / 1024; half e of pair i is gain P_gain_order(2i + e)
 *   P_gain_at(code)            gain / 1024 of one code as a float */
% -- Exact numbers only: at most 11 significant bits.
% local function half_bits(x)
%     if x == 0 then
%         return 0
%     end
%     local a, exponent = math.abs(x), 15
%     while a >= 2 do a, exponent = a / 2, exponent + 1 end
%     while a < 1 do a, exponent = a * 2, exponent - 1 end
%     assert(a * 1024 % 1 == 0, "half_bits: not a half")
%     return (x < 0 and 0x8000 or 0) | exponent << 10 | math.tointeger(a * 1024) - 1024
% end
% local function halves(values, unit, shift)
%     local out = {}
%     for i = 1, 8 do
%         out[i] = half_bits(values[(i - 1) % #values + 1] * unit) >> shift
%     end
%     return out
% end
%
% local function codebook(f, p, P)
%     local half_unit = f.subs > 0 and 1 / 8 or 1 / 128
%     local levels = f.centroids
%     if f.bits == 4 then
%         assert(f.symmetric, "centroids: 4-bit tables are symmetric")
%         levels = table.move(f.centroids, 9, 16, 1, {})
%     end
%     local lo, hi = halves(levels, half_unit, 0), halves(levels, half_unit, 8)
#define ${P}_UNIT ${hexf(f.step / half_unit * (f.subs > 0 and 1024 or 1))}

TQG_FN void ${p}_nibbles(const tqg_u32 *w, tqg_u32 *n) {
%     if f.bits == 2 then
    n[0] = w[0] & 0x33333333u;
    n[1] = w[0] >> 2 & 0x33333333u;
    n[2] = w[1] & 0x33333333u;
    n[3] = w[1] >> 2 & 0x33333333u;
%     elseif f.bits == 3 then
    n[0] = w[0]; /* bit 3 of a nibble is not looked at */
    n[1] = w[1];
    n[2] = w[2];
    n[3] = tqg_select(0x66666666u, tqg_select(0x44444444u, w[0] >> 1, w[1] >> 2), w[2] >> 3);
%     else
    TQG_UNROLL
    for (int i = 0; i < 4; i++)
        n[i] = tqg_sign_up(w[i]);
%     end
}
%     if f.tail then
TQG_FN void ${p}_tail_nibbles(const tqg_u32 *w, tqg_u32 *n) {
%         if f.bits == 2 then
    n[0] = w[0] & 0x33333333u;
    n[1] = w[0] >> 2 & 0x33333333u;
%         elseif f.bits == 3 then
    const tqg_u32 half = ((w[1] & 0xffffu) | w[1] << 12) & 0x0f0f0f0fu; /* the upper half of w[1] may be anything */
    const tqg_u32 spare = (w[0] >> 1 & 0x04040404u) | (w[0] >> 6 & 0x02020202u) | (half >> 3 & 0x01010101u);
    n[0] = w[0];
    n[1] = (half & 0x07070707u) | spare << 4;
%         else
    n[0] = tqg_sign_up(w[0]);
    n[1] = tqg_sign_up(w[1]);
%         end
}
%     end
/* The halves' bytes: low bytes of codes 0 to 3, 4 to 7, then their high bytes. */
TQG_FN void ${p}_table(tqg_u32 *table) {
    const tqg_u32 bytes[4] = {${byte_table(lo, 2)}, ${byte_table(hi, 2)}};
    TQG_UNROLL
    for (int i = 0; i < 4; i++)
        table[i] = bytes[i];
}
/* From table indices and, of 4 bits, top bits. */
TQG_FN void ${p}_lookup(const tqg_u32 *table, tqg_u32 codes, tqg_u32 tops, tqg_u32 *lo, tqg_u32 *hi) {
    *lo = tqg_lookup(table[0], table[1], codes);
    *hi = tqg_lookup(table[2], table[3], codes)${f.bits == 4 and " | tops" or ""};
%     if f.bits < 4 then
    (void)tops;
%     end
}
TQG_FN void ${p}_bytes(tqg_u32 nibbles, int half, tqg_u32 *lo, tqg_u32 *hi) {
    tqg_u32 table[4];
    ${p}_table(table);
    ${p}_lookup(table, tqg_codes(nibbles, half), ${f.bits == 4 and "tqg_nibble_tops(nibbles, half)" or "0"}, lo, hi);
}
TQG_FN void ${p}_pairs(tqg_u32 nibbles, tqg_u32 *pairs) {
    TQG_UNROLL
    for (int half = 0; half < 2; half++) {
        tqg_u32 lo, hi;
        ${p}_bytes(nibbles, half, &lo, &hi);
        pairs[2 * half] = tqg_zip01(lo, hi);
        pairs[2 * half + 1] = tqg_zip23(lo, hi);
    }
}
TQG_FN int ${p}_value(int i) {
    const int nibble = TQG_NIBBLE((i >> 2 & 1), (i & 3)), word = i >> 3;
%     if f.bits == 2 then
    const int group = 4 * (word >> 1) + (word & 1) + 2 * (nibble & 1);
%     else
    const int group = 2 * word + (nibble & 1);
%     end
    return 4 * group + (nibble >> 1);
}
TQG_FN void ${p}_unit(const tqg_u32 *w, tqg_u32 *pairs) {
    tqg_u32 n[4];
    ${p}_nibbles(w, n);
    TQG_UNROLL
    for (int i = 0; i < 4; i++)
        ${p}_pairs(n[i], pairs + 4 * i);
}
%     if f.tail then
TQG_FN void ${p}_tail(const tqg_u32 *w, tqg_u32 *pairs) {
    tqg_u32 n[2];
    ${p}_tail_nibbles(w, n);
    ${p}_pairs(n[0], pairs);
    ${p}_pairs(n[1], pairs + 4);
}
%     end
%     if f.subs > 0 then
%         local gains = f.gains
%         local upper = table.move(gains, 9, 16, 1, {})
TQG_FN int ${p}_gain_order(int i) {
    return TQG_NIBBLE((i >> 2 & 1), (i & 3));
}
/* Four gain codes and their top bits to the bytes of halves: of gain / 1024${f.signed and "" or ", plus 1"}. */
TQG_FN void ${p}_gain_bytes(tqg_u32 codes, tqg_u32 tops, tqg_u32 *lo, tqg_u32 *hi) {
%         if f.signed then
    *lo = tqg_lookup(${byte_table(halves(gains, 1 / 1024, 0), 2)}, codes);
    *hi = tqg_lookup(${byte_table(halves(gains, 1 / 1024, 8), 2)}, codes) | tops;
%         else
    *lo = tqg_select(tqg_spread(tops), tqg_lookup(${byte_table(upper, 2)}, codes),
                     tqg_lookup(${byte_table(gains, 2)}, codes));
    *hi = 0x3c3c3c3cu; /* a byte below it is 1 + byte / 1024 */
%         end
}
TQG_FN void ${p}_gain_pairs(tqg_u32 word, tqg_u32 *pairs) {
    TQG_UNROLL
    for (int half = 0; half < 2; half++) {
        tqg_u32 lo, hi;
        ${p}_gain_bytes(tqg_codes(word, half), tqg_nibble_tops(word, half), &lo, &hi);
%         if f.signed then
        pairs[2 * half] = tqg_zip01(lo, hi);
        pairs[2 * half + 1] = tqg_zip23(lo, hi);
%         else
        pairs[2 * half] = tqg_h2_add(tqg_zip01(lo, hi), 0xbc00bc00u);
        pairs[2 * half + 1] = tqg_h2_add(tqg_zip23(lo, hi), 0xbc00bc00u);
%         end
    }
}
TQG_FN float ${p}_gain_at(tqg_u32 code) {
    const tqg_u32 codes = tqg_codes(code, 0);
%         if f.signed then
    const float gain = (float)(tqg_lookup(${byte_table(gains, 2)}, codes) & 255) * 0x1p-10f;
    return code & 8 ? -gain : gain;
%         else
    const tqg_u32 low = tqg_lookup(${byte_table(gains, 2)}, codes);
    const tqg_u32 high = tqg_lookup(${byte_table(upper, 2)}, codes);
    return (float)((code & 8 ? high : low) & 255) * 0x1p-10f;
%         end
}
%     end
% end
%
% for _, side in ipairs(sides) do
%     local f, p = side.f, side.prefix
%     local P = p:upper()

/* ---- ${f.format}, head_dim ${f.head_dim} ---- */
enum {
    ${P}_ROW_BYTES = ${f.row_bytes},
%     if f.bits == 16 then
    ${P}_BLOCK = ${f.head_dim}, /* no scales */
    ${P}_BLOCK_BYTES = ${f.row_bytes},
    ${P}_N_BLOCKS = 1,
    ${P}_HEADER = 0,
    ${P}_UNITS = ${f.head_dim // 32}, /* of 32 values, per block */
    ${P}_TAIL = ${f.head_dim // 16 % 2},
    ${P}_SUBS = 0,
    ${P}_UNIT_WORDS = 16,
    ${P}_TAIL_WORDS = 8,
%     else
    ${P}_BLOCK = ${f.block}, /* values per stored scale */
    ${P}_BLOCK_BYTES = ${f.block_bytes},
    ${P}_N_BLOCKS = ${f.n_blocks},
    ${P}_HEADER = ${f.header}, /* bytes before the payload: scale, then gain codes */
    ${P}_UNITS = ${f.full_units}, /* of 32 values, per block */
    ${P}_TAIL = ${f.tail and 1 or 0}, /* 1: then one of 16 */
    ${P}_SUBS = ${f.subs}, /* gain codes per block */
    ${P}_UNIT_WORDS = ${f.bits},
    ${P}_TAIL_WORDS = ${(f.bits + 1) // 2}, /* 3 bits: of the last one the lower half */
%     end
};

%     if f.bits < 8 then
%         codebook(f, p, P)
%     else
#define ${P}_UNIT 1.0f
TQG_FN int ${p}_value(int i) {
    return i;
}
%         for _, part in ipairs { { "unit", 16 }, { "tail", 8 } } do
TQG_FN void ${p}_${part[1]}(const tqg_u32 *w, tqg_u32 *pairs) {
    TQG_UNROLL
%             if f.bits == 16 then
    for (int i = 0; i < ${part[2]}; i++)
        pairs[i] = w[i];
%             else
    for (int i = 0; i < ${part[2] // 2}; i++) {
        const tqg_u32 bytes = w[i] ^ 0x80808080u; /* below 0x64: 1024 + 128 + value */
        pairs[2 * i] = tqg_h2_add(tqg_zip01(bytes, 0x64646464u), 0xe480e480u);
        pairs[2 * i + 1] = tqg_h2_add(tqg_zip23(bytes, 0x64646464u), 0xe480e480u);
    }
%             end
}
%         end
%     end
% end
