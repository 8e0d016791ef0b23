// The room of the agent's data: where it lies, and how it is opened.
export { openAgentDatabase } from './data.ts';
