// The room that says whether the agent is there.
export { status } from './status.ts';
