//! Default routes that the kernel drops without saying so.

use super::netlink::{Change, DefaultRoute};
use std::net::IpAddr;

/// Completes what the kernel says: it takes IPv4 routes away without a word when their interface is set down or loses its
/// last IPv4 address.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    routes: Vec<DefaultRoute>,
    /// IPv4 addresses with the indices of their interfaces.
    addresses: Vec<(u32, IpAddr)>,
}

impl Orphans {
    /// Goes through the changes from `at` on and puts the routes that went silently behind what took them.
    pub(super) fn complete(&mut self, out: &mut Vec<Change>, mut at: usize) {
        while at < out.len() {
            let without = self.note(&out[at]);
            at += 1;
            if let Some((index, ipv4_only)) = without {
                let is_lost = |r: &DefaultRoute| r.index == index && !(ipv4_only && r.ipv6);
                let lost: Vec<_> = self.routes.iter().filter(|r| is_lost(r)).copied().collect();
                self.routes.retain(|r| !is_lost(r));
                let count = lost.len();
                let gone = lost.into_iter().map(|r| Change::DefaultRoute(DefaultRoute { gone: true, ..r }));
                out.splice(at..at, gone);
                at += count;
            }
        }
    }

    /// Notes a change; the interface that has just lost its routes by it, and whether only those of IPv4.
    fn note(&mut self, change: &Change) -> Option<(u32, bool)> {
        match change {
            Change::DefaultRoute(route) => {
                self.routes.retain(|r| DefaultRoute { gone: route.gone, ..*r } != *route);
                if !route.gone {
                    self.routes.push(*route);
                }
                None
            }
            Change::Address(a) if a.address.is_ipv4() => {
                self.addresses.retain(|known| *known != (a.index, a.address));
                if !a.gone {
                    self.addresses.push((a.index, a.address));
                }
                let last = a.gone && !self.addresses.iter().any(|known| known.0 == a.index);
                last.then_some((a.index, true))
            }
            Change::Address(_) | Change::Neighbour(_) => None,
            Change::Link(link) => (!link.up).then_some((link.index, false)),
            Change::LinkGone { index } => {
                self.addresses.retain(|known| known.0 != *index);
                Some((*index, false))
            }
            Change::Lost => {
                *self = Orphans::default();
                None
            }
        }
    }
}
