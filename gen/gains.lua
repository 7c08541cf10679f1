--- Tables of the gain formats: value = chunk norm / sqrt(chunk size) * step_sigma * centroid * gain.
--
-- A chunk stores its norm; each run of `sub_block` values stores a 4-bit gain code, which its encoder searches; each
-- value stores an index. Centroids and gains were trained together on coordinates of uniform random unit vectors of
-- `trained_chunk` values: Lloyd iterations that assign the best gain and indices to every run, then refit centroids and
-- gains by least squares, until the error stood still; then both were taken to integers (centroids 8 bits, gains <= 63)
-- and the step refitted. `mse` is the relative error of the integer tables under an exhaustive search of the gains.
--
-- Two and three bits use an asymmetric table, eight gains and a sign: codes 0..7 are +gains, 8..15 are -gains. Four
-- bits use a symmetric table and sixteen gains. `gains` lists the gain of every code, code 0 first.

local function with_negatives(positive)
    local gains = table.move(positive, 1, #positive, 1, {})
    for _, gain in ipairs(positive) do
        gains[#gains + 1] = -gain
    end
    return gains
end

--- Gain tables by bits per index.
return {
    [2] = {
        centroids = { -68, -13, 35, 102 },
        gains = with_negatives { 26, 31, 35, 39, 43, 48, 54, 63 },
        step_sigma = 0.000443931,
        mse = 0.08025,
        sub_block = 16,
        trained_chunk = 128,
    },
    [3] = {
        centroids = { -76, -46, -24, -5, 13, 32, 54, 88 },
        gains = with_negatives { 28, 33, 36, 40, 44, 49, 55, 63 },
        step_sigma = 0.000597829,
        mse = 0.018812,
        sub_block = 16,
        trained_chunk = 128,
    },
    [4] = {
        centroids = { -125, -98, -78, -61, -45, -31, -18, -6, 6, 18, 31, 45, 61, 78, 98, 125 },
        gains = { 24, 26, 28, 30, 32, 34, 35, 37, 39, 42, 44, 46, 49, 53, 57, 63 },
        step_sigma = 0.000487397,
        mse = 0.004822,
        sub_block = 16,
        trained_chunk = 128,
    },
}
