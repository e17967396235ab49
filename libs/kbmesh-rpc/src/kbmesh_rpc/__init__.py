"""Being a gRPC process: server, channel, errors, settings, telemetry, drain. Import the module you need."""

import os

# gRPC's core writes lines of its own to stderr, where logs are lines of JSON. It reads this once, when it is loaded.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Nothing here calls by gRPC in a forked process. With this on, a process that is started by uvloop waits for gRPC's
# threads while it holds Python's lock, which one of them waits for where it asks for the certificate of a new
# connection: both wait for ever (grpc/grpc#14258).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
