"""What libraries that grow trees share: the trainer, margins, and what a process keeps of earlier epochs."""
