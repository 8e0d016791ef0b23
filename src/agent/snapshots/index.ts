// Snapshots of workspaces: what a run changed in the files, and how to undo it.
export type { ChangedFile, FileDiff } from './compare.ts';
export { noSnapshot, type RunSnapshot } from './run-snapshot.ts';
export { createSnapshots, type Direction, type RunReference, type Snapshots } from './snapshots.ts';
