// Everything that needs the `ai` package. It takes a while to load, so the start of the agent imports this late.
export { runModelLoop } from './loop.ts';
export { summarize } from './summary.ts';
export { toModelMessages } from './model-messages.ts';
