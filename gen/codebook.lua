--- Scalar codebooks for one coordinate of a randomly rotated vector.
--
-- A coordinate of a random unit vector in d dimensions, in units of sigma = 1/sqrt(d), has the density
--     f(t) ~ (1 - t^2/d)^((d-3)/2),  |t| < sqrt(d),
-- a Beta law that tends to N(0,1) (TurboQuant, arXiv 2504.19874, section 3; Zandieh et al. 2025). d = 0 stands for that
-- limit. The quantiser of least mean squared error has its boundaries midway between its centroids and its centroids at
-- the means of their cells (Max 1960, Lloyd 1982). f is log-concave, so there is exactly one such quantiser and it is
-- symmetric: everything below works on the positive half. E t^2 = 1, so errors in these units are relative errors.

local codebook = {}

local LARGEST_INTEGER = 127
local KNOTS = 256
local GAUSSIAN_TOP = 12 -- where exp(-t^2/2) is far below the rounding error of 1
local RESIDUAL = 1e-13

-- Five-point Gauss-Legendre rule on [-1, 1]: positive nodes, their weights, and the weight of the node 0.
local NODES = { math.sqrt(5 - 2 * math.sqrt(10 / 7)) / 3, math.sqrt(5 + 2 * math.sqrt(10 / 7)) / 3 }
local WEIGHTS = { (322 + 13 * math.sqrt(70)) / 900, (322 - 13 * math.sqrt(70)) / 900 }
local CENTRE_WEIGHT = 128 / 225

local function integrate(f, a, b)
    local centre, half = (a + b) / 2, (b - a) / 2
    local x, y = half * NODES[1], half * NODES[2]
    return half * (CENTRE_WEIGHT * f(centre) + WEIGHTS[1] * (f(centre - x) + f(centre + x))
        + WEIGHTS[2] * (f(centre - y) + f(centre + y)))
end

local function shape_of(d)
    if d == 0 then
        return function(t)
            return math.exp(-t * t / 2)
        end
    end
    -- (1 - x)^e would magnify the rounding of 1 - x by e; Kahan's log1p does not.
    local exponent = (d - 3) / 2
    return function(t)
        local x = t * t / d
        local y = 1 - x
        return math.exp(exponent * (y < 1 and math.log(y) * x / (1 - y) or -x))
    end
end

-- The positive half of the law: { width = distance of its knots, shape = f without its constant,
-- above(t) -> integral of f beyond t, integral of u f(u) beyond t, f(t) }.
-- The first is tabulated at the knots, summed from the tail so that small tails keep their relative accuracy; the
-- second is elementary.
local function law_of(d)
    local shape = shape_of(d)
    local width = (d == 0 and GAUSSIAN_TOP or math.sqrt(d)) / KNOTS
    local tail = { [KNOTS] = 0 }
    for j = KNOTS, 1, -1 do
        tail[j - 1] = tail[j] + integrate(shape, (j - 1) * width, j * width)
    end
    local constant = 0.5 / tail[0]
    local function above(t)
        local knot = math.ceil(t / width)
        local density = constant * shape(t)
        local moment = d == 0 and density or density * (d - t * t) / (d - 1)
        return constant * (tail[knot] + integrate(shape, t, knot * width)), moment, density
    end
    return { width = width, shape = shape, above = above }
end

local function midpoints(centroids)
    local boundaries = {}
    for i = 1, #centroids - 1 do
        boundaries[i] = (centroids[i] + centroids[i + 1]) / 2
    end
    return boundaries
end

-- Mass and first moment of the cells between 0, the boundaries and the end of the law; density at the boundaries.
local function cells(law, boundaries)
    local mass, moment, density = {}, {}, {}
    local outer_mass, outer_moment = law.above(0)
    for i, boundary in ipairs(boundaries) do
        local m0, m1, f = law.above(boundary)
        mass[i], moment[i], density[i] = outer_mass - m0, outer_moment - m1, f
        outer_mass, outer_moment = m0, m1
    end
    mass[#mass + 1], moment[#moment + 1] = outer_mass, outer_moment
    return mass, moment, density
end

-- Quantiles of f^(1/3), the density of the centroids of a fine optimal quantiser (Panter and Dite 1951).
local function first_guess(law, n)
    local cumulative, weight = { [0] = 0 }, {}
    for j = 1, KNOTS do
        weight[j] = law.shape((j - 0.5) * law.width) ^ (1 / 3)
        cumulative[j] = cumulative[j - 1] + weight[j]
    end
    local centroids, knot = {}, 1
    for i = 1, n do
        local wanted = (i - 0.5) / n * cumulative[KNOTS]
        while cumulative[knot] < wanted do
            knot = knot + 1
        end
        centroids[i] = (knot - (cumulative[knot] - wanted) / weight[knot]) * law.width
    end
    return centroids
end

local function means(law, centroids)
    local mass, moment = cells(law, midpoints(centroids))
    local mean = {}
    for i = 1, #centroids do
        mean[i] = moment[i] / mass[i]
    end
    return mean
end

-- One Newton step on centroid - mean of its cell = 0, in place; returns the largest residual before the step.
-- A mean depends on the two boundaries of its cell, a boundary on its two neighbours: the Jacobian is tridiagonal,
-- solved by elimination from the first row down.
local function newton(law, centroids)
    local n = #centroids
    local boundaries = midpoints(centroids)
    local mass, moment, density = cells(law, boundaries)
    local worst = 0
    local upper, right = { [0] = 0 }, { [0] = 0 } -- the eliminated rows: step[i] + upper[i] step[i+1] = right[i]
    for i = 1, n do
        local mean = moment[i] / mass[i]
        local by_left = i > 1 and density[i - 1] * (mean - boundaries[i - 1]) / mass[i] / 2 or 0
        local by_right = i < n and density[i] * (boundaries[i] - mean) / mass[i] / 2 or 0
        local residual = centroids[i] - mean
        worst = math.max(worst, math.abs(residual))
        local pivot = 1 - by_left - by_right + by_left * upper[i - 1]
        upper[i] = -by_right / pivot
        right[i] = (residual + by_left * right[i - 1]) / pivot
    end
    local step = 0
    for i = n, 1, -1 do
        step = right[i] - upper[i] * step
        centroids[i] = centroids[i] - step
    end
    return worst
end

local function lloyd_max(law, n)
    local centroids = first_guess(law, n)
    for _ = 1, 8 do
        centroids = means(law, centroids)
    end
    for _ = 1, 20 do
        if newton(law, centroids) <= RESIDUAL then
            return centroids
        end
    end
    error("codebook: Newton's method did not converge")
end

local function mirrored(half, centre)
    local whole = {}
    for i = #half, 1, -1 do
        whole[#whole + 1] = -half[i]
    end
    if centre then
        whole[#whole + 1] = centre
    end
    for i = 1, #half do
        whole[#whole + 1] = half[i]
    end
    return whole
end

local function check_arguments(d, bits)
    assert(d == 0 or math.type(d) == "integer" and d >= 16, "codebook: d must be 0 (Gaussian) or an integer >= 16")
    assert(math.type(bits) == "integer" and bits >= 1 and bits <= 8, "codebook: bits must be 1..8")
end

local function memoised(f)
    local results = {}
    return function(d, bits)
        check_arguments(d, bits)
        local key = d * 16 + bits
        results[key] = results[key] or f(d, bits)
        return results[key]
    end
end

--- The Lloyd-Max codebook of the law of dimension d (0: Gaussian). Results are shared: read only.
-- { centroids = 2^bits ascending, boundaries = 2^bits - 1 ascending, both in units of sigma = 1/sqrt(d),
--   mse = relative mean squared error, entropy = bits per index }
-- Max, Quantizing for minimum distortion (1960); Lloyd, Least squares quantization in PCM (1982).
codebook.solve = memoised(function(d, bits)
    local law = law_of(d)
    local centroids = lloyd_max(law, 1 << (bits - 1))
    local boundaries = midpoints(centroids)
    local mass, moment = cells(law, boundaries)
    local mse, entropy = 1, 0
    for i, c in ipairs(centroids) do
        mse = mse + 2 * c * (c * mass[i] - 2 * moment[i])
        entropy = entropy - 2 * mass[i] * math.log(mass[i], 2)
    end
    return { centroids = mirrored(centroids), boundaries = mirrored(boundaries, 0.0), mse = mse, entropy = entropy }
end)

-- The best step for a table of integers, and its error. With boundaries midway between the entries the error
-- 1 + 2 (step^2 energy - 2 step correlation) is stationary where step = correlation / energy; both move with the
-- boundaries, so that Newton's denominator is the energy less a term for the values that change cells.
local function fit_step(law, integers, step)
    local integer_boundaries, boundaries = midpoints(integers), {}
    while true do
        for i, b in ipairs(integer_boundaries) do
            boundaries[i] = b * step
        end
        local mass, moment, density = cells(law, boundaries)
        local correlation, energy, moved = 0, 0, 0
        for i, k in ipairs(integers) do
            correlation = correlation + k * moment[i]
            energy = energy + k * k * mass[i]
        end
        for i, b in ipairs(integer_boundaries) do
            moved = moved + b * b * density[i] * (integers[i + 1] - integers[i])
        end
        local change = (correlation - step * energy) / (energy - step * moved)
        if math.abs(change) <= 1e-7 * step then
            return step + change, 1 + 2 * step * (step * energy - 2 * correlation)
        end
        step = step + change
    end
end

-- Centroids scaled to the largest entry and rounded; nil where two of them coincide or one becomes 0.
local function rounded(centroids, largest)
    local integers, previous = {}, 0
    for i, c in ipairs(centroids) do
        integers[i] = math.floor(c * largest / centroids[#centroids] + 0.5)
        if integers[i] <= previous then
            return nil
        end
        previous = integers[i]
    end
    return integers
end

--- The 8-bit image of the Lloyd-Max codebook: of all roundings of it with largest entry <= 127, the one with the least
-- error at its own best step and midway boundaries. Results are shared: read only.
-- { centroids = 2^bits integers ascending, odd symmetric, mse = relative mean squared error,
--   step = one integer unit in units of sigma, to 9 digits so that every C library's exp gives the same bytes }
-- An integer table makes integer dot products exact and costs about .01 % of the error at 3 bits, .1 % at 4.
codebook.integer = memoised(function(d, bits)
    local law = law_of(d)
    local solved = codebook.solve(d, bits).centroids
    local half = table.move(solved, #solved // 2 + 1, #solved, 1, {})
    local best
    for largest = 1, LARGEST_INTEGER do
        local integers = rounded(half, largest)
        if integers then
            local step, mse = fit_step(law, integers, half[#half] / largest)
            if not best or mse < best.mse - 1e-12 then
                best = { centroids = integers, step = step, mse = mse }
            end
        end
    end
    assert(best, "codebook: no 8-bit image at this number of bits")
    return { centroids = mirrored(best.centroids), step = tonumber(("%.9g"):format(best.step)), mse = best.mse }
end)

return codebook
