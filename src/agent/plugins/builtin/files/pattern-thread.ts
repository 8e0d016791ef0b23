// The thread in which a regular expression of a model runs: one may take for ever, and only the end of its
// thread ends it. One text per message, answered in order.
import { parentPort, workerData } from 'node:worker_threads';
import type { FromPatternThread, PatternSource, ToPatternThread } from './pattern-search.ts';

// A line of generated code may have megabytes.
const maxLineLength = 10_000;

const { source, ignoreCase } = workerData as PatternSource;
const pattern = new RegExp(source, ignoreCase ? 'i' : '');

parentPort?.on('message', ({ text, limit }: ToPatternThread) => {
  const lines: FromPatternThread = [];
  for (const [index, line] of text.split('\n').entries()) {
    if (!pattern.test(line.slice(0, maxLineLength))) continue;
    lines.push({ line: index + 1, text: line });
    if (lines.length === limit) break;
  }
  parentPort?.postMessage(lines);
});
