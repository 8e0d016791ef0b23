// Child processes of the agent: how they are started, bounded and ended with everything that they have started.
export { startOrphanReaper, type OrphanReaper } from './orphan-reaper.ts';
export {
  childEnvironment,
  runProcess,
  startProcess,
  prepareCommand,
  type ProcessEnd,
  type ProcessResult,
  type RunningProcess,
} from './process.ts';
