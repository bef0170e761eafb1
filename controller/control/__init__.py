"""The closed loop on a living network (docs/explanation/live.md): what comes in, the slot, what goes out. No sockets,
no Ryu."""
