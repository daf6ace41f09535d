//! The vocabulary and objects of the verbs: PD, MR, keys, QP states, work requests, completions.
