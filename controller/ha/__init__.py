"""Hot standby: several controllers of which one leads. Their state is in etcd; devices obey the greatest epoch."""
