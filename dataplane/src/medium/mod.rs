//! `hyroads-medium`: an emulator of shared media (docs/reference/dataplane.md, section 3).
//!
//! The model is pure: time comes in as an argument, randomness from a seed, frames go in and deliveries come out. It runs in
//! virtual time, so the shell that paces it by the real clock may be late without any capacity being lost.
//!
//! * [`config`]: the configuration file, checked once;
//! * [`conflicts`]: which links may not send together, folded into classes;
//! * [`model`]: queues, airtime, loss, delay and live changes; [`access`]: who sends next; [`carrier`]: who hears it;
//!   [`contention`]: how often stations collide, [`collisions`]: what becomes of it; [`stats`]: counters;
//! * [`frame`]: frames of Ethernet and of radios; [`dot11`]: headers of 802.11;
//! * [`hwsim`]: messages of mac80211_hwsim; [`radios`]: its radios as ports;
//! * [`control`]: requests and replies of the control socket;
//! * [`shell`]: TAP devices, sockets, the clock.

pub mod access;
pub mod carrier;
pub mod collisions;
pub mod config;
pub mod conflicts;
pub mod contention;
pub mod control;
pub mod dot11;
pub mod frame;
pub mod hwsim;
pub mod model;
pub mod parts;
pub mod radios;
pub use crate::rng;
pub mod shell;
pub mod stats;

#[cfg(test)]
mod collisions_tests;
#[cfg(test)]
mod model_laws;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod radio_tests;
#[cfg(test)]
mod test_world;
