"""Where vectors come from: implementations of one port."""
