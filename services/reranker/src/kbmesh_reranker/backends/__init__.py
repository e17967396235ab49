"""Where scores come from: implementations of one port."""
