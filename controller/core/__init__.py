"""Pure algorithms: no I/O, no Ryu, no clock, no global random."""
