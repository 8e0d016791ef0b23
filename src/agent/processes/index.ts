// The room of programs: how they are run, bounded and ended.
export { keepPrograms, type Keeper } from './orphan-reaper.ts';
export {
  markedProgram,
  programEnvironment,
  runProgram,
  startProgram,
  type Program,
  type ProgramResult,
} from './process.ts';
