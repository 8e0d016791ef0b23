// Child processes of the agent: their start, their limits, and the end of all their descendants.
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
export { outputDecoder } from './output.ts';
export { openSandbox, type Sandbox, type SandboxedProgram, type SandboxSettings } from './sandbox.ts';
