"""Every sentence of a report about what was found: named functions of rows and of notes."""
