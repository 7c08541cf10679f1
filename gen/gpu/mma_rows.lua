-- How templates/gpu/mma_rows.h takes rows of a format apart: numbers that its text and the geometry of kernels share.
-- f: a format as templates see it.

local KEYS = 32

return function(f, head_dim)
    local gains = f.bits < 16 and f.subs > 0
    local m = { spread = f.bits == 16 or f.bits == 8 or f.bits == 4 and not gains }
    m.words = (f.row_bytes + 14 + 15) // 16
    m.unit_bytes = 4 * f.bits
    m.full_units = head_dim // 32
    m.tail = not m.spread and head_dim % 32 ~= 0
    m.n_blocks = f.bits < 16 and f.n_blocks or 1
    m.block_units = f.bits < 16 and f.full_units + (f.tail and 1 or 0) or (head_dim + 31) // 32
    -- k steps of S and row blocks of O
    if m.spread then
        local units = (head_dim + 31) // 32
        m.k_parts, m.v_parts, m.k_steps, m.v_tiles = units, units, 2 * units, 2 * units
    else
        m.k_parts, m.v_parts = (m.full_units + 1) // 2, (m.full_units + 3) // 4
        m.k_steps, m.v_tiles = 4 * m.k_parts + (m.tail and 1 or 0), 8 * m.v_parts + (m.tail and 1 or 0)
    end
    -- Bytes of shared memory that a warp prepares for its lanes: scales or gains, then last units.
    local factors = (m.n_blocks + 3) // 4 * 4
    m.gain_words = gains and (f.subs + 7) // 8 or 0
    m.half_gain_word = gains and (f.subs + 3) // 4 % 2 == 1
    m.k_aux_tail, m.v_aux_tail = 0, 0
    if gains then
        m.k_aux_tail = m.n_blocks * m.gain_words * KEYS * 16
        m.v_aux_tail = m.n_blocks * m.gain_words * 8 * 80
    elseif m.spread and f.bits < 16 then
        m.k_aux_tail, m.v_aux_tail = KEYS * (factors + 4) * 4, KEYS // 2 * factors * 4
    end
    m.k_aux = m.k_aux_tail + (m.tail and KEYS * 48 or 0)
    m.v_aux = m.v_aux_tail + (m.tail and 16 * 80 or 0)
    return m
end
