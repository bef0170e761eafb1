//! Dense blocks and symmetric matrices, with wide vector instructions where the processor has them.

/// A function that is compiled twice, once for processors with wide vectors, and calls what the processor can do.
macro_rules! wide {
    ($(#[$doc:meta])* pub fn $name:ident = $plain:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?) => {
        $(#[$doc])*
        pub fn $name($($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                // SAFETY: only called where the processor has AVX2 and FMA; the code itself is safe.
                #[target_feature(enable = "avx2,fma")]
                unsafe fn on_avx2($($arg: $type),*) $(-> $result)? {
                    $plain($($arg),*)
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has what the function is compiled for.
                    return unsafe { on_avx2($($arg),*) };
                }
            }
            $plain($($arg),*)
        }
    };
}

/// Pivots that are taken at once: each pass over the rest of the matrix then does as many updates a value.
const BLOCK: usize = 8;

wide! {
    /// Factorise the upper triangle of the `size` x `size` matrix at `a` (by rows) as U' U, in place; false if it isn't
    /// positive definite.
    pub fn cholesky = cholesky_plain(a: &mut [f64], size: usize) -> bool
}

#[inline(always)]
fn cholesky_plain(a: &mut [f64], size: usize) -> bool {
    let mut first = 0;
    while first < size {
        let last = (first + BLOCK).min(size);
        for pivot in first..last {
            let value = a[pivot * size + pivot];
            if !(value > 0.0 && value.is_finite()) {
                return false;
            }
            let scale = 1.0 / value.sqrt();
            a[pivot * size + pivot..(pivot + 1) * size].iter_mut().for_each(|one| *one *= scale);
            for row in pivot + 1..last {
                let (above, below) = a.split_at_mut(row * size);
                let factor = above[pivot * size + row];
                let source = &above[pivot * size + row..(pivot + 1) * size];
                subtract(&mut below[row..size], factor, source);
            }
        }
        if last - first == BLOCK {
            let (panel, rest) = a.split_at_mut(last * size);
            let panel = &panel[first * size..];
            for row in last..size {
                update(&mut rest[(row - last) * size + row..(row - last + 1) * size], panel, size, row);
            }
        }
        first = last;
    }
    true
}

#[inline(always)]
fn subtract(target: &mut [f64], factor: f64, source: &[f64]) {
    target.iter_mut().zip(source).for_each(|(target, &source)| *target -= factor * source);
}

/// Take the products of the eight rows of a panel off one row of the rest, from its diagonal on.
#[inline(always)]
fn update(target: &mut [f64], panel: &[f64], size: usize, row: usize) {
    let factor: [f64; BLOCK] = std::array::from_fn(|k| panel[k * size + row]);
    let length = target.len();
    let source: [&[f64]; BLOCK] = std::array::from_fn(|k| &panel[k * size + row..k * size + row + length]);
    for at in 0..length {
        let mut sum = 0.0;
        for k in 0..BLOCK {
            sum += factor[k] * source[k][at];
        }
        target[at] -= sum;
    }
}

/// Solve U' U y = b in place for a factor of [`cholesky`].
pub fn solve(factor: &[f64], size: usize, b: &mut [f64]) {
    for row in 0..size {
        b[row] /= factor[row * size + row];
        let known = b[row];
        subtract(&mut b[row + 1..size], known, &factor[row * size + row + 1..(row + 1) * size]);
    }
    for row in (0..size).rev() {
        let known: f64 =
            factor[row * size + row + 1..(row + 1) * size].iter().zip(&b[row + 1..]).map(|(u, b)| u * b).sum();
        b[row] = (b[row] - known) / factor[row * size + row];
    }
}

wide! {
    /// How far values are from a mean, times a factor.
    pub fn deviation = deviation_plain(target: &mut [f64], values: &[f64], mean: &[f64], factor: f64)
}

#[inline(always)]
fn deviation_plain(target: &mut [f64], values: &[f64], mean: &[f64], factor: f64) {
    target.iter_mut().zip(values).zip(mean).for_each(|((target, value), mean)| *target = factor * (value - mean));
}

wide! {
    /// Move a mean a share of the way to values.
    pub fn approach = approach_plain(mean: &mut [f64], values: &[f64], share: f64)
}

#[inline(always)]
fn approach_plain(mean: &mut [f64], values: &[f64], share: f64) {
    mean.iter_mut().zip(values).for_each(|(mean, value)| *mean += share * (value - *mean));
}

wide! {
    /// Add sum_q v_q v_q' to the upper triangle at rows and columns `at` (increasing); `vectors` holds the v_q one after
    /// the other, each as long as `at`. `space` is for intermediate values.
    pub fn add_outer = add_outer_plain(a: &mut [f64], size: usize, at: &[u32], vectors: &[f64], space: &mut Vec<f64>)
}

/// Where at least one value in so many is there, zeros between them cost less than finding each value's place.
const DENSE: usize = 4;
/// Vectors that are added at once: most flows have three paths.
const TOGETHER: usize = 3;

#[inline(always)]
fn add_outer_plain(a: &mut [f64], size: usize, at: &[u32], vectors: &[f64], space: &mut Vec<f64>) {
    let count = at.len();
    space.clear();
    if DENSE * count >= size {
        for vectors in vectors.chunks(TOGETHER * count) {
            space.clear();
            space.resize(TOGETHER * size, 0.0);
            for (vector, spread) in vectors.chunks_exact(count).zip(space.chunks_exact_mut(size)) {
                at.iter().zip(vector).for_each(|(&place, &value)| spread[place as usize] = value);
            }
            let (u, v, w) = (&space[..size], &space[size..2 * size], &space[2 * size..]);
            for &row in at {
                let row = row as usize;
                let (p, q, r) = (u[row], v[row], w[row]);
                let target = &mut a[row * size + row..(row + 1) * size];
                for (((target, u), v), w) in target.iter_mut().zip(&u[row..]).zip(&v[row..]).zip(&w[row..]) {
                    *target += p * u + q * v + r * w;
                }
            }
        }
        return;
    }
    space.resize(count, 0.0);
    for (i, &row) in at.iter().enumerate() {
        let line = &mut space[i..];
        line.fill(0.0);
        for vector in vectors.chunks_exact(count) {
            let factor = vector[i];
            line.iter_mut().zip(&vector[i..]).for_each(|(line, &value)| *line += factor * value);
        }
        let target = &mut a[row as usize * size..(row as usize + 1) * size];
        at[i..].iter().zip(line.iter()).for_each(|(&column, &value)| target[column as usize] += value);
    }
}

wide! {
    /// sum_k x_k v_k; `vectors` holds the v_k one after the other, each as long as `sum`.
    pub fn combine = combine_plain(vectors: &[f64], x: &[f64], sum: &mut [f64])
}

#[inline(always)]
fn combine_plain(vectors: &[f64], x: &[f64], sum: &mut [f64]) {
    sum.fill(0.0);
    for (vector, &x) in vectors.chunks_exact(sum.len().max(1)).zip(x) {
        sum.iter_mut().zip(vector).for_each(|(sum, &value)| *sum += x * value);
    }
}

wide! {
    /// v_k' y for every k; `vectors` holds the v_k one after the other, each as long as `y`.
    pub fn products = products_plain(vectors: &[f64], y: &[f64], result: &mut [f64])
}

#[inline(always)]
fn products_plain(vectors: &[f64], y: &[f64], result: &mut [f64]) {
    for (vector, result) in vectors.chunks_exact(y.len().max(1)).zip(result) {
        // Sums of their own for every lane: additions in order would wait for each other.
        let mut sums = [0.0; BLOCK];
        let (lanes, known) = (vector.chunks_exact(BLOCK), y.chunks_exact(BLOCK));
        let rest: f64 = lanes.remainder().iter().zip(known.remainder()).map(|(a, b)| a * b).sum();
        for (lane, known) in lanes.zip(known) {
            (0..BLOCK).for_each(|k| sums[k] += lane[k] * known[k]);
        }
        *result = rest + sums.iter().sum::<f64>();
    }
}
