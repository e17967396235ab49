"""KEDA's external scaler: how much work all replicas of a service have."""
