//! A symmetric positive definite matrix most of whose values are zero: a sum of blocks on few rows each. Its rows are
//! taken in an order in which the factor has few values more than the matrix.
//!
//! The order is that of least degree (Tinney and Walker, "Direct solutions of sparse network equations by optimally
//! ordered triangular factorization", Proc. IEEE 55(11), 1967); a row of the factor is worked out from those above that
//! have a value in its column (George and Liu, "Computer Solution of Large Sparse Positive Definite Systems", 1981,
//! chapter 5).

/// A dense factor of so few rows takes no longer than to find an order.
const FEW_ROWS: usize = 32;
/// Products of values that lie apart take so much longer than those of a dense matrix.
const APART: usize = 8;

/// The order of the rows, and where factor and blocks have values. Values are those of the diagonal, in the order, and
/// then what is right of it, row by row.
pub struct Structure {
    /// By row its place in the order.
    place: Vec<u32>,
    /// By place where its values right of the diagonal begin, and their columns, in order.
    starts: Vec<usize>,
    columns: Vec<u32>,
    /// By place where in `above` its column begins: the values above the diagonal, and where their rows end.
    above_starts: Vec<usize>,
    above: Vec<(u32, u32)>,
    /// By block where in `pairs` its values begin: the upper triangle of its rows, row by row, as they are given.
    pair_starts: Vec<usize>,
    pairs: Vec<u32>,
}

impl Structure {
    /// Of a matrix with `size` rows, with blocks on the rows of each support; None where a dense one takes less.
    pub fn of<'a>(size: usize, supports: impl Iterator<Item = &'a [u32]> + Clone) -> Option<Structure> {
        if size <= FEW_ROWS {
            return None;
        }
        let rows = least_degree(size, Neighbours::of(size, supports.clone()))?;
        let mut place = vec![0u32; size];
        rows.iter().enumerate().for_each(|(at, (row, _))| place[*row] = at as u32);
        let (mut starts, mut columns) = (vec![0], Vec::new());
        let mut above_of = vec![Vec::new(); size];
        for (_, later) in &rows {
            let (first, mut own) = (columns.len(), later.iter().map(|&row| place[row]).collect::<Vec<u32>>());
            own.sort_unstable();
            columns.extend(own);
            let end = columns.len();
            (first..end).for_each(|at| above_of[columns[at] as usize].push((at as u32, end as u32)));
            starts.push(end);
        }
        let (mut above_starts, mut above) = (vec![0], Vec::new());
        for of in above_of {
            above.extend(of);
            above_starts.push(above.len());
        }
        let mut made =
            Structure { place, starts, columns, above_starts, above, pair_starts: vec![0], pairs: Vec::new() };
        supports.for_each(|support| made.take_block(support));
        Some(made)
    }

    fn take_block(&mut self, support: &[u32]) {
        for (i, &row) in support.iter().enumerate() {
            for &column in &support[i..] {
                let (a, b) = (self.place[row as usize], self.place[column as usize]);
                let (first, last) = (a.min(b) as usize, a.max(b));
                let own = self.starts[first]..self.starts[first + 1];
                // All rows of a block are neighbours: each is among the columns of those before it.
                let right = || self.size() + own.start + self.columns[own.clone()].partition_point(|&at| at < last);
                self.pairs.push(if a == b { first } else { right() } as u32);
            }
        }
        self.pair_starts.push(self.pairs.len());
    }

    fn size(&self) -> usize {
        self.place.len()
    }

    /// How many values there are.
    pub fn values(&self) -> usize {
        self.size() + self.columns.len()
    }

    /// Add sum_q v_q v_q' on the rows of a block; `vectors` holds the v_q one after the other, each as long as the
    /// block's support. `line` is for intermediate values.
    pub fn add_outer(&self, values: &mut [f64], block: usize, vectors: &[f64], line: &mut Vec<f64>) {
        let mut pairs = &self.pairs[self.pair_starts[block]..self.pair_starts[block + 1]];
        let count = triangle_side(pairs.len());
        for i in 0..count {
            line.clear();
            line.resize(count - i, 0.0);
            for vector in vectors.chunks_exact(count) {
                let factor = vector[i];
                line.iter_mut().zip(&vector[i..]).for_each(|(line, &value)| *line += factor * value);
            }
            let (own, rest) = pairs.split_at(count - i);
            own.iter().zip(line.iter()).for_each(|(&at, &value)| values[at as usize] += value);
            pairs = rest;
        }
    }

    /// Add to the diagonal, by row.
    pub fn add_diagonal(&self, values: &mut [f64], added: impl Iterator<Item = f64>) {
        self.place.iter().zip(added).for_each(|(&place, added)| values[place as usize] += added);
    }

    /// Factorise as U' U, in place, with the diagonal `scale` times as large; false if it isn't positive definite.
    /// `line` is for intermediate values.
    pub fn factorise(&self, values: &mut [f64], scale: f64, line: &mut Vec<f64>) -> bool {
        line.clear();
        line.resize(self.size(), 0.0);
        let (diagonal, right) = values.split_at_mut(self.size());
        for (place, diagonal) in diagonal.iter_mut().enumerate() {
            let own = self.starts[place]..self.starts[place + 1];
            let columns = &self.columns[own.clone()];
            columns.iter().zip(&right[own.clone()]).for_each(|(&column, &value)| line[column as usize] = value);
            let mut pivot = *diagonal * scale;
            for &(at, end) in &self.above[self.above_starts[place]..self.above_starts[place + 1]] {
                let (at, end) = (at as usize, end as usize);
                let factor = right[at];
                pivot -= factor * factor;
                let later = self.columns[at + 1..end].iter().zip(&right[at + 1..end]);
                later.for_each(|(&column, &value)| line[column as usize] -= factor * value);
            }
            if !(pivot > 0.0 && pivot.is_finite()) {
                return false;
            }
            *diagonal = pivot.sqrt();
            let scale = 1.0 / *diagonal;
            columns.iter().zip(&mut right[own]).for_each(|(&column, value)| *value = scale * line[column as usize]);
        }
        true
    }

    /// Solve U' U y = b in place, for a factor of [`Structure::factorise`]. `line` is for intermediate values.
    pub fn solve(&self, factor: &[f64], b: &mut [f64], line: &mut Vec<f64>) {
        let (diagonal, right) = factor.split_at(self.size());
        line.clear();
        line.resize(self.size(), 0.0);
        self.place.iter().zip(b.iter()).for_each(|(&place, &value)| line[place as usize] = value);
        for place in 0..self.size() {
            let known = line[place] / diagonal[place];
            line[place] = known;
            let own = self.starts[place]..self.starts[place + 1];
            let later = self.columns[own.clone()].iter().zip(&right[own]);
            later.for_each(|(&column, &value)| line[column as usize] -= known * value);
        }
        for place in (0..self.size()).rev() {
            let own = self.starts[place]..self.starts[place + 1];
            let later = self.columns[own.clone()].iter().zip(&right[own]);
            let known: f64 = later.map(|(&column, &value)| line[column as usize] * value).sum();
            line[place] = (line[place] - known) / diagonal[place];
        }
        self.place.iter().zip(b.iter_mut()).for_each(|(&place, value)| *value = line[place as usize]);
    }
}

/// The rows of a triangle of so many values.
fn triangle_side(values: usize) -> usize {
    (((8 * values + 1) as f64).sqrt() as usize - 1) / 2
}

/// Who is in a block with whom, as bits.
struct Neighbours {
    words: usize,
    bits: Vec<u64>,
}

impl Neighbours {
    fn of<'a>(size: usize, supports: impl Iterator<Item = &'a [u32]>) -> Neighbours {
        let words = (size + 63) / 64;
        let mut bits = vec![0u64; words * size];
        let mut block = vec![0u64; words];
        for support in supports {
            support.iter().for_each(|&row| block[row as usize / 64] |= 1 << (row % 64));
            for &row in support {
                bits[row as usize * words..][..words].iter_mut().zip(&block).for_each(|(own, more)| *own |= more);
            }
            support.iter().for_each(|&row| block[row as usize / 64] = 0);
        }
        Neighbours { words, bits }
    }

    fn row(&self, row: usize) -> &[u64] {
        &self.bits[row * self.words..(row + 1) * self.words]
    }
}

/// Rows, each with the later ones in which its elimination leaves values; that with the fewest is next. None where
/// that takes longer than a dense factor.
fn least_degree(size: usize, mut neighbours: Neighbours) -> Option<Vec<(usize, Vec<usize>)>> {
    let words = neighbours.words;
    let mut is_left = vec![true; size];
    let mut degrees: Vec<u32> =
        (0..size).map(|row| neighbours.row(row).iter().map(|word| word.count_ones()).sum()).collect();
    let (mut work, most) = (0, size * size * size / 3 / APART);
    let mut order = Vec::with_capacity(size);
    for _ in 0..size {
        let row = (0..size).filter(|&row| is_left[row]).min_by_key(|&row| degrees[row])?;
        let own = neighbours.row(row).to_vec();
        is_left[row] = false;
        let later: Vec<usize> = ones(&own).filter(|&other| is_left[other]).collect();
        work += later.len() * later.len();
        if work > most {
            return None;
        }
        for &other in &later {
            let theirs = &mut neighbours.bits[other * words..(other + 1) * words];
            theirs.iter_mut().zip(&own).for_each(|(theirs, own)| *theirs |= own);
            theirs[row / 64] &= !(1 << (row % 64));
            degrees[other] = theirs.iter().map(|word| word.count_ones()).sum();
        }
        order.push((row, later));
    }
    Some(order)
}

fn ones(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(at, &word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            bit.map(|bit| 64 * at + bit)
        })
    })
}
