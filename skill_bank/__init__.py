"""Skills as prose for an agent and typed policy for the machine: format, compiler, versions. Knows no other package."""
