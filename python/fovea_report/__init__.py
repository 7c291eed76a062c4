"""Reports: tables, sentences and pictures of the records that `fovea bench` writes."""
