use super::*;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::time::Duration;

/// Counts what it was told to change.
#[derive(Default)]
struct Told {
    changes: usize,
}

impl Handler for Told {
    fn hello(&self, epoch: u64) -> String {
        format!("{{\"type\":\"hello\",\"epoch\":{epoch}}}")
    }
    fn obeys(&self, seq: Option<u64>) -> String {
        Reply::Obeys { seq, revision: 7, rates: Default::default() }.line()
    }
    fn request(&mut self, seq: Option<u64>, request: Request) -> Result<Vec<String>, String> {
        self.changes += usize::from(request.changes());
        Ok(vec![Reply::Ok { seq, from: Default::default() }.line()])
    }
    fn report(&mut self) -> Vec<String> {
        vec!["{\"type\":\"report\"}".into()]
    }
    fn link_lines(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A controller's end of one session.
struct Peer {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
}

impl Peer {
    fn say(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

struct Rig {
    listeners: Vec<TcpListener>,
    epoll: Epoll,
    control: Control,
    told: Told,
}

impl Rig {
    fn new(controllers: usize) -> Self {
        let listeners: Vec<_> = (0..controllers).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
        let epoll = Epoll::new(16).unwrap();
        let control = Control::new(&addresses, None, None, 1, &epoll).unwrap();
        Rig { listeners, epoll, control, told: Told::default() }
    }

    /// One turn of the shell's loop, after `pass_ns` that went by without sleeping.
    fn turn(&mut self, pass_ns: u64) {
        self.control.poll(monotonic_ns() + pass_ns, &self.epoll, &mut self.told);
        let mut events = Vec::new();
        self.epoll.wait(Some(20 * MS), &mut events).unwrap();
        for event in &events {
            self.control.on_event(event.token, &self.epoll, &mut self.told);
        }
    }

    fn accept(&mut self, which: usize) -> Peer {
        self.listeners[which].set_nonblocking(true).unwrap();
        for _ in 0..100 {
            self.turn(0);
            if let Ok((stream, _)) = self.listeners[which].accept() {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap());
                return Peer { stream, lines };
            }
        }
        panic!("nobody dials");
    }

    /// The next line of some type that a controller gets.
    fn hear(&mut self, peer: &mut Peer, kind: &str) -> String {
        let mut line = String::new();
        for _ in 0..200 {
            self.turn(0);
            while peer.lines.read_line(&mut line).is_ok() && line.ends_with('\n') {
                if line.contains(&format!("\"type\":\"{kind}\"")) {
                    return line;
                }
                line.clear();
            }
        }
        panic!("no {kind}");
    }

    fn ask(&mut self, peer: &mut Peer, line: &str, kind: &str) -> String {
        peer.say(line);
        self.hear(peer, kind)
    }
}

const WELCOME: &str = r#"{"type":"welcome","version":1}"#;
const CHANGES: [&str; 3] = [
    r#"{"type":"config","seq":5,"revision":3}"#,
    r#"{"type":"rates","seq":5,"rates":{}}"#,
    r#"{"type":"reset-counters","seq":5}"#,
];

#[test]
fn all_controllers_are_obeyed_until_one_says_that_it_leads() {
    let mut rig = Rig::new(2);
    let mut peers = [rig.accept(0), rig.accept(1)];
    for peer in &mut peers {
        rig.hear(peer, "hello");
        peer.say(WELCOME);
        for change in CHANGES {
            rig.ask(peer, change, "ok");
        }
    }
    assert_eq!(rig.told.changes, 2 * CHANGES.len());
}

#[test]
fn only_the_greatest_epoch_changes_anything() {
    let mut rig = Rig::new(2);
    let [mut old, mut new] = [rig.accept(0), rig.accept(1)];
    rig.hear(&mut old, "hello");
    rig.hear(&mut new, "hello");
    let answer = rig.ask(&mut old, r#"{"type":"lead","seq":1,"epoch":4}"#, "ok");
    assert!(answer.contains("\"revision\":7"), "{answer}");
    rig.ask(&mut old, CHANGES[0], "ok");
    // One that has not said that it leads counts as epoch 0.
    for change in CHANGES {
        let refused = rig.ask(&mut new, change, "error");
        assert!(refused.contains("stale epoch") && refused.contains("\"epoch\":4"), "{refused}");
    }
    rig.ask(&mut new, r#"{"type":"stats","seq":2}"#, "ok");
    rig.ask(&mut new, r#"{"type":"lead","seq":3,"epoch":5}"#, "ok");
    assert_eq!(rig.told.changes, 1);
    for change in CHANGES {
        rig.ask(&mut old, change, "error");
    }
    rig.ask(&mut old, r#"{"type":"lead","seq":6,"epoch":4}"#, "error");
    assert_eq!(rig.told.changes, 1);
    rig.ask(&mut new, CHANGES[1], "ok");
    assert_eq!(rig.told.changes, 2);
}

#[test]
fn the_greatest_epoch_outlives_the_session_that_named_it() {
    let mut rig = Rig::new(1);
    let mut leader = rig.accept(0);
    assert!(rig.hear(&mut leader, "hello").contains("\"epoch\":0"));
    leader.say(WELCOME);
    rig.ask(&mut leader, r#"{"type":"lead","seq":1,"epoch":9}"#, "ok");
    drop(leader);
    let mut again = rig.accept(0);
    assert!(rig.hear(&mut again, "hello").contains("\"epoch\":9"));
    rig.ask(&mut again, CHANGES[0], "error");
    assert_eq!(rig.told.changes, 0);
}

#[test]
fn hostile_epochs_are_refused_and_change_nothing() {
    let mut rig = Rig::new(1);
    let mut peer = rig.accept(0);
    rig.hear(&mut peer, "hello");
    for epoch in ["0", "-1", "9223372036854775808", "18446744073709551616", "1.5", "\"3\"", "null", "[]", "1e300"] {
        rig.ask(&mut peer, &format!("{{\"type\":\"lead\",\"seq\":1,\"epoch\":{epoch}}}"), "error");
    }
    rig.ask(&mut peer, r#"{"type":"lead","seq":1}"#, "error");
    assert_eq!(rig.control.epochs.greatest(), 0);
    rig.ask(&mut peer, CHANGES[0], "ok");
}

#[test]
fn a_standby_is_told_each_second_and_the_leader_as_often_as_it_asks() {
    let mut rig = Rig::new(2);
    let [mut leader, mut standby] = [rig.accept(0), rig.accept(1)];
    for peer in [&mut leader, &mut standby] {
        rig.hear(peer, "hello");
        peer.say(r#"{"type":"welcome","version":1,"report_ms":100}"#);
    }
    rig.ask(&mut leader, r#"{"type":"lead","seq":1,"epoch":1}"#, "ok");
    rig.ask(&mut standby, r#"{"type":"stats","seq":2}"#, "ok");
    let intervals: Vec<_> = rig.control.connections.iter().map(|c| c.report_ns(rig.control.epochs)).collect();
    assert_eq!(intervals, [Some(100 * MS), Some(1_000 * MS)]);
}

fn heard_ms(pong: &str) -> Option<u64> {
    let (_, text) = pong.split_once("\"heard_ms\":")?;
    Some(text.trim_end().trim_end_matches('}').parse().unwrap())
}

const ASK: &str = r#"{"type":"ping","seq":8,"leader":true}"#;

#[test]
fn a_pong_says_nothing_of_a_leader_until_one_was_named() {
    let mut rig = Rig::new(1);
    let mut peer = rig.accept(0);
    rig.hear(&mut peer, "hello");
    for ping in [r#"{"type":"ping","seq":8}"#, ASK] {
        assert_eq!(rig.ask(&mut peer, ping, "pong").trim_end(), r#"{"type":"pong","seq":8}"#);
    }
    let refused = rig.ask(&mut peer, r#"{"type":"ping","seq":8,"leader":1}"#, "error");
    assert!(refused.contains("ping: "), "{refused}");
}

#[test]
fn a_standby_learns_when_the_leader_was_heard_and_the_leader_is_asked() {
    let mut rig = Rig::new(2);
    let [mut leader, mut standby] = [rig.accept(0), rig.accept(1)];
    rig.hear(&mut leader, "hello");
    rig.hear(&mut standby, "hello");
    rig.ask(&mut leader, r#"{"type":"lead","seq":1,"epoch":4}"#, "ok");
    std::thread::sleep(Duration::from_millis(60));
    let pong = rig.ask(&mut standby, ASK, "pong");
    assert!(pong.contains("\"epoch\":4") && heard_ms(&pong) >= Some(60), "{pong}");
    // That made the agent ask: what the leader answers is in the next pong.
    rig.hear(&mut leader, "ping");
    rig.ask(&mut leader, r#"{"type":"stats","seq":2}"#, "ok");
    let pong = rig.ask(&mut standby, r#"{"type":"ping","seq":9}"#, "pong");
    assert!(heard_ms(&pong) < Some(60), "{pong}");
    // A leader whose session has ended is heard by nobody.
    drop(leader);
    rig.accept(0);
    let pong = rig.ask(&mut standby, ASK, "pong");
    assert!(pong.contains("\"epoch\":4") && heard_ms(&pong).is_none(), "{pong}");
}

#[test]
fn a_leader_is_not_asked_more_often_than_it_helps() {
    let mut rig = Rig::new(2);
    let [mut leader, mut standby] = [rig.accept(0), rig.accept(1)];
    rig.hear(&mut leader, "hello");
    rig.hear(&mut standby, "hello");
    rig.ask(&mut leader, r#"{"type":"lead","seq":1,"epoch":4}"#, "ok");
    let before = monotonic_ns();
    for _ in 0..200 {
        rig.ask(&mut standby, ASK, "pong");
    }
    let most = (monotonic_ns() - before) / ASK_LEADER_NS + 1;
    let asked = rig.control.connections.iter().map(|c| c.ping_seq).max().unwrap();
    assert!(0 < asked && asked <= most, "{asked} of {most}");
}
