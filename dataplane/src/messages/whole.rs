//! What a message of changes refers to: the whole report or reading that Python has checked and passed on.
use std::collections::HashMap;

/// Of flows, and of paths, of each side.
pub const COLUMNS: usize = 3;

/// Columns of one report, one after the other: of flows at their ingress `queued`, `queued_bytes`, `dropped`; of
/// their paths `sent_bytes`, `sent_frames`, `rate_mbps`; of paths at their egress `received_bytes`, `received_frames`,
/// `delay_ms`; of flows at their egress `delivered_bytes`, `delivered_frames`, `lost`.
#[derive(Debug, Default)]
pub struct WholeReport {
    sides: [HashMap<u64, Flow>; 2],
    /// How many flows and paths both sides have.
    pub flows: [usize; 2],
    pub paths: [usize; 2],
    pub values: Vec<f64>,
}

#[derive(Debug)]
pub struct Flow {
    pub at: usize,
    /// Path id and row.
    pub paths: Vec<(u64, usize)>,
}

impl WholeReport {
    /// `shape` has for each side how many flows there are; for each of these its number, how many paths it has, and
    /// their ids. None if that does not agree with the values, or something is named twice.
    pub fn new(shape: &[u64], values: &[f64]) -> Option<WholeReport> {
        let mut found = WholeReport { values: values.to_vec(), ..WholeReport::default() };
        let mut rest = shape.iter().copied();
        let mut rows = [0_usize; 2];
        for (side, next_row) in rows.iter_mut().enumerate() {
            let count = rest.next()?;
            for at in 0..count {
                let (number, paths) = (rest.next()?, rest.next()?);
                let mut flow = Flow { at: at as usize, paths: Vec::new() };
                for _ in 0..paths {
                    let id = rest.next()?;
                    if flow.paths.iter().any(|&(known, _)| known == id) {
                        return None;
                    }
                    flow.paths.push((id, *next_row));
                    *next_row += 1;
                }
                if found.sides[side].insert(number, flow).is_some() {
                    return None;
                }
            }
        }
        found.flows = [found.sides[0].len(), found.sides[1].len()];
        found.paths = rows;
        let is_complete = rest.next().is_none() && values.len() == found.first_of_ended() + COLUMNS * found.flows[1];
        if is_complete {
            Some(found)
        } else {
            None
        }
    }

    /// Where the columns of the paths of a side begin.
    pub fn first_of_paths(&self, side: usize) -> usize {
        COLUMNS * (self.flows[0] + if side == 0 { 0 } else { self.paths[0] })
    }

    /// Where the columns of flows at their egress begin.
    fn first_of_ended(&self) -> usize {
        COLUMNS * (self.flows[0] + self.paths[0] + self.paths[1])
    }

    /// Where the columns of the flows of a side begin.
    pub fn first_of_flows(&self, side: usize) -> usize {
        if side == 0 {
            0
        } else {
            self.first_of_ended()
        }
    }

    /// A flow of the ingress (0) or egress (1) side.
    pub fn flow(&self, side: usize, number: u64) -> Option<&Flow> {
        self.sides[side].get(&number)
    }
}

/// What a session's changes refer to.
#[derive(Debug, Default)]
pub enum Whole {
    /// Nothing, or something that only Python knows.
    #[default]
    Unknown,
    Report(Box<WholeReport>),
    /// The technologies of a reading, in its order.
    Reading(Vec<Vec<u8>>),
}
