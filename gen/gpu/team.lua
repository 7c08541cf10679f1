-- What families have in common whose kernels give a row to a team of 32 lanes, whatever the warp size: append, dequantise,
-- repack. All of them know all tiled layouts.

local tiles = require "tiles"

local THREADS, TEAM = 128, 32

-- with_rows: the kernel works on rows, too.
return function(op, shared, with_rows)
    local family = { name = op, op = op, template = "templates/gpu/" .. op .. ".c", shared = shared,
        layouts = with_rows and { "rows" } or {}, axes = {} }
    for _, tile in ipairs(tiles.list) do
        family.layouts[#family.layouts + 1] = tile.name
    end
    function family.legal()
        return true
    end
    function family.geometry(variant)
        local tile = tiles.get(variant.layout)
        return { threads = THREADS, shared_bytes = 0, keys_per_step = THREADS // TEAM,
            keys_per_tile = tile and tiles.of(tile, variant.k or variant.v, variant.head_dim).keys or 1, blocks_per_sm = 4 }
    end
    function family.env()
    end
    return family
end
