// The routes that carry out instructions. In a session, new or existing, the caller waits for the run; in a
// chat it gets a receipt at once.
import { settlesWithin } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Chat } from './chat.ts';
import { readMessage } from './event-log/events.ts';
import { openSegmentsOf, type SessionRecord } from './event-log/session-store.ts';
import type { EventStore } from './event-log/store.ts';
import { noUsage } from './model-loop/usage.ts';
import { lastStepText } from './records.ts';
import type { CompletedRun } from './runs/active-run.ts';
import { runFailure } from './runs/run-failure.ts';
import type { Runs } from './runs/runs.ts';
import { keyedRequestId, type SessionHandlers } from './session-options.ts';
import type { AcceptedInput, InputSubmitter } from './submit.ts';

export interface ExecuteOptions {
  inputs: InputSubmitter;
  chat: Chat;
  runs: Runs;
  events: EventStore;
  executeWaitMs: number;
  requireSession(sessionId: string): Promise<SessionRecord>;
  clock: Clock;
}

export function executeHandlers(
  options: ExecuteOptions,
): SessionHandlers<'sessions.execute' | 'sessions.executeInSession'> {
  const { inputs, chat, requireSession } = options;
  return {
    'sessions.execute': async (call) => {
      const { instructions, chatId, attachments, model } = call.body;
      const requestId = keyedRequestId(call);
      if (chatId !== undefined) {
        const origin = 'execute' as const;
        const message = { chatId, text: instructions, attachments, model, origin, requestId };
        return { status: 202, body: await chat.send(message) };
      }
      const input = await inputs.submit({
        to: 'own',
        origin: 'execute',
        parts: [{ type: 'text', text: instructions }],
        attachments,
        model,
        requestId,
      });
      return reply(options, input, call.signal);
    },

    // The contract names this origin after the route, `/api/dashboard/…`, whichever client calls it.
    'sessions.executeInSession': async (call) => {
      const { instructions, attachments } = call.body;
      const requestId = keyedRequestId(call);
      const { id, chatId } = await requireSession(call.path.sessionId);
      if (chatId !== null) {
        const origin = 'dashboard' as const;
        const message = { chatId, text: instructions, attachments, origin, requestId };
        return { status: 202, body: await chat.send(message) };
      }
      const input = await inputs.submit({
        to: { sessionId: id },
        origin: 'dashboard',
        parts: [{ type: 'text', text: instructions }],
        attachments,
        requestId,
      });
      return reply(options, input, call.signal);
    },
  };
}

/**
 * `waiting`: the time is over and the run continues. `gone`: the signal of the request was aborted, because
 * the caller has disconnected or because the end of a drain cuts all requests.
 */
type Outcome = CompletedRun | Problem | 'waiting' | 'gone';

async function reply(options: ExecuteOptions, input: AcceptedInput, signal: AbortSignal) {
  const { session, receipt, settled } = input;
  const { sessionId, runId, queued, queueItemId, queuePosition, waitsFor, seq } = receipt;
  const outcome =
    settled === null
      ? await waitForSettlement(options, { session, runId }, signal)
      : await waitForLocalRun(options, settled, signal);
  if (outcome === 'waiting') {
    const ids = { success: true as const, queued, sessionId, runId, queueItemId, queuePosition, seq };
    return { status: 202 as const, body: { ...ids, ...(waitsFor === undefined ? {} : { waitsFor }) } };
  }
  // A caller that has disconnected does not receive this error. At the end of a drain it does; its run is
  // then settled as interrupted by this process or, if that fails, by the next one.
  if (outcome === 'gone')
    throw new Problem('unavailable', 'draining', `The agent is stopping. (${runId})`, {
      headers: { 'retry-after': '1' },
    });
  if (outcome instanceof Problem) throw outcome;
  const body = { success: true as const, queued: false as const, sessionId, runId, ...outcome };
  return { status: 200 as const, body };
}

async function waitForLocalRun(
  { clock, executeWaitMs }: ExecuteOptions,
  settled: Promise<CompletedRun | Problem>,
  signal: AbortSignal,
): Promise<Outcome> {
  if (await settlesWithin(settled, { ms: executeWaitMs, clock, signal })) return settled;
  return signal.aborted ? 'gone' : 'waiting';
}

// A run that was queued may execute in another process, so its outcome is read from the log.
async function waitForSettlement(
  { runs, events, executeWaitMs }: ExecuteOptions,
  { session, runId }: { session: SessionRecord; runId: string },
  signal: AbortSignal,
): Promise<Outcome> {
  const run = await runs.wait({ sessionKey: session.key, runId }, { timeoutMs: executeWaitMs, signal });
  if (run === 'waiting') return signal.aborted ? 'gone' : 'waiting';
  if (run === 'gone' || run.status !== 'completed' || run.messageId === null)
    return runFailure(run === 'gone' ? null : run, runId);
  const messageEvents = await events.messageEvents(openSegmentsOf(session), run.messageId);
  const completion = messageEvents.findLast(({ type }) => type === 'message.completed');
  const message = readMessage(completion as NonNullable<typeof completion>);
  return {
    messageId: message.id,
    message,
    text: lastStepText(message),
    usage: run.usage ?? noUsage,
    finishReason: (run.finishReason ?? 'other') as CompletedRun['finishReason'],
  };
}
