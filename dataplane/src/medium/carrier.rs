//! What stations hear: for how long the medium was not free to them, as their own carrier sensing would tell.
//!
//! A station hears the transmissions of some stations and its own. Two that it hears may transmit at once if they don't hear
//! each other; the time counts once.

use super::config::Port;

#[derive(Debug, Default)]
struct Ear {
    /// Transmissions heard now.
    heard: u32,
    since_ns: u64,
    busy_ns: u64,
}

/// The ears of all ports that have any.
#[derive(Debug)]
pub struct Carriers {
    /// Sending port -> ports that hear it.
    heard_by: Vec<Vec<usize>>,
    ears: Vec<Option<Ear>>,
}

impl Carriers {
    /// All silent. A port without `hears` has no ears.
    pub fn new(ports: &[Port]) -> Carriers {
        let mut heard_by = vec![Vec::new(); ports.len()];
        for (listener, port) in ports.iter().enumerate() {
            for &sender in port.hears.iter().flatten().chain(port.hears.is_some().then_some(&listener)) {
                if !heard_by[sender].contains(&listener) {
                    heard_by[sender].push(listener);
                }
            }
        }
        Carriers { heard_by, ears: ports.iter().map(|port| port.hears.as_ref().map(|_| Ear::default())).collect() }
    }

    /// A port begins to send.
    pub fn begin(&mut self, sender: usize, at_ns: u64) {
        for &listener in &self.heard_by[sender] {
            if let Some(ear) = &mut self.ears[listener] {
                if ear.heard == 0 {
                    ear.since_ns = at_ns;
                }
                ear.heard += 1;
            }
        }
    }

    /// A transmission of a port ends.
    pub fn end(&mut self, sender: usize, at_ns: u64) {
        for &listener in &self.heard_by[sender] {
            if let Some(ear) = &mut self.ears[listener] {
                ear.heard -= 1;
                if ear.heard == 0 {
                    ear.busy_ns += at_ns.saturating_sub(ear.since_ns);
                }
            }
        }
    }

    /// For how long a port heard somebody since the last reset; None if it has no ears.
    pub fn busy_ns(&self, port: usize, now_ns: u64) -> Option<u64> {
        let ear = self.ears[port].as_ref()?;
        let running = if ear.heard > 0 { now_ns.saturating_sub(ear.since_ns) } else { 0 };
        Some(ear.busy_ns + running)
    }

    /// Starts the times anew.
    pub fn reset(&mut self, now_ns: u64) {
        for ear in self.ears.iter_mut().flatten() {
            ear.busy_ns = 0;
            ear.since_ns = now_ns;
        }
    }
}
