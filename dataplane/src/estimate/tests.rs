//! Filters on their own, worked out by hand; equality with the reference is tested from Python.
use super::filter_bank::{Bank, Room, Settings};

const SETTINGS: Settings = Settings {
    tau_s: 2.0,
    window: 3,
    jump_samples: 3,
    jump_ratio: 0.2,
    jump_sigma: 2.0,
    step_samples: &[5],
    step_ratio: 0.04,
    step_sigma: 5.0,
};

/// One of two filters after samples 0.1 s apart: mean, variance, weight, count, recent, time.
type Filter = (f64, f64, f64, i64, [f64; 5], f64);

fn filtered(samples: &[f64], settings: &Settings) -> Filter {
    let times: Vec<f64> = (0..samples.len()).map(|tick| 0.1 * tick as f64).collect();
    filtered_at(samples, &times, settings)
}

fn filtered_at(samples: &[f64], times_s: &[f64], settings: &Settings) -> Filter {
    let (mut mean, mut variance, mut weight, mut count) = ([0.0; 2], [0.0; 2], [0.0; 2], [0; 2]);
    let (mut recent, mut time_s, mut room) = ([f64::NAN; 10], [f64::NEG_INFINITY; 2], Room::default());
    let mut bank = Bank {
        mean: &mut mean,
        variance: &mut variance,
        weight: &mut weight,
        count: &mut count,
        recent: &mut recent,
        time_s: &mut time_s,
        columns: 5,
    };
    for (&sample, &time_s) in samples.iter().zip(times_s) {
        bank.update(1, sample, time_s, settings, &mut room);
    }
    assert_eq!((mean[0], variance[0], weight[0], count[0], time_s[0]), (0.0, 0.0, 0.0, 0, f64::NEG_INFINITY));
    assert!(recent[..5].iter().all(|one| one.is_nan()));
    let mut own = [0.0; 5];
    own.copy_from_slice(&recent[5..]);
    (mean[1], variance[1], weight[1], count[1], own, time_s[1])
}

fn numbers(recent: &[f64]) -> Vec<f64> {
    recent.iter().copied().filter(|one| !one.is_nan()).collect()
}

#[test]
fn first_samples_have_equal_weights_and_an_outlier_is_taken_out() {
    let (mean, variance, weight, count, recent, time_s) = filtered(&[8.0], &SETTINGS);
    assert_eq!((mean, variance, weight, count, numbers(&recent), time_s), (8.0, 0.0, 1.0, 1, vec![8.0], 0.0));
    // Medians: 8, 9 (of 8 and 10), 10; the third sample is no outlier of the spread: (1 - 1/3) (v + 1/3 (60 - 8.5)^2).
    let (mean, variance, weight, count, recent, _) = filtered(&[8.0, 10.0, 60.0], &SETTINGS);
    assert_eq!((mean, count, numbers(&recent)), (9.0, 3, vec![8.0, 10.0, 60.0]));
    assert!((variance - 2.0 / 3.0 * (1.0 + 51.5 * 51.5 / 3.0)).abs() < 1e-9 && (weight - 1.0 / 3.0).abs() < 1e-15);
}

#[test]
fn a_jump_starts_again_at_the_median_of_the_last_samples() {
    let (mean, variance, weight, count, recent, _) = filtered(&[10.0, 10.0, 10.0, 30.0, 32.0, 31.0], &FIRM);
    assert_eq!((mean, count, numbers(&recent)), (31.0, 3, vec![30.0, 32.0, 31.0]));
    assert!(variance > 0.0 && (weight - 1.0 / 3.0).abs() < 1e-15);
}

/// With less regard for noise: a few samples alone are no measure of it.
const FIRM: Settings = Settings { jump_sigma: 0.0, step_sigma: 0.0, ..SETTINGS };

#[test]
fn a_small_step_starts_again_at_the_inner_mean() {
    let samples: Vec<f64> = [[100.0; 10].as_slice(), &[107.0, 108.0, 109.0, 110.0, 111.0]].concat();
    let (mean, _, weight, count, recent, _) = filtered(&samples, &Settings { tau_s: 50.0, ..FIRM });
    assert_eq!((mean, count, numbers(&recent)), (109.0, 5, samples[10..].to_vec()));
    assert!((weight - 0.2).abs() < 1e-15);
    // Samples from before the step do not count as its beginning.
    let (_, _, _, count, _, _) = filtered(&samples[..14], &Settings { tau_s: 50.0, ..FIRM });
    assert_eq!(count, 14);
}

#[test]
fn what_is_not_newer_changes_nothing() {
    let (mean, variance, weight, count, recent, time_s) = filtered_at(&[8.0, 9.0], &[5.0, 6.0], &SETTINGS);
    for old_s in [6.0, 5.5, f64::NEG_INFINITY, f64::NAN] {
        let again = filtered_at(&[8.0, 9.0, 90.0], &[5.0, 6.0, old_s], &SETTINGS);
        assert_eq!((again.0, again.1, again.2, again.3, again.5), (mean, variance, weight, count, time_s));
        assert_eq!(numbers(&again.4), numbers(&recent));
    }
}

#[test]
fn a_long_wait_forgets() {
    let (mean, _, weight, count, _, _) = filtered_at(&[8.0, 9.0, 9.0, 9.0], &[0.0, 0.1, 0.2, 1e9], &SETTINGS);
    assert_eq!((mean, weight, count), (9.0, 1.0, 4));
}
