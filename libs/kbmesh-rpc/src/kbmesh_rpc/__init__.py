"""Being a gRPC process: server, channel, errors, settings, telemetry, drain. Import the module you need."""
