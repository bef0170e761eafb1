# What dpkg runs as root; scripts/packages.py puts the lines that differ, and PART=postinst, prerm or postrm, above this.
#   UNITS     its units, patterns for systemctl
#   USERS     whom it creates, by SYSUSERS
#   FOLDERS   what only a purge removes, and CACHES what Python may have written beside the programs
# Each part may run any number of times. Nothing is enabled or started; what runs is restarted by an upgrade.
set -e
set -f

manager() { [ ! -d /run/systemd/system ] || systemctl "$@" || true; }
# Of somebody who is to go something is left that is the operator's: then the user stays, so that nobody else gets it.
owns() { [ -n "$(find /etc/hyroads -user "$1" 2>/dev/null)" ]; }

case "$PART $1" in
    "postinst configure")
        systemd-sysusers "$SYSUSERS"
        manager daemon-reload
        # $2 is the version of before: none at the first installation.
        # shellcheck disable=SC2086  # a list of patterns
        [ -z "$2" ] || manager try-restart $UNITS
        ;;
    "prerm remove")
        # shellcheck disable=SC2086
        manager stop $UNITS
        for each in $UNITS; do
            # An instance of a template is enabled by a link of its own.
            set +f
            # shellcheck disable=SC2086  # a pattern
            rm -f /etc/systemd/system/*.wants/$each
            set -f
        done
        for each in $CACHES; do
            [ ! -d "$each" ] || find "$each" -name __pycache__ -type d -prune -exec rm -rf {} +
        done
        ;;
    "prerm upgrade")
        # Those of the old version would stay.
        for each in $CACHES; do
            [ ! -d "$each" ] || find "$each" -name __pycache__ -type d -prune -exec rm -rf {} +
        done
        ;;
    "postrm remove")
        manager daemon-reload
        ;;
    "postrm purge")
        for each in $FOLDERS; do
            rm -rf "$each"
        done
        [ ! -d /etc/hyroads ] || rmdir --ignore-fail-on-non-empty /etc/hyroads
        for each in $USERS; do
            if getent passwd "$each" >/dev/null && ! owns "$each"; then
                userdel "$each" || true
            fi
        done
        manager daemon-reload
        ;;
esac
exit 0
