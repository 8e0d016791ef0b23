// Everything that needs the `ai` package, behind one door: it takes a while to load, and the start has other things to do.
export { runModelLoop as runTurn } from './loop.ts';
export { summarize } from './summary.ts';
export { toModelMessages } from './model-messages.ts';
