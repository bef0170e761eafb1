//! Which application a flow is of: by the control group (cgroup v2) of the process that made its socket.

use crate::ip::Tuple;

const MOST_BYTES: usize = 255;

/// Who tells the control group of a flow's socket: a path such as `/user.slice/app.slice/app-firefox-12.scope`; None if the
/// flow has no socket on this host.
pub trait Owners {
    fn cgroup_of(&mut self, tuple: &Tuple) -> Option<Box<str>>;
}

/// An application as a rule names it: by the path of a control group, with all below it, or by the name that systemd
/// units and scopes have for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Application {
    Path(String),
    Name(String),
}

impl Application {
    pub fn parse(text: &str) -> Option<Application> {
        let is_plain = !text.is_empty() && text.len() <= MOST_BYTES && !text.chars().any(|c| c.is_control());
        if !is_plain {
            return None;
        }
        match text.strip_prefix('/') {
            None => Some(Application::Name(text.to_string())).filter(|_| !text.contains('/')),
            Some(path) => {
                let path = path.trim_end_matches('/');
                let is_path = !path.is_empty() && path.split('/').all(|part| !["", ".", ".."].contains(&part));
                Some(Application::Path(format!("/{path}"))).filter(|_| is_path)
            }
        }
    }

    pub fn covers(&self, cgroup: &str) -> bool {
        match self {
            Application::Path(path) => {
                cgroup.strip_prefix(path.as_str()).map_or(false, |rest| rest.is_empty() || rest.starts_with('/'))
            }
            Application::Name(name) => cgroup.split('/').any(|unit| is_unit_of(unit, name)),
        }
    }
}

/// Whether a unit is of an application: `NAME.service`, `NAME@X.service`, `NAME.slice`, or, as desktops name them,
/// `app[-LAUNCHER]-ID[@X].service` and `app[-LAUNCHER]-ID-X.scope`, where ID is NAME or ends with `.NAME`, and has its
/// hyphens escaped.
fn is_unit_of(unit: &str, name: &str) -> bool {
    let (stem, is_scope) = match unit.rsplit_once('.') {
        Some((stem, "service" | "slice")) => (stem, false),
        Some((stem, "scope")) => (stem, true),
        _ => return false,
    };
    let stem = if is_scope { stem } else { stem.split_once('@').map_or(stem, |(stem, _)| stem) };
    if stem.replace(r"\x2d", "-") == name {
        return true;
    }
    let id = match stem.strip_prefix("app-") {
        Some(rest) if is_scope => rest.rsplit_once('-').map_or(rest, |(rest, _)| rest),
        Some(rest) => rest,
        None => return false,
    };
    let id = id.rsplit_once('-').map_or(id, |(_, id)| id).replace(r"\x2d", "-");
    id == name || id.strip_suffix(name).map_or(false, |front| front.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_units() {
        let covers = |text: &str, cgroup: &str| Application::parse(text).unwrap().covers(cgroup);
        let session = "/user.slice/user-1000.slice/user@1000.service/app.slice/";
        for (name, unit) in [
            ("firefox", "app-gnome-firefox-4711.scope"),
            ("firefox", "app-flatpak-org.mozilla.firefox-4711.scope"),
            ("org.mozilla.firefox", "app-flatpak-org.mozilla.firefox-4711.scope"),
            ("firefox", "app-firefox@abc.service"),
            ("firefox", "app-firefox-4711.scope"),
            ("backup", "backup.service"),
            ("backup", "backup@home.service"),
            ("backup", "backup.slice"),
            ("backup", "backup.service/worker"),
            ("video-call", r"app-gnome-video\x2dcall-1.scope"),
            ("run-42", "run-42.scope"),
        ] {
            assert!(covers(name, &format!("{session}{unit}")), "{name} {unit}");
        }
        for unit in
            ["app-gnome-firefox2-1.scope", "app-gnome-2firefox-1.scope", "firefox", "firefox.mount", "app-.scope"]
        {
            assert!(!covers("firefox", &format!("{session}{unit}")), "{unit}");
        }
        assert!(!covers("4711", &format!("{session}app-gnome-firefox-4711.scope")));
        assert!(!covers("gnome", &format!("{session}app-gnome-firefox-4711.scope")));
    }

    #[test]
    fn a_path_covers_what_is_below_it() {
        let application = Application::parse("/system.slice/backup/").unwrap();
        assert!(application.covers("/system.slice/backup") && application.covers("/system.slice/backup/a/b"));
        assert!(!application.covers("/system.slice/backup2") && !application.covers("/system.slice"));
        assert!(!application.covers("/x/system.slice/backup"));
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in ["", "/", "a/b", "/a//b", "/a/../b", "/./a", "a\nb", &"x".repeat(256)] {
            assert_eq!(Application::parse(text), None, "{text:?}");
        }
    }
}
