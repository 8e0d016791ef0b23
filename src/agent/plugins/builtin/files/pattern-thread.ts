// The thread that runs a regular expression from a model: an expression can backtrack for hours, and only
// terminating its thread stops it. Each message has one text; the answers come in the same order.
import { parentPort, workerData } from 'node:worker_threads';
import type { FromPatternThread, PatternSource, ToPatternThread } from './pattern-search.ts';

// Only the beginning of a line is matched: a line of generated code can have megabytes.
const maxLineLength = 10_000;

const { source, ignoreCase } = workerData as PatternSource;
const pattern = new RegExp(source, ignoreCase ? 'i' : '');

parentPort?.on('message', ({ text, limit }: ToPatternThread) => {
  const lines: FromPatternThread = [];
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    if (!pattern.test(line.slice(0, maxLineLength))) continue;
    lines.push({ line: index + 1, text: line });
    if (lines.length === limit) break;
  }
  parentPort?.postMessage(lines);
});
