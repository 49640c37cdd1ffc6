"""What the commands of `stowplan import` do."""
