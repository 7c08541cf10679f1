/* A packed row in the registers of a team, and the ways between it and memory. docs/formats.md has the bytes. */
% if f.bits < 16 then
% local WORD_LANES = f.bits == 2 and 4 or f.bits == 8 and 1 or 2 -- whose quads share a word
typedef struct tqr_packed {
    tqg_u32 codes[SLOTS]; /* byte i: code of value i of the quad, as rows have it */
    tqg_u32 scale[SLOTS]; /* of the quad's block, a half */
% if f.subs > 0 then
    tqg_u32 gain[SLOTS]; /* code of its run */
% end
} tqr_packed;

/* The values in the rotated domain. */
TQG_FN void tqr_values(const tqr_packed *x, float (*y)[4]) {
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        float unit = tqg_half((tqg_u16)x->scale[s]) * ${hexf(f.step)};
% if f.subs > 0 then
        const tqg_u32 gains = tqr_lookup(${byte_table(f.gains, 4)}, x->gain[s]);
        unit *= (float)tqr_signed_byte(gains, 0);
% end
% if f.bits == 8 then
        const tqg_u32 bytes = x->codes[s];
% elseif f.bits == 4 then
        const tqg_u32 bytes = tqr_lookup(${byte_table(f.lookup_table, 4)}, tqr_nibbles(x->codes[s]));
% else
        const tqg_u32 bytes = tqg_lookup(${byte_table(f.centroids, 2)}, tqg_codes(tqr_nibbles(x->codes[s]), 0));
% end
        TQG_UNROLL
        for (int i = 0; i < 4; i++)
            y[s][i] = tqr_is_quad(s) ? unit * (float)tqr_signed_byte(bytes, i) : 0.0f;
    }
}

/* ---- units: 8 lanes with a quad each, whose words lie in order; lane 8i + j has word j / ${WORD_LANES} ---- */

TQG_FN int tqr_unit_word(void) {
    return (tqr_lane() & 7) / ${WORD_LANES};
}
/* Does the lane hold a word that no lane before it holds? */
TQG_FN int tqr_has_word(void) {
    return (tqr_lane() & ${WORD_LANES - 1}) == 0${f.bits == 3 and " && tqr_unit_word() < 3" or ""};
}

/* The word from the codes of the lanes. */
TQG_FN tqg_u32 tqr_pack(tqg_u32 codes) {
% if f.bits == 8 then
    return codes;
% elseif f.bits == 2 then
    tqg_u32 word = codes << 2 * (tqr_lane() & 3);
    word |= tqg_shfl_xor_u(word, 1);
    return word | tqg_shfl_xor_u(word, 2);
% else
    const tqg_u32 pair = codes << 4 * (tqr_lane() & 1), word = pair | tqg_shfl_xor_u(pair, 1);
%     if f.bits == 4 then
    return word;
%     else
    /* groups 6 and 7 into the top bits: bit 2 of them in word 0, bit 1 in word 1, bit 0 in word 2 */
    const tqg_u32 top = tqr_shfl(word, tqr_lane() | 7), i = (tqg_u32)tqr_unit_word();
    return word | (top << 1 & 0x88888888u >> i) << i;
%     end
% end
}

/* The codes of the lane from the words of the lanes. */
TQG_FN tqg_u32 tqr_unpack(tqg_u32 word) {
% if f.bits == 8 then
    return word;
% elseif f.bits == 2 then
    return word >> 2 * (tqr_lane() & 3) & 0x03030303u;
% elseif f.bits == 4 then
    return word >> 4 * (tqr_lane() & 1) & 0x0f0f0f0fu;
% else
    const int first = tqr_lane() & ~7;
    const tqg_u32 w0 = tqr_shfl(word, first), w1 = tqr_shfl(word, first + 2), w2 = tqr_shfl(word, first + 4);
    const tqg_u32 top = (w0 & 0x88888888u) >> 1 | (w1 & 0x88888888u) >> 2 | (w2 & 0x88888888u) >> 3;
    return (tqr_unit_word() < 3 ? word : top) >> 4 * (tqr_lane() & 1) & 0x07070707u;
% end
}
% if f.bits == 3 and f.tail then

/* The same for a last unit of four quads; its second word, of lanes 2 and 3, is a half. */
TQG_FN tqg_u32 tqr_pack_tail(tqg_u32 codes) {
    const tqg_u32 pair = codes << 4 * (tqr_lane() & 1), word = pair | tqg_shfl_xor_u(pair, 1);
    const tqg_u32 top = tqr_shfl(codes, tqr_lane() | 3), half = codes | (top & 0x01010101u) << 3;
    return tqr_lane() & 2 ? half | half >> 12 : word | (top & 0x04040404u) << 1 | (top & 0x02020202u) << 6;
}
TQG_FN tqg_u32 tqr_unpack_tail(tqg_u32 word) {
    const int first = tqr_lane() & ~3;
    const tqg_u32 w0 = tqr_shfl(word, first), w1 = tqr_shfl(word, first + 2), half = (w1 | w1 << 12) & 0x0f0f0f0fu;
    const tqg_u32 top = (w0 >> 1 & 0x04040404u) | (w0 >> 6 & 0x02020202u) | (half >> 3 & 0x01010101u);
    return tqr_lane() & 2 ? (tqr_lane() & 1 ? top : half & 0x07070707u) : w0 >> 4 * (tqr_lane() & 1) & 0x07070707u;
}
% end

/* ---- rows -------------------------------------------------------------------------------------------------------- */

enum { BLOCK_BYTES = ${f.block_bytes}, HEADER_BYTES = ${f.header}, UNIT_BYTES = ${4 * f.bits}, UNITS = ${f.full_units} };

TQG_FN void tqr_store_row(tqg_u8 *row, const tqr_packed *x, int keep) {
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        const int quad = s * TEAM + tqr_lane(), j = quad % BLOCK_QUADS, here = keep && tqr_is_quad(s);
        tqg_u8 *block = row + quad / BLOCK_QUADS * BLOCK_BYTES;
        tqg_u16 *to = (tqg_u16 *)(block + HEADER_BYTES + j / 8 * UNIT_BYTES + 4 * tqr_unit_word());
        const tqg_u32 word = tqr_pack(x->codes[s]);
% if f.bits == 3 and f.tail then
        const tqg_u32 tail = tqr_pack_tail(x->codes[s]);
        const int is_tail = j / 8 == UNITS;
        if (here && (is_tail ? (tqr_lane() & 1) == 0 : tqr_has_word())) {
            to[0] = (tqg_u16)(is_tail ? tail : word);
            if (!is_tail || tqr_unit_word() == 0)
                to[1] = (tqg_u16)((is_tail ? tail : word) >> 16);
        }
% else
        if (here && tqr_has_word()) {
            to[0] = (tqg_u16)word;
            to[1] = (tqg_u16)(word >> 16);
        }
% end
        if (here && j == 0)
            *(tqg_u16 *)block = (tqg_u16)x->scale[s];
% if f.subs > 0 then
        tqg_u32 gains = x->gain[s] << (tqr_lane() & 12);
        gains |= tqg_shfl_xor_u(gains, 4);
        gains |= tqg_shfl_xor_u(gains, 8);
        if (here && (j & 15) == 0)
            *(tqg_u16 *)(block + 2 + j / 8) = (tqg_u16)gains;
% end
    }
}

TQG_FN void tqr_load_row(const tqg_u8 *row, tqr_packed *x) {
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        const int lane_quad = s * TEAM + tqr_lane(), quad = tqr_is_quad(s) ? lane_quad : 0, j = quad % BLOCK_QUADS;
        const tqg_u8 *block = row + quad / BLOCK_QUADS * BLOCK_BYTES;
        const int word = ${f.bits == 3 and "tqr_unit_word() < 3 ? tqr_unit_word() : 2" or "tqr_unit_word()"};
        const tqg_u16 *from = (const tqg_u16 *)(block + HEADER_BYTES + j / 8 * UNIT_BYTES + 4 * word);
% if f.bits == 3 and f.tail then
        const int is_tail = j / 8 == UNITS;
        const tqg_u32 halves = from[0] | (is_tail && word > 0 ? 0u : (tqg_u32)from[1] << 16);
        const tqg_u32 codes = tqr_unpack(halves), tail = tqr_unpack_tail(halves);
        x->codes[s] = is_tail ? tail : codes;
% else
        x->codes[s] = tqr_unpack(from[0] | (tqg_u32)from[1] << 16);
% end
        x->scale[s] = *(const tqg_u16 *)block;
% if f.subs > 0 then
        x->gain[s] = *(const tqg_u16 *)(block + 2 + j / 16 * 2) >> (j & 12) & 15u;
% end
    }
}
% local held = {} -- tiles of the arch that hold this format: { name =, tops =, of = }
% for _, tile in ipairs(f.bits < 8 and tiles.on(arch) or {}) do
%     local of = tiles.of(tile, f.format, f.head_dim)
%     held[#held + 1] = of and { name = tile.name, tops = tile.tops, of = of }
% end
% if #held > 0 then

/* ---- tiles: slot s of a team is 128 values of a key; a lane moves a quad of gen/tiles.lua, which need not be its own ---- */
%     local has_gains, values = f.subs > 0, held[1].of.values
%     local quad, sub_tile, beside = "tqr_lane()", "s", ""
%     if values == 64 then
%         quad, sub_tile, beside = "tqr_quad()", "tqr_sub_tile(s)", "(tqr_lane() & 16) | "

/* The lane's quad in its sub-tile, the sub-tile: two of them share a slot. Lanes without values have one to read from. */
TQG_FN int tqr_quad(void) {
    return tqr_lane() & 15;
}
TQG_FN int tqr_sub_tile(int s) {
    return tqr_is_quad(s) ? 2 * s + tqr_lane() / 16 : 0;
}
%     end
%     local here = values == 64 and "keep && tqr_is_quad(s)" or "keep"
%     if has_gains then

/* The word${values == 64 and ", a half," or ""} of a sub-tile's gain codes, from the lanes' codes. */
TQG_FN tqg_u32 tqr_gain_word(tqg_u32 code) {
    tqg_u32 word = code << (tqr_lane() & ${values == 64 and 12 or 28});
    word |= tqg_shfl_xor_u(word, 4);
%         if values == 64 then
    return word | tqg_shfl_xor_u(word, 8);
%         else
    word |= tqg_shfl_xor_u(word, 8);
    return word | tqg_shfl_xor_u(word, 16);
%         end
}
%     end

/* Four codes, one per byte, as nibbles of a half; and back. */
TQG_FN tqg_u32 tqr_to_nibbles(tqg_u32 codes) {
    const tqg_u32 pairs = codes | codes >> 4;
    return (pairs & 0xff) | (pairs >> 8 & 0xff00);
}
TQG_FN tqg_u32 tqr_from_nibbles(tqg_u32 nibbles) {
    const tqg_u32 pairs = (nibbles & 0xff) | (nibbles & 0xff00) << 8;
    return (pairs | pairs << 4) & 0x0f0f0f0fu;
}

/* Other bits of a half that other keys share. */
TQG_FN void tqr_store_bits(tqg_u16 *half, tqg_u32 mask, tqg_u32 bits) {
    const int odd = (int)((tqg_u64)half >> 1 & 1);
    tqg_u32 *word = (tqg_u32 *)(half - odd);
    tqg_atomic_and(word, ~(mask << 16 * odd));
    tqg_atomic_or(word, bits << 16 * odd);
}
%     -- The four top bits of nibbles at other places, and the other way round.
%     local function move_tops(name, from, to)

TQG_FN tqg_u32 ${name}(tqg_u32 half) {
%         local moves = ""
%         for n = 1, 4 do
%             moves = moves .. (" | (half >> %d & 1) << %d"):format(from[n], to[n])
%         end
    return (half & 0x7777u)${moves};
}
%     end
%     local NATURAL = { 3, 7, 11, 15 }
%     for _, tile in ipairs(held) do
%         local of = tile.of
%         local moved = tile.tops[1] ~= NATURAL[1]
%         if moved then
%             move_tops("tqr_move_tops_" .. tile.name, NATURAL, tile.tops)
%             move_tops("tqr_tops_back_" .. tile.name, tile.tops, NATURAL)
%         end
%         local function tops(direction, value)
%             return moved and ("tqr_%s_%s(%s)"):format(direction, tile.name, value) or value
%         end
%         for _, letter in ipairs { "k", "v" } do
%             local side = of[letter]
%             local function c(bits) return tiles.expression(bits, { q = quad, n = "n", k = "key", s = "s" }) end
%             local name = tile.name .. "_" .. letter
%             local quads = not side.rows and tiles.quads(side, values) or false
%             local function mask(bits) -- of the bits of a quad's number
%                 local out = 0
%                 for _, bit in ipairs(bits) do
%                     out = out | 1 << math.tointeger(bit:sub(2))
%                 end
%                 return out
%             end
%             -- Where codes and gain codes of the slot's sub-tile and scales of its chunk begin.
%             local function start(bytes, at)
%                 local of_chunk = of.parts == 1 and ("%s * %d"):format(sub_tile, of.chunk)
%                     or ("%s / %d * %d + %s %% %d * %d"):format(sub_tile, of.parts, of.chunk, sub_tile, of.parts, bytes)
%                 return "tile + " .. of_chunk .. (at > 0 and " + " .. at or "")
%             end
%             local codes_at, gains_at, scales_at = start(of.codes, 0), start(of.gains, of.gains_at), start(0, of.scales_at)

/* ---- ${tile.name}, ${letter:upper()} ---- */

%             if side.rows then
/* Word i of a sub-tile's codes. */
TQG_FN tqg_u32 *tqr_at_${name}(tqg_u8 *codes, int key, int i) {
%                 if of.keys > of.lanes then
    const int word = key / ${of.lanes} * ${f.bits * values // 32} + i;
    return (tqg_u32 *)codes + (word / 4 * ${of.lanes} + key % ${of.lanes}) * 4 + word % 4;
%                 else
    return (tqg_u32 *)codes + (i / 4 * ${of.lanes} + key) * 4 + i % 4;
%                 end
}
%             else
/* Half i of the atom that has the lane's quad. */
TQG_FN tqg_u16 *tqr_at_${name}(tqg_u8 *codes, int key, int i) {
    const int lane = ${c(quads.lane)}, group = ${c(quads.group)}, word = ${f.bits} * group + i;
    return (tqg_u16 *)codes + ((word / 4 * ${of.lanes} + lane) * 4 + word % 4) * 2 + ${c({ side.half })};
}
%             end
%             if has_gains and side.gains then
/* Gain codes 4i to 4i + 3 of a key. */
TQG_FN tqg_u16 *tqr_gains_${name}(tqg_u8 *gains, int key, int i) {
    const int s = 4 * i;
    (void)s;
    return (tqg_u16 *)gains + 2 * ${c(side.gains.word)} + ${c({ side.gains.half })};
}
%             end
TQG_FN tqg_u16 *tqr_scale_${name}(tqg_u8 *scales, int key) {
%             if side.scales then
    return (tqg_u16 *)scales + 2 * ${c(side.scales.word)} + ${c({ side.scales.half })};
%             else
    return (tqg_u16 *)scales + key;
%             end
}

TQG_FN void tqr_store_${name}(tqg_u8 *tile, int key, const tqr_packed *x, int keep) {
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        tqg_u8 *const to = ${codes_at};
        const int here = ${here};
%             if side.rows then
        const tqg_u32 word = ${f.bits == 4 and "tqg_sign_up(tqr_pack(x->codes[s]))" or "tqr_pack(x->codes[s])"};
        if (here && tqr_has_word())
            *tqr_at_${name}(to, key, ${quad} / 8 * ${f.bits} + tqr_unit_word()) = word;
%             else
        const int u = ${c(quads.quad)};
%                 if quads.is_natural then
        const tqg_u32 codes = x->codes[s];
%                 else
        tqg_u32 codes = 0;
        TQG_UNROLL
        for (int n = 0; n < 4; n++)
            codes |= tqr_byte(tqr_shfl(x->codes[s], ${beside}${c(quads.natural)}), ${c(quads.byte)}) << 8 * n;
%                 end
        const tqg_u32 nibbles = tqr_to_nibbles(codes);
%                 if f.bits == 4 then
        if (here)
            *tqr_at_${name}(to, key, u) = (tqg_u16)${tops("move_tops", "tqg_sign_up(nibbles)")};
%                 elseif f.bits == 3 and quads.shares == 0 then
        const tqg_u32 last = tqr_shfl(nibbles, tqr_lane() | ${mask(quads.quad)});
        if (here && u < 3)
            *tqr_at_${name}(to, key, u) = (tqg_u16)(nibbles | (last >> (2 - u) & 0x1111u) << 3);
%                 elseif f.bits == 3 then
        TQG_UNROLL
        for (int i = 0; i < 3; i++)
            if (here && (u == i || u == 3))
                tqr_store_bits(tqr_at_${name}(to, key, i), u == 3 ? 0x8888u : 0x7777u,
                               u == 3 ? (nibbles >> (2 - i) & 0x1111u) << 3 : nibbles);
%                 elseif quads.shares & 1 == 0 then
        const tqg_u32 next = tqg_shfl_xor_u(nibbles, ${mask { quads.quad[1] }});
        if (here && (u & 1) == 0)
            *tqr_at_${name}(to, key, u / 2) = (tqg_u16)(nibbles | next << 2);
%                 else
        if (here)
            tqr_store_bits(tqr_at_${name}(to, key, u / 2), 0x3333u << 2 * (u & 1), nibbles << 2 * (u & 1));
%                 end
%             end
%             if has_gains then
        const tqg_u32 gains = tqr_gain_word(x->gain[s]);
        tqg_u8 *const to_gains = ${gains_at};
%                 if side.gains and values == 64 then
        if (here && tqr_quad() == 0)
            *tqr_gains_${name}(to_gains, key, 0) = (tqg_u16)${tops("move_tops", "gains")};
%                 elseif side.gains then
        if (here && tqr_lane() < 2)
            *tqr_gains_${name}(to_gains, key, tqr_lane()) = (tqg_u16)${tops("move_tops", "gains >> 16 * tqr_lane()")};
%                 else
        if (here && ${quad} == 0)
            *((${values == 64 and "tqg_u16" or "tqg_u32"} *)to_gains + key) = ${values == 64 and "(tqg_u16)gains" or "gains"};
%                 end
%             end
        if (here && (s * TEAM + tqr_lane()) % CHUNK_QUADS == 0)
            *tqr_scale_${name}(${scales_at}, key) = (tqg_u16)x->scale[s];
    }
}

TQG_FN void tqr_load_${name}(tqg_u8 *tile, int key, tqr_packed *x) {
    TQG_UNROLL
    for (int s = 0; s < SLOTS; s++) {
        tqg_u8 *const from = ${codes_at};
%             if side.rows then
        const int word = ${f.bits == 3 and "tqr_unit_word() < 3 ? tqr_unit_word() : 2" or "tqr_unit_word()"};
        const tqg_u32 bits = *tqr_at_${name}(from, key, ${quad} / 8 * ${f.bits} + word);
        x->codes[s] = tqr_unpack(${f.bits == 4 and "tqg_sign_down(bits)" or "bits"});
%             else
        const int u = ${c(quads.quad)};
%                 if f.bits == 4 then
        const tqg_u32 nibbles =
            tqg_sign_down(${tops("tops_back", ("*tqr_at_%s(from, key, u)"):format(name))}) & 0xffffu;
%                 elseif f.bits == 3 then
        tqg_u32 nibbles = 0;
        TQG_UNROLL
        for (int i = 0; i < 3; i++) {
            const tqg_u32 half = *tqr_at_${name}(from, key, i);
            nibbles |= u == i ? half & 0x7777u : u == 3 ? (half & 0x8888u) >> (i + 1) : 0u;
        }
%                 else
        const tqg_u32 nibbles = *tqr_at_${name}(from, key, u / 2) >> 2 * (u & 1) & 0x3333u;
%                 end
        const tqg_u32 codes = tqr_from_nibbles(nibbles);
%                 if quads.is_natural then
        x->codes[s] = codes;
%                 else
        x->codes[s] = 0;
        TQG_UNROLL
        for (int n = 0; n < 4; n++)
            x->codes[s] |= tqr_byte(tqr_shfl(codes, ${beside}${c(quads.holder)}), ${c(quads.nibble)}) << 8 * n;
%                 end
%             end
%             if has_gains then
        tqg_u8 *const from_gains = ${gains_at};
%                 if side.gains then
        const tqg_u32 gains = ${tops("tops_back", ("*tqr_gains_%s(from_gains, key, %s)"):format(name, values == 64 and "0" or "tqr_lane() / 16"))};
        x->gain[s] = gains >> (tqr_lane() & 12) & 15u;
%                 elseif values == 64 then
        x->gain[s] = (tqg_u32)*((const tqg_u16 *)from_gains + key) >> (tqr_lane() & 12) & 15u;
%                 else
        x->gain[s] = *((const tqg_u32 *)from_gains + key) >> (tqr_lane() & 28) & 15u;
%                 end
%             end
        x->scale[s] = *tqr_scale_${name}(${scales_at}, key);
    }
}
%         end
%     end
% end
% end
