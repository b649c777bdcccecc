"""Methods under attack, by how replies are averaged."""
