//! Many filters, as columns, and what one sample changes in one of them.

/// The spread of so many first samples is taken as it comes; from then on it is at least this share of the mean.
const LEAST_SPREAD_SAMPLES: i64 = 5;
const LEAST_SPREAD: f64 = 0.01;

/// `FilterSettings` of the reference. `window`, `jump_samples` (1 or more) and `step_samples` (3 or more) are at most
/// as many as a bank's `columns`.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    pub tau_s: f64,
    pub window: usize,
    pub jump_samples: usize,
    pub jump_ratio: f64,
    pub jump_sigma: f64,
    pub step_samples: &'a [u64],
    pub step_ratio: f64,
    pub step_sigma: f64,
}

/// N filters. `count` is 0 and `time_s` minus infinity before the first sample; `recent` is [N, columns], the latest
/// last, NaN where there is none.
#[derive(Debug)]
pub struct Bank<'a> {
    pub mean: &'a mut [f64],
    pub variance: &'a mut [f64],
    pub weight: &'a mut [f64],
    pub count: &'a mut [i64],
    pub recent: &'a mut [f64],
    pub time_s: &'a mut [f64],
    pub columns: usize,
}

/// A filter before a sample.
#[derive(Debug, Clone, Copy)]
struct Before {
    mean: f64,
    variance: f64,
    count: i64,
}

/// Room to work in, the same for all samples with the same settings. Many samples come as long after the last one of
/// their filter as the one before them: the exponential is worked out once for these.
#[derive(Debug, Default)]
pub struct Room {
    ordered: Vec<f64>,
    elapsed_s: f64,
    /// The share after that time, 0 after none.
    share: f64,
}

impl Room {
    /// The share of a sample in an average, by the time since the last one.
    fn share(&mut self, elapsed_s: f64, tau_s: f64) -> f64 {
        if elapsed_s != self.elapsed_s {
            self.elapsed_s = elapsed_s;
            self.share = -(elapsed_s / tau_s).exp_m1();
        }
        self.share
    }
}

/// From how many samples a filter starts again, and where.
type Again = Option<(usize, f64)>;

impl Bank<'_> {
    /// One more sample, a finite number, of the filter `at`; nothing changes if it is not newer than the last one.
    pub fn update(&mut self, at: usize, value: f64, time_s: f64, settings: &Settings, room: &mut Room) {
        let before_s = self.time_s[at];
        let is_newer = time_s > before_s;
        if !is_newer {
            return;
        }
        let before = Before { mean: self.mean[at], variance: self.variance[at], count: self.count[at] };
        let recent = &mut self.recent[at * self.columns..][..self.columns];
        recent.copy_within(1.., 0);
        recent[self.columns - 1] = value;
        self.time_s[at] = time_s;
        if let Some((samples, level)) = before.again(recent, settings, &mut room.ordered) {
            recent[..self.columns - samples].fill(f64::NAN);
            self.mean[at] = level;
            self.weight[at] = 1.0 / samples as f64;
            self.count[at] = samples as i64;
            return;
        }
        let count = before.count.wrapping_add(1);
        // At the first sample the share is 1 / (0 + 1), which gives the sample itself without spread and of weight 1.
        let share = maximum(room.share(before_s - time_s, settings.tau_s), 1.0 / count as f64);
        let middle = median(last(recent, settings.window), &mut room.ordered);
        self.mean[at] = before.mean + share * (middle - before.mean);
        // The spread is that of raw samples, against the mean before: the median would hide it.
        self.variance[at] = (1.0 - share) * (before.variance + share * before.spread(value));
        self.weight[at] = (1.0 - share) * (1.0 - share) * self.weight[at] + share * share;
        self.count[at] = count;
    }
}

impl Before {
    /// Squared deviation of a sample, cut at two standard deviations: a step must not hide in the noise that it seems
    /// to make.
    fn spread(&self, value: f64) -> f64 {
        let apart = if self.count > 0 { value - self.mean } else { 0.0 };
        let (squared, least) = (apart * apart, LEAST_SPREAD * self.mean);
        if self.count < 2 * LEAST_SPREAD_SAMPLES {
            return squared;
        }
        minimum(squared, 4.0 * maximum(self.variance, least * least))
    }

    fn again(&self, recent: &[f64], settings: &Settings, ordered: &mut Vec<f64>) -> Again {
        let jump = last(recent, settings.jump_samples);
        if self.count >= jump.len() as i64 && self.is_jump(jump, settings) {
            return Some((jump.len(), median(jump, ordered)));
        }
        // No mean of samples is further away than the furthest of them; a little less, for what is rounded.
        let near = 0.999 * settings.step_ratio * self.mean.abs();
        if recent.iter().all(|one| (one - self.mean).abs() <= near) {
            return None;
        }
        let steps = settings.step_samples.iter().map(|&samples| last(recent, samples as usize));
        let mut long_enough = steps.filter(|step| self.count >= 2 * step.len() as i64);
        long_enough.find_map(|step| self.stepped(step, settings).map(|level| (step.len(), level)))
    }

    /// Whether all are off by much, to one side; NaN compares as false.
    fn is_jump(&self, samples: &[f64], settings: &Settings) -> bool {
        let least = maximum(settings.jump_ratio * self.mean.abs(), settings.jump_sigma * self.variance.sqrt());
        samples.iter().all(|one| one - self.mean > least) || samples.iter().all(|one| self.mean - one > least)
    }

    /// Where a filter that is off by a small step should be; NaN compares as false.
    fn stepped(&self, samples: &[f64], settings: &Settings) -> Option<f64> {
        let inner = samples.len() as f64 - 2.0;
        let (most, least) = samples
            .iter()
            .fold((samples[0], samples[0]), |(most, least), &one| (maximum(most, one), minimum(least, one)));
        let level = (samples.iter().sum::<f64>() - most - least) / inner;
        let step = level - self.mean;
        let enough =
            maximum(settings.step_ratio * self.mean.abs(), settings.step_sigma * (self.variance / inner).sqrt());
        // Samples from before a large step would make a smaller one of it.
        let is_begun = samples[..2].iter().all(|one| (one - self.mean) * step > 0.5 * (step * step));
        (is_begun && step.abs() > enough).then_some(level)
    }
}

fn last(recent: &[f64], count: usize) -> &[f64] {
    &recent[recent.len() - count..]
}

/// NaN left out; NaN if there is nothing else.
fn median(samples: &[f64], ordered: &mut Vec<f64>) -> f64 {
    if let Some(first) = samples.first() {
        if samples.iter().all(|one| one == first) {
            return 0.5 * (first + first);
        }
    }
    ordered.clear();
    ordered.extend(samples.iter().filter(|one| !one.is_nan()));
    ordered.sort_unstable_by(f64::total_cmp);
    match ordered.len() {
        0 => f64::NAN,
        known => 0.5 * (ordered[(known - 1) / 2] + ordered[known / 2]),
    }
}

/// The greater one; NaN if one of both is, as of numpy.
fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b {
        a
    } else {
        b
    }
}

/// The smaller one; NaN if one of both is, as of numpy.
fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b {
        a
    } else {
        b
    }
}
