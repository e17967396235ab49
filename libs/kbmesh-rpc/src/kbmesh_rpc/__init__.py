"""Being a gRPC process: server, channel, errors, settings, telemetry, drain. Import the module you need."""

import os

# gRPC's core writes lines of its own to stderr, where logs are lines of JSON. It reads this once, when it is loaded.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
