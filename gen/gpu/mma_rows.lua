-- How templates/gpu/mma_rows.h takes rows of a format apart: numbers that its text and the geometry of kernels share.
-- f: a format as templates see it.

local KEYS = 32

return function(f)
    local head_dim = f.head_dim
    local gains = f.bits < 16 and f.subs > 0
    -- by_unit: the four or eight lanes of a product share a unit; else each has one of its own. offset: values come as bytes
    -- below a constant one, and what is too much in them is taken off by products with a constant.
    local m = { by_unit = f.bits >= 8 or f.bits == 4 and not gains }
    m.offset = m.by_unit and f.bits < 16
    m.words = (f.row_bytes + 14 + 15) // 16
    m.unit_bytes = 4 * f.bits
    m.full_units = head_dim // 32
    m.tail = not m.by_unit and head_dim % 32 ~= 0
    m.n_blocks = f.bits < 16 and f.n_blocks or 1
    m.block_units = f.bits < 16 and f.full_units + (f.tail and 1 or 0) or (head_dim + 31) // 32
    -- Upper byte of 2^n. Codes: 1.125 2^n times the largest factor is still a half. q8_0: the byte below counts ones.
    m.one = gains and 0x48 or f.bits == 8 and 0x64 or 0x38
    -- k steps of S and row blocks of O, of which the last ones take off what rounding left.
    if m.by_unit then
        local units = (head_dim + 31) // 32
        m.k_parts, m.v_parts, m.k_steps, m.v_tiles = units, units, 2 * units, 2 * units
    else
        m.k_parts, m.v_parts = (m.full_units + 1) // 2, (m.full_units + 3) // 4
        m.sum_steps, m.left_tiles = (m.k_parts + 1) // 2, m.v_parts
        m.k_steps = 4 * m.k_parts + (m.tail and 1 or 0) + m.sum_steps
        m.v_tiles = 8 * m.v_parts + (m.tail and 1 or 0) + m.left_tiles
    end
    -- Bytes of shared memory that a warp prepares for its lanes: scales or gains, then last units.
    local factors = (m.n_blocks + 3) // 4 * 4
    m.gain_words = gains and (f.subs + 7) // 8 or 0
    -- Are units that meet in one product, two of K or four of V, always of one block of gains?
    m.k_meet = not gains or m.n_blocks == 1 or m.block_units % 2 == 0
    m.v_meet = not gains or m.n_blocks == 1 or m.block_units % 4 == 0
    m.half_gain_word = gains and (f.subs + 3) // 4 % 2 == 1
    m.k_aux_tail, m.v_aux_tail = 0, 0
    if gains then
        m.k_aux_tail = m.n_blocks * m.gain_words * KEYS * 16
        m.v_aux_tail = m.n_blocks * m.gain_words * 8 * 80
    elseif m.offset then
        m.k_aux_tail, m.v_aux_tail = KEYS * (factors + 4) * 4, KEYS // 2 * factors * 4
    end
    m.k_aux = m.k_aux_tail + (m.tail and KEYS * 48 or 0)
    m.v_aux = m.v_aux_tail + (m.tail and 16 * 80 or 0)
    -- For the whole of a kernel: of K, per group of columns, what products with the offset come to; of V the offset.
    m.k_begin, m.v_begin = m.offset and 64 * m.k_parts or 0, m.offset and 16 or 0
    -- What a decoded half stands for, in units of those of templates/gpu/codes.h.
    m.unit = f.bits >= 8 and 1 or 16
    return m
end
