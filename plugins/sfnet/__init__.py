"""SFNet: how applications find the controller and talk to it in JSON, without HTTP (docs/reference/sfnet.md)."""
