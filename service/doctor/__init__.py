"""What `jitney doctor` looks at: each module one part of a deployment, none of which it changes or starts."""
