"""A guest network on the gateway: DHCP, DNS and address translation for devices that see nothing of the campus."""
