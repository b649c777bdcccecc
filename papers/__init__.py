"""The papers: studies, and what their authors' code does differently."""
