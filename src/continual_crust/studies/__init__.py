"""Many runs: configuration, execution, results."""
