// Rebuilds the receipt of a call with an Idempotency-Key from the row of its run. A repeated request gets it
// when the caller disconnected, or the agent stopped, before the first request was answered.
import type { Receipt, RunStore } from './runs/store.ts';

/** Null when the call has accepted no run. */
export async function findReceipt(
  runStore: Pick<RunStore, 'receiptOfRequest'>,
  { operationId, requestId }: { operationId: string; requestId: string },
): Promise<{ status: 202; body: unknown } | null> {
  const receipt = await runStore.receiptOfRequest(requestId);
  return receipt === null ? null : { status: 202, body: bodyOf(operationId, receipt) };
}

function bodyOf(operationId: string, receipt: Receipt): unknown {
  if (['sessions.prompt', 'sessions.compact', 'sessions.regenerate'].includes(operationId)) return receipt;
  const { sessionId, runId, queueItemId, queuePosition, waitsFor, seq } = receipt;
  // A waiting input has a queue item, and so has every input of a chat. A run without one started at once.
  const body = {
    success: true,
    queued: queueItemId !== null,
    sessionId,
    runId,
    queueItemId,
    queuePosition,
    seq,
  };
  if (operationId === 'chat.sendMessage') return { ...body, serviceName: 'chat' };
  return waitsFor === undefined ? body : { ...body, waitsFor };
}
