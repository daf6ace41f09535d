//! Tables and pages for people.
