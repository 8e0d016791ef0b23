// Records the error codes that the tests observe at each operation, so that `npm run
// lint:observed-codes` can list the unobserved ones.
import { subscribe } from 'node:diagnostics_channel';
import { appendFileSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { type ObservedError, observedErrors } from '../../src/kernel/contract/contract.ts';

export const observedFolder = path.join(import.meta.dirname, '../../build/observed-codes');

const pairs = new Set<string>();
let isRecording = false;

/** Each process writes a file of its own, in which each pair occurs once. */
export function recordObservedErrors(): void {
  if (isRecording) return;
  isRecording = true;
  mkdirSync(observedFolder, { recursive: true });
  const file = path.join(observedFolder, `${process.pid}-${Date.now()}.jsonl`);
  subscribe(observedErrors, (message) => {
    const { operationId, code } = message as ObservedError;
    const line = JSON.stringify([operationId, code]);
    if (pairs.has(line)) return;
    pairs.add(line);
    appendFileSync(file, `${line}\n`);
  });
}
