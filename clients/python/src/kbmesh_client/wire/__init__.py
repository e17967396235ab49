"""Between the SDK's values and the contracts' messages. Both clients share it."""
