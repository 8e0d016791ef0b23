// Snapshots of the workspace, and the way back from a run's changes.
export type { ChangedFile, FileDiff } from './compare.ts';
export { noSnapshot, type RunSnapshot } from './run-snapshot.ts';
export { createSnapshots, type Direction, type RunReference, type Snapshots } from './snapshots.ts';
