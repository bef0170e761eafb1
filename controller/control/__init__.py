"""The closed loop on a living network (docs/live.md): what comes in, the slot, what goes out. No sockets, no Ryu."""
