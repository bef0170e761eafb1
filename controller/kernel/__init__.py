"""Netlink: how programs talk with the Linux kernel. Needs the standard library and the errors of the core only."""
