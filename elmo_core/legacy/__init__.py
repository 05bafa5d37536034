"""Other projects' model formats, one file each."""
