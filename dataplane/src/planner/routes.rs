//! Next hops of single-path forwarding for many targets; mirrors `controller/core/routes.py`.
use super::graph::{Distances, Graph, Vertex, NO_TECHNOLOGY, UNREACHABLE};

/// Stands for "no way" in a table of next hops.
pub const NO_LINK: i32 = -1;

/// Number of entries of the table of one target: per node the origin's entry, then one per ingress technology.
pub fn table_length(graph: &Graph) -> usize {
    graph.nodes * (graph.technologies + 1)
}

/// Fills the table of one target with links in the caller's numbers.
pub fn routes_to(graph: &Graph, vertex: &Vertex, target: u32, distances: &mut Distances, table: &mut [i32]) {
    table.fill(NO_LINK);
    // No source to avoid: no node has the number `u32::MAX`.
    distances.begin(graph, u32::MAX, target);
    let width = graph.technologies + 1;
    for node in (0..graph.nodes as u32).filter(|&node| node != target) {
        let row = &mut table[node as usize * width..(node as usize + 1) * width];
        let origin = match next_link(graph, vertex, target, distances, (node, NO_TECHNOLOGY), None) {
            Some(link) => link,
            None => continue,
        };
        row[0] = graph.original[origin as usize] as i32;
        for technology in (0..graph.technologies as u32).filter(|_| graph.relays[node as usize]) {
            if graph.has_ingress(node, technology) {
                let state = (node, technology);
                let link = next_link(graph, vertex, target, distances, state, Some(origin));
                row[1 + technology as usize] = link.map_or(NO_LINK, |one| graph.original[one as usize] as i32);
            }
        }
    }
}

/// The link out of a state of least cost to the target; of equal ones the preferred, then the first declared.
fn next_link(
    graph: &Graph,
    vertex: &Vertex,
    target: u32,
    distances: &mut Distances,
    (node, came_in_on): (u32, u32),
    preferred: Option<u32>,
) -> Option<u32> {
    let ways = graph.links_out(node).filter_map(|link| {
        let end = graph.target[link as usize];
        let rest = distances.of(graph, vertex, graph.end_state(link));
        let crossed = end == target || graph.relays[end as usize];
        let open = vertex.weight[link as usize] > 0 && crossed && rest != UNREACHABLE;
        let total = rest.saturating_add(vertex.step(graph, link, came_in_on));
        open.then_some((total, Some(link) != preferred, link))
    });
    ways.min().map(|(_, _, link)| link)
}
