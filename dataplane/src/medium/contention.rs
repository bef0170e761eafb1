//! How often stations that contend begin to send in the same slot: CSMA/CA under saturation, in closed form.
//!
//! A station attempts with probability tau in each slot, independent of the n - 1 others; another one is heard in a slot
//! with p = 1 - (1 - tau)^(n-1). Both protocols go through back-off stages. In stage i a station counts k slots down,
//! k uniform in 0..CW_i, and attempts; success leads to stage 0, a collision to the next one (from the last to the last).
//! In 1901 a station that hears others in more than d_i of these slots goes to the next stage without an attempt. With
//!
//! * a_i, the probability that a visit to stage i ends with an attempt,
//! * s_i, the mean number of slots of a visit,
//! * v_i, the visits to stage i: v_0 = 1, v_(i+1) = v_i (1 - a_i (1 - p)), the last stage summed up,
//!
//! tau = sum v_i a_i / sum v_i s_i, and the solution of both equations is found by bisection. Without deferral a_i = 1 and
//! s_i = (CW_i + 1) / 2, which is the fixed point of G. Bianchi: Performance Analysis of the IEEE 802.11 Distributed
//! Coordination Function, IEEE JSAC 18(3), 2000. With it this is that of C. Vlachou, A. Banchs, J. Herzen, P. Thiran:
//! Performance Analysis of MAC for Power-Line Communications, ACM SIGMETRICS 2014.
//!
//! What the medium needs of it is how many stations begin together in a slot in which any does: Bin(n, tau) given at least
//! one. Idle slots are no part of it: capacities hold what back-off costs a station that is alone.

use super::config::{fault, ConfigError, Port};
use super::rng::Rng;
use serde::Deserialize;
use std::collections::BTreeMap;

/// How stations of a technology share their medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Contention {
    /// Turns, nothing lost.
    #[serde(rename = "ideal")]
    Ideal,
    /// IEEE 802.11 DCF, and EDCA's best effort: CW 16 to 1024, seven retries, none of group frames.
    #[serde(rename = "csma-802.11")]
    Dot11,
    /// IEEE 1901 and HomePlug AV, priority CA1: CW 8 to 64, with deferral. What collides is sent until it gets through.
    #[serde(rename = "csma-1901")]
    Plc,
}

/// A back-off stage: size of the window, and how many busy slots are borne (None: any number).
type Stage = (usize, Option<usize>);

const DOT11: [Stage; 7] = [(16, None), (32, None), (64, None), (128, None), (256, None), (512, None), (1024, None)];
const PLC: [Stage; 4] = [(8, Some(0)), (16, Some(1)), (32, Some(3)), (64, Some(15))];
const DOT11_RETRIES: u32 = 7;
/// Halvings of an interval of 1: to the last bit.
const BISECTIONS: usize = 60;
/// Less probable numbers of stations at once are left out of the tables.
const LEAST_TAIL: f64 = 1e-12;

impl Contention {
    fn stages(self) -> &'static [Stage] {
        match self {
            Contention::Ideal => &[],
            Contention::Dot11 => &DOT11,
            Contention::Plc => &PLC,
        }
    }

    /// How often a frame is sent again after a collision.
    pub fn retries(self, group: bool) -> u32 {
        match self {
            Contention::Dot11 if group => 0,
            Contention::Dot11 => DOT11_RETRIES,
            _ => u32::MAX,
        }
    }
}

/// Probability that a visit to a stage ends with an attempt, and its mean number of slots, if others are heard in a slot
/// with probability `p`.
fn visit((window, deferral): Stage, p: f64) -> (f64, f64) {
    let borne = match deferral {
        None => return (1.0, (window + 1) as f64 / 2.0),
        Some(borne) => borne,
    };
    // heard[j]: the station is still there and has heard others in j of the first k slots.
    let mut heard = vec![0.0; borne + 1];
    heard[0] = 1.0;
    let (mut attempts, mut slots, mut slots_of_leavers) = (0.0, 0.0, 0.0);
    for k in 0..window {
        let there: f64 = heard.iter().sum();
        attempts += there;
        slots += slots_of_leavers + (k + 1) as f64 * there;
        slots_of_leavers += (k + 1) as f64 * heard[borne] * p;
        for j in (1..=borne).rev() {
            heard[j] = heard[j] * (1.0 - p) + heard[j - 1] * p;
        }
        heard[0] *= 1.0 - p;
    }
    (attempts / window as f64, slots / window as f64)
}

/// tau of a station that hears others in a slot with probability `p`.
fn attempt_probability(stages: &[Stage], p: f64) -> f64 {
    let (mut visits, mut attempts, mut slots) = (1.0, 0.0, 0.0);
    for (i, &stage) in stages.iter().enumerate() {
        let (a, s) = visit(stage, p);
        let success = a * (1.0 - p);
        if i + 1 == stages.len() {
            visits /= success;
        }
        attempts += visits * a;
        slots += visits * s;
        visits *= 1.0 - success;
    }
    attempts / slots
}

/// tau of `n` saturated stations.
fn saturated(stages: &[Stage], n: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..BISECTIONS {
        let tau: f64 = (low + high) / 2.0;
        let p = 1.0 - (1.0 - tau).powi(n as i32 - 1);
        // All attempts collide at p = 1: nobody attempts often.
        if p < 1.0 && attempt_probability(stages, p) > tau {
            low = tau;
        } else {
            high = tau;
        }
    }
    (low + high) / 2.0
}

/// Probability of at most 1, 2, ... stations that begin together, given that any of `n` does; what lies above the last one
/// belongs to it.
fn together(tau: f64, n: usize) -> Vec<f64> {
    let silence = (1.0 - tau).powi(n as i32);
    let (mut exactly, mut sum, mut table) = (silence, 0.0, Vec::new());
    for k in 1..=n {
        exactly *= (n - k + 1) as f64 / k as f64 * tau / (1.0 - tau);
        sum += exactly / (1.0 - silence);
        table.push(sum);
        if 1.0 - sum < LEAST_TAIL {
            break;
        }
    }
    table
}

/// Tables of one technology, for all numbers of stations that it may have.
#[derive(Debug, Clone)]
struct Tables {
    contention: Contention,
    /// Of n stations at n - 1.
    together: Vec<Vec<f64>>,
}

/// Which technologies collide, and how often.
#[derive(Debug, Clone, Default)]
pub struct Collisions {
    tables: Vec<Tables>,
    /// Port -> index into the tables; None: ideal.
    of_port: Vec<Option<usize>>,
}

impl Collisions {
    /// Tables for the ports of a configuration.
    pub fn new(ports: &[Port], contention: &BTreeMap<String, Contention>) -> Collisions {
        let mut collisions = Collisions { tables: Vec::new(), of_port: vec![None; ports.len()] };
        for (technology, &contention) in contention.iter().filter(|(_, &c)| c != Contention::Ideal) {
            let own = |port: &&Port| port.technology == *technology;
            let stations = ports.iter().filter(own).count();
            let table = |n| together(saturated(contention.stages(), n), n);
            collisions.tables.push(Tables { contention, together: (1..=stations).map(table).collect() });
            for (p, _) in ports.iter().enumerate().filter(|(_, port)| own(port)) {
                collisions.of_port[p] = Some(collisions.tables.len() - 1);
            }
        }
        collisions
    }

    /// Whether frames of a port may collide with those of others.
    pub fn may_collide(&self, port: usize) -> bool {
        self.of_port[port].is_some()
    }

    /// Whether frames of two ports may collide with each other: those of one technology that is not ideal.
    pub fn collide(&self, port: usize, other: usize) -> bool {
        self.of_port[port].is_some() && self.of_port[port] == self.of_port[other]
    }

    /// How many of `n` stations begin together, at least one; `port` is any of them.
    pub fn draw(&self, port: usize, n: usize, rng: &mut Rng) -> usize {
        let table = match self.of_port[port] {
            Some(t) if n > 1 => &self.tables[t].together[n - 1],
            _ => return 1,
        };
        let u = rng.unit();
        1 + table.iter().take(table.len() - 1).take_while(|&&at_most| u >= at_most).count()
    }

    /// How often a frame of a port is sent again after a collision.
    pub fn retries(&self, port: usize, group: bool) -> u32 {
        self.of_port[port].map_or(u32::MAX, |t| self.tables[t].contention.retries(group))
    }
}

/// Every key must be a technology that some port has.
pub(super) fn check_contention(
    raw: BTreeMap<String, Contention>,
    ports: &[Port],
) -> Result<BTreeMap<String, Contention>, ConfigError> {
    match raw.keys().find(|&name| !ports.iter().any(|port| port.technology == *name)) {
        Some(name) => fault(format!("contention.{name}"), "no port has this technology"),
        None => Ok(raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: usize = 400_000;

    /// Shares of slots in which one of `n` stations begins alone, and in which any does: the back-off procedures themselves,
    /// station by station and slot by slot.
    fn simulated(stages: &[Stage], n: usize, seed: u64) -> (f64, f64) {
        let mut rng = Rng::new(seed);
        let enter = |i: usize, rng: &mut Rng| (i, rng.below(stages[i].0), stages[i].1.unwrap_or(usize::MAX));
        let mut stations: Vec<(usize, usize, usize)> = (0..n).map(|_| enter(0, &mut rng)).collect();
        let (mut alone, mut any) = (0, 0);
        for _ in 0..SLOTS {
            let sending = stations.iter().filter(|s| s.1 == 0).count();
            alone += usize::from(sending == 1);
            any += usize::from(sending > 0);
            for station in &mut stations {
                let &mut (stage, counter, deferral) = station;
                let next = (stage + 1).min(stages.len() - 1);
                *station = match (counter, sending) {
                    (0, 1) => enter(0, &mut rng),
                    (0, _) => enter(next, &mut rng),
                    (_, 0) => (stage, counter - 1, deferral),
                    _ if deferral == 0 => enter(next, &mut rng),
                    _ => (stage, counter - 1, deferral - 1),
                };
            }
        }
        (alone as f64 / SLOTS as f64, any as f64 / SLOTS as f64)
    }

    /// Bianchi's tau(p) as he gives it.
    fn bianchi(w: f64, m: i32, p: f64) -> f64 {
        let sum: f64 = (0..m).map(|k| (2.0 * p).powi(k)).sum();
        2.0 / (1.0 + w + p * w * sum)
    }

    #[test]
    fn without_deferral_it_is_bianchis_formula() {
        for p in [0.0, 0.1, 0.3, 0.5, 0.9] {
            let (ours, his) = (attempt_probability(&DOT11, p), bianchi(16.0, 6, p));
            assert!((ours / his - 1.0).abs() < 1e-12, "p {p}: {ours}, {his}");
        }
        // With a constant window tau is 2 / (W + 1), whatever the others do.
        for n in [1, 2, 50] {
            assert!((saturated(&[(32, None)], n) - 2.0 / 33.0).abs() < 1e-12);
        }
    }

    #[test]
    fn efficiency_is_that_of_the_procedures_themselves() {
        // The stations of 1901 are less independent than the equations take them to be, two of them most.
        for (stages, n, within) in [
            (&DOT11[..], 2, 0.01),
            (&DOT11[..], 5, 0.015),
            (&DOT11[..], 10, 0.02),
            (&PLC[..], 2, 0.06),
            (&PLC[..], 5, 0.03),
            (&PLC[..], 10, 0.03),
        ] {
            let (alone, any) = simulated(stages, n, 7);
            let efficiency = together(saturated(stages, n), n)[0];
            assert!((efficiency * any / alone - 1.0).abs() < within, "n {n}: {efficiency}, {}", alone / any);
        }
    }

    #[test]
    fn numbers_of_stations_have_their_probabilities() {
        let ports: Vec<Port> = (0..4).map(|_| port("w")).chain([port("q")]).collect();
        let contention = BTreeMap::from([("w".to_string(), Contention::Plc), ("q".to_string(), Contention::Ideal)]);
        let collisions = Collisions::new(&ports, &contention);
        assert!(collisions.may_collide(0) && !collisions.may_collide(4));
        assert!(collisions.collide(0, 3) && !collisions.collide(0, 4) && !collisions.collide(4, 4));
        let mut rng = Rng::new(3);
        let mut counts = [0.0; 5];
        (0..100_000).for_each(|_| counts[collisions.draw(0, 4, &mut rng)] += 1e-5);
        let mut sum = 0.0;
        for (k, at_most) in together(saturated(&PLC, 4), 4).iter().enumerate() {
            sum += counts[k + 1];
            assert!((sum - at_most).abs() < 0.006, "{counts:?}");
        }
        assert_eq!(counts[0], 0.0);
        assert_eq!((collisions.draw(0, 1, &mut rng), collisions.draw(4, 3, &mut rng)), (1, 1));
    }

    fn port(technology: &str) -> Port {
        let (name, technology) = (String::new(), technology.to_string());
        Port {
            name,
            netns: None,
            mac: [2, 0, 0, 0, 0, 1],
            technology,
            uplink: None,
            hears: None,
            radio: None,
            mtu: 1600,
        }
    }
}
