"""Privacy policy: the split of website accesses over two networks (spec 04, section 2)."""
