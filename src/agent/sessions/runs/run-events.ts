// Events that several transitions of a run share: its start, and the new positions of the inputs after it.
import type { LogEntry } from '../event-log/unit.ts';
import type { RunRecord } from './store.ts';

/** The events that start a run. They include its first step, so that the model can be called at once. */
export function startEvents(run: {
  runId: string;
  messageId: string | null;
  model: string;
  inputMessageId: string | null;
  queueLength: number;
  index: number;
}): LogEntry[] {
  const { runId, messageId, model, inputMessageId, queueLength, index } = run;
  const events: LogEntry[] = [
    { type: 'run.started', runId, model, messageId, ...(inputMessageId === null ? {} : { inputMessageId }) },
    { type: 'status.changed', runId, status: 'running', activeRunId: runId, queueLength },
  ];
  if (messageId !== null)
    events.push(
      { type: 'message.created', runId, messageId, role: 'assistant', index },
      { type: 'run.step.started', runId, step: 1 },
    );
  return events;
}

// Limit of the positions in one `queue.updated`. Without it every change of a queue of a thousand inputs
// would be a large event.
export const maxQueueItemsShown = 200;

/**
 * Limit of the files in one event about changed, undone or redone files; `sessions.getChanges` returns all.
 */
export const maxFilesShown = 200;

/** The new positions of the waiting runs. */
export function queueUpdated(
  waiting: readonly RunRecord[],
  queueLength: number,
  position: (index: number, run: RunRecord) => number,
): LogEntry {
  const items = waiting.slice(0, maxQueueItemsShown).map((run, index) => ({
    queueItemId: run.queueItemId ?? run.runId,
    runId: run.runId,
    queuePosition: position(index, run),
  }));
  return { type: 'queue.updated', items, queueLength };
}
