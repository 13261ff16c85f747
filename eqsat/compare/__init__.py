"""One program under every search and compiler: what each makes of it, predicted and measured."""
