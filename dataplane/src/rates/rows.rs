//! Which rows take part: most rows of a network never bind.
use super::problem::Problem;

/// Up to so many rows all take part.
pub const FEW_ROWS: usize = 24;

/// Rows in decreasing order of load.
fn by_load(loads: &[f64], mut rows: Vec<usize>) -> Vec<usize> {
    rows.sort_by(|&a, &b| loads[b].total_cmp(&loads[a]).then(a.cmp(&b)));
    rows
}

/// The rows to begin with: all if they are few, else loaded rows that together cover every used link.
pub fn first_rows(problem: &Problem, start: &[f64]) -> Vec<usize> {
    let count = problem.rows.count();
    if count <= FEW_ROWS {
        return (0..count).collect();
    }
    let order = by_load(&problem.loads(start), (0..count).collect());
    covering_columns(problem, &order)
}

/// Rows in the given order, each taken if it is the first that some column touches.
fn covering_columns(problem: &Problem, order: &[usize]) -> Vec<usize> {
    let (offsets, columns_of_link) = problem.columns_by_link();
    let mut covered = vec![false; problem.columns()];
    let mut done = vec![false; problem.airtime.len()];
    let mut left = covered.len();
    let mut taken = Vec::new();
    for &row in order {
        let before = left;
        for link in problem.rows.row(row).iter().map(|&link| link as usize) {
            if !std::mem::replace(&mut done[link], true) {
                for &column in &columns_of_link[offsets[link]..offsets[link + 1]] {
                    left -= usize::from(!std::mem::replace(&mut covered[column as usize], true));
                }
            }
        }
        if left < before {
            taken.push(row);
        }
        if left == 0 {
            break;
        }
    }
    taken
}

/// Rows in the given order, without those of which a share `overlap` or more is in earlier ones.
pub fn spread_out(problem: &Problem, order: &[usize], overlap: f64) -> Vec<usize> {
    let mut covered = vec![false; problem.airtime.len()];
    let mut taken = Vec::new();
    for &row in order {
        let members = problem.rows.row(row);
        let known = members.iter().filter(|&&link| covered[link as usize]).count();
        if (known as f64) < overlap * members.len() as f64 {
            taken.push(row);
            members.iter().for_each(|&link| covered[link as usize] = true);
        }
    }
    taken
}

/// Rows that don't take part and have loads beyond a bound, worst first, without those that are mostly in others.
pub fn violated(problem: &Problem, loads: &[f64], takes_part: &[bool], bound: f64, overlap: f64) -> Vec<usize> {
    let over: Vec<usize> = (0..loads.len()).filter(|&row| !takes_part[row] && loads[row] > bound).collect();
    if over.is_empty() {
        return over;
    }
    spread_out(problem, &by_load(loads, over), overlap)
}
