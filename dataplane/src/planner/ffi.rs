//! C interface of the planner, for ctypes. Every pointer comes with a length, everything is checked before use, and a
//! panic is caught here and becomes a status.
use std::panic::{catch_unwind, AssertUnwindSafe};

use super::graph::{Distances, Graph, Links, Vertex};
use super::interference::{Cliques, Interference, Neighbours, Ranges};
use super::routes::{routes_to, table_length};
use super::tree::{explore, Plan, Query, RatedPath};

/// Changes whenever `PlanRequest`, the layout of the answer or the meaning of either does.
pub const ABI_VERSION: u32 = 2;

const OK: i32 = 0;
const MORE_ROOM: i32 = 1;
const INVALID: i32 = 2;
const PANIC: i32 = 3;

const MAX_NODES: u64 = 1 << 20;
const MAX_LINKS: u64 = 1 << 26;
const MAX_TECHNOLOGIES: u64 = 1 << 12;
const MAX_LEAVES: u64 = 1 << 21;

/// An array of the caller's: `count` items at `items`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Array<T> {
    items: *const T,
    count: u64,
}

impl<T> Array<T> {
    /// # Safety
    /// `items` points to `count` items that stay as they are during the call, or is null.
    pub unsafe fn slice<'a>(&self) -> &'a [T] {
        if self.items.is_null() || self.count == 0 {
            return &[];
        }
        std::slice::from_raw_parts(self.items, self.count as usize)
    }
}

/// A flow to plan in a network of L links, N nodes and K technologies. Links are in the caller's order.
#[repr(C)]
pub struct PlanRequest {
    /// Size of this structure in bytes, as the caller sees it.
    size: u64,
    source: Array<i32>,
    target: Array<i32>,
    technology: Array<i32>,
    capacity_mbps: Array<f64>,
    /// uint8[N]: the node may be in the middle of a path.
    relays: Array<u8>,
    /// uint8[K]: the links of the technology share a medium.
    shared: Array<u8>,
    unit_mbps: f64,
    /// 0: `group` is the class of each link. 1: `group` is the medium of each link (-1: none) and `near` holds bits
    /// [media, N, (N + 63) / 64]. 2: `offsets` (L + 1) and `group` are sorted lists of neighbours.
    rule: u64,
    group: Array<i32>,
    offsets: Array<i64>,
    near: Array<u64>,
    flow_source: u64,
    flow_target: u64,
    shortest: u64,
    depth: u64,
    arms: u64,
}

/// Where the answer goes: `links` gets the single path (its length, then its links), the number of arms, and per arm
/// the number of paths and each path as above; `rates_mbps` the rates in the same order. The counts say how much room
/// there is and then how much is needed.
#[repr(C)]
pub struct PlanAnswer {
    size: u64,
    links: *mut i32,
    links_count: u64,
    rates_mbps: *mut f64,
    rates_count: u64,
}

type Checked<T> = Result<T, ()>;

fn ensure(good: bool) -> Checked<()> {
    if good {
        Ok(())
    } else {
        Err(())
    }
}

fn indices(values: &[i32], below: usize) -> Checked<Vec<u32>> {
    ensure(values.iter().all(|&value| value >= 0 && (value as usize) < below))?;
    Ok(values.iter().map(|&value| value as u32).collect())
}

struct Problem {
    graph: Graph,
    interference: Interference,
    capacity_mbps: Vec<f64>,
    query: Query,
}

/// # Safety
/// The arrays of the request are what they say they are.
unsafe fn read_graph(request: &PlanRequest) -> Checked<(Graph, Vec<f64>)> {
    ensure(request.size == std::mem::size_of::<PlanRequest>() as u64)?;
    let (nodes, links, technologies) = (request.relays.count, request.source.count, request.shared.count);
    ensure(nodes <= MAX_NODES && links <= MAX_LINKS && technologies <= MAX_TECHNOLOGIES)?;
    ensure(request.target.count == links && request.technology.count == links)?;
    ensure(request.capacity_mbps.count == links)?;
    let capacity_mbps = request.capacity_mbps.slice();
    ensure(capacity_mbps.iter().all(|&one| one.is_finite() && one >= 0.0))?;
    ensure(request.unit_mbps.is_finite() && request.unit_mbps >= 0.0)?;
    let source = indices(request.source.slice(), nodes as usize)?;
    let target = indices(request.target.slice(), nodes as usize)?;
    let technology = indices(request.technology.slice(), technologies as usize)?;
    let flags = |array: &Array<u8>| array.slice().iter().map(|&one| one != 0).collect::<Vec<bool>>();
    let ends = Links { source: &source, target: &target, technology: &technology };
    let graph = Graph::new(&ends, flags(&request.relays), flags(&request.shared), request.unit_mbps);
    let capacity_mbps = graph.original.iter().map(|&link| capacity_mbps[link as usize]).collect();
    Ok((graph, capacity_mbps))
}

/// # Safety
/// The arrays of the request are what they say they are.
unsafe fn read(request: &PlanRequest) -> Checked<Problem> {
    let (graph, capacity_mbps) = read_graph(request)?;
    let query = read_query(request)?;
    let interference = match request.rule {
        0 => read_cliques(request, &graph)?,
        1 => read_ranges(request, &graph)?,
        2 => read_neighbours(request, &graph)?,
        _ => return Err(()),
    };
    Ok(Problem { graph, interference, capacity_mbps, query })
}

fn read_query(request: &PlanRequest) -> Checked<Query> {
    let nodes = request.relays.count;
    ensure(request.flow_source < nodes && request.flow_target < nodes)?;
    ensure(request.flow_source != request.flow_target)?;
    ensure(request.shortest >= 1 && request.depth >= 1 && request.arms >= 1)?;
    let depth = u32::try_from(request.depth).map_err(|_| ())?;
    ensure(depth <= 64 && request.shortest.checked_pow(depth).map_or(false, |leaves| leaves <= MAX_LEAVES))?;
    Ok(Query {
        source: request.flow_source as u32,
        target: request.flow_target as u32,
        shortest: request.shortest as usize,
        depth: depth as usize,
        arms: request.arms.min(MAX_LEAVES) as usize,
    })
}

// SAFETY: only for a request whose arrays have the lengths that it says, as `read` was promised.
unsafe fn read_cliques(request: &PlanRequest, graph: &Graph) -> Checked<Interference> {
    let links = graph.original.len();
    ensure(request.group.count as usize == links)?;
    let class_of = indices(request.group.slice(), links)?;
    let class_of = graph.original.iter().map(|&link| class_of[link as usize]).collect();
    Ok(Interference::Cliques(Cliques::new(class_of, links)))
}

// SAFETY: only for a request whose arrays have the lengths that it says, as `read` was promised.
unsafe fn read_ranges(request: &PlanRequest, graph: &Graph) -> Checked<Interference> {
    let (nodes, words) = (graph.nodes, (graph.nodes + 63) / 64);
    ensure(request.group.count as usize == graph.original.len())?;
    ensure(words > 0 && request.near.count % (nodes * words) as u64 == 0)?;
    let media = request.near.count / (nodes * words) as u64;
    let medium = request.group.slice();
    ensure(medium.iter().all(|&one| one >= -1 && i64::from(one) < media as i64))?;
    let medium_of = graph.original.iter().map(|&link| u32::try_from(medium[link as usize]).ok()).collect();
    Ok(Interference::Ranges(Ranges {
        medium_of,
        source: graph.source.clone(),
        target: graph.target.clone(),
        nodes,
        words,
        near: request.near.slice().to_vec(),
    }))
}

// SAFETY: only for a request whose arrays have the lengths that it says, as `read` was promised.
unsafe fn read_neighbours(request: &PlanRequest, graph: &Graph) -> Checked<Interference> {
    let links = graph.original.len();
    ensure(request.offsets.count as usize == links + 1)?;
    let offsets = request.offsets.slice();
    ensure(offsets[0] == 0 && offsets[links] == request.group.count as i64)?;
    ensure(offsets.windows(2).all(|pair| pair[0] <= pair[1]))?;
    let offsets: Vec<usize> = offsets.iter().map(|&one| one as usize).collect();
    let indices = indices(request.group.slice(), links)?;
    let sorted = |link: usize| indices[offsets[link]..offsets[link + 1]].windows(2).all(|pair| pair[0] < pair[1]);
    ensure((0..links).all(sorted))?;
    let mut renumbered = vec![0; links];
    for (ours, &link) in graph.original.iter().enumerate() {
        renumbered[link as usize] = ours as u32;
    }
    let original = graph.original.clone();
    Ok(Interference::Neighbours(Neighbours { offsets, indices, original, renumbered }))
}

fn flatten(plan: &Plan, graph: &Graph) -> (Vec<i32>, Vec<f64>) {
    let (mut links, mut rates) = (Vec::new(), Vec::new());
    let mut put = |path: &RatedPath, links: &mut Vec<i32>| {
        links.push(path.links.len() as i32);
        links.extend(path.links.iter().map(|&link| graph.original[link as usize] as i32));
        rates.push(path.rate_mbps);
    };
    match &plan.single {
        Some(path) => put(path, &mut links),
        None => links.push(0),
    }
    links.push(plan.arms.len() as i32);
    for arm in &plan.arms {
        links.push(arm.len() as i32);
        arm.iter().for_each(|path| put(path, &mut links));
    }
    (links, rates)
}

/// # Safety
/// The buffers of the answer have the room that it says.
unsafe fn write(answer: &mut PlanAnswer, links: &[i32], rates: &[f64]) -> i32 {
    let fits = links.len() as u64 <= answer.links_count && rates.len() as u64 <= answer.rates_count;
    answer.links_count = links.len() as u64;
    answer.rates_count = rates.len() as u64;
    if !fits || answer.links.is_null() || answer.rates_mbps.is_null() {
        return MORE_ROOM;
    }
    std::ptr::copy_nonoverlapping(links.as_ptr(), answer.links, links.len());
    std::ptr::copy_nonoverlapping(rates.as_ptr(), answer.rates_mbps, rates.len());
    OK
}

/// Version of this interface; a caller that knows another one must not call `hyroads_plan`.
#[no_mangle]
pub extern "C" fn hyroads_planner_abi() -> u32 {
    ABI_VERSION
}

/// Plans one flow. Returns 0; 1 if the answer needs more room (the counts then say how much); 2 if the request is not
/// valid; 3 if the kernel failed.
///
/// # Safety
/// Both pointers are null or point to structures whose arrays are as long as they say, for the time of the call.
#[no_mangle]
pub unsafe extern "C" fn hyroads_plan(request: *const PlanRequest, answer: *mut PlanAnswer) -> i32 {
    let planned = catch_unwind(AssertUnwindSafe(|| {
        let (request, answer) = match (request.as_ref(), answer.as_mut()) {
            (Some(request), Some(answer)) => (request, answer),
            _ => return INVALID,
        };
        if answer.size != std::mem::size_of::<PlanAnswer>() as u64 {
            return INVALID;
        }
        match read(request) {
            Err(()) => INVALID,
            Ok(problem) => {
                let plan = explore(&problem.graph, &problem.interference, problem.capacity_mbps, &problem.query);
                let (links, rates) = flatten(&plan, &problem.graph);
                write(answer, &links, &rates)
            }
        }
    }));
    planned.unwrap_or(PANIC)
}

/// Next hops towards each of the `targets`, into `next`: int32[targets, N, K + 1], link or -1; per node the entry of a
/// frame that begins there, then one per ingress technology. Returns 0, 2 or 3 as `hyroads_plan`; the fields of the
/// request that describe interference and flow are not looked at.
///
/// # Safety
/// As `hyroads_plan`; `next` has room for `next_count` values.
#[no_mangle]
pub unsafe extern "C" fn hyroads_routes(
    request: *const PlanRequest,
    targets: Array<i32>,
    next: *mut i32,
    next_count: u64,
) -> i32 {
    let routed = catch_unwind(AssertUnwindSafe(|| {
        let request = match request.as_ref() {
            Some(request) if !next.is_null() => request,
            _ => return INVALID,
        };
        fill_routes(request, targets.slice(), next, next_count).map_or(INVALID, |()| OK)
    }));
    routed.unwrap_or(PANIC)
}

/// # Safety
/// As `hyroads_routes`.
unsafe fn fill_routes(request: &PlanRequest, targets: &[i32], next: *mut i32, next_count: u64) -> Checked<()> {
    let (graph, capacity_mbps) = read_graph(request)?;
    let targets = indices(targets, graph.nodes)?;
    let length = table_length(&graph);
    ensure(targets.len().checked_mul(length).map_or(false, |needed| needed as u64 == next_count))?;
    let vertex = Vertex::new(&graph, capacity_mbps);
    let mut distances = Distances::default();
    let tables = std::slice::from_raw_parts_mut(next, next_count as usize);
    for (&target, table) in targets.iter().zip(tables.chunks_exact_mut(length.max(1))) {
        routes_to(&graph, &vertex, target, &mut distances, table);
    }
    Ok(())
}
