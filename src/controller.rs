//! The evaluate, dispatch and observe loops.
