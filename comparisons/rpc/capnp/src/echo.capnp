@0xe5f1a8f0c0de4a11;
# What goes, and what comes back.

interface Echo {
  echo @0 (bytes :Data) -> (bytes :Data);
}
