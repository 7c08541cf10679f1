/* Slots of a cache, and packed words at even addresses. */
#ifndef TQG_ROWS_H
#define TQG_ROWS_H

/* The unit (row or tile) that holds slot t of (sequence, KV head). */
TQG_FN tqg_u8 *tqg_unit(const tqg_cache *cache, int sequence, int head, int t, int keys_per_tile) {
    tqg_i64 offset = (tqg_i64)head * cache->head_stride;
    if (cache->page_slots) {
        const int page = cache->pages[(tqg_i64)sequence * cache->pages_stride + t / cache->page_slots];
        offset += page * cache->page_stride;
        t &= cache->page_slots - 1; /* a power of two */
    } else
        offset += sequence * cache->seq_stride;
    return cache->data + offset + t / keys_per_tile * cache->unit_stride;
}

TQG_FN tqg_u32 tqg_u16_at(const tqg_u8 *p) {
    return *(const tqg_u16 *)p;
}

/* Bits shift to shift + 31 of {high, low}; shift < 32. */
TQG_FN tqg_u32 tqg_funnel(tqg_u32 low, tqg_u32 high, int shift) {
    return (tqg_u32)(((tqg_u64)high << 32 | low) >> shift);
}

/* n 16-bit halves at an even address as words, by aligned loads that each hold a part of them; of an odd n the upper half
 * of the last word may be anything. */
TQG_FN void tqg_words_at(const tqg_u8 *p, int n, tqg_u32 *words) {
    const int odd = (int)((tqg_u64)p >> 1 & 1), last = (n - 1 + odd) >> 1;
    const tqg_u32 *aligned = (const tqg_u32 *)(p - 2 * odd);
    tqg_u32 low = aligned[0];
    TQG_UNROLL
    for (int i = 0; i < (n + 1) / 2; i++) {
        const tqg_u32 high = aligned[i + 1 < (n + 1) / 2 ? i + 1 : last];
        words[i] = tqg_funnel(low, high, 16 * odd);
        low = high;
    }
}

/* Bit 3 of the nibbles that tqg_codes takes, each at bit 7 of its byte. */
TQG_FN tqg_u32 tqg_nibble_tops(tqg_u32 word, int half) {
#if TQG_NIBBLE(0, 1) == 1
    word = half ? tqg_zip13(word << 4, word) : tqg_zip02(word << 4, word);
#else
    word = half ? word : word << 4;
#endif
    return word & 0x80808080u;
}

/* 4-bit codes of rows, whose sign is their lowest bit, to those of tiles, where it is the highest one; and back. */
TQG_FN tqg_u32 tqg_sign_up(tqg_u32 word) {
    return tqg_select(0x77777777u, word >> 1, word << 3);
}
TQG_FN tqg_u32 tqg_sign_down(tqg_u32 word) {
    return tqg_select(0x11111111u, word >> 3, word << 1);
}

#endif
