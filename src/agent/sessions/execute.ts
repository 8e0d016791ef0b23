// Instructions from outside of a conversation's own routes: in a session of their own, which the caller waits for, or
// in a chat, whose queue takes them.
import type { Operations } from '../../contract/agent/operations.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Handler } from '../../kernel/contract/operation.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Identity } from '../identity.ts';
import type { AcceptedInput, InputSubmitter } from './submit.ts';
import { segmentsOf, type SessionRecord } from './event-log/session-store.ts';
import type { AttachmentInput } from './attachments/files.ts';
import { readEvent, type SessionEvent } from './event-log/events.ts';
import type { EventStore } from './event-log/store.ts';
import type { CompletedRun } from './runs/runner.ts';
import type { Runs } from './runs/runs.ts';

/** What this room needs of the chats. */
export interface ChatQueue {
  send(message: {
    chatId: string;
    text: string;
    attachments?: readonly AttachmentInput[] | undefined;
    model?: string | undefined;
    origin?: 'execute' | 'dashboard';
  }): Promise<{
    success: true;
    queued: true;
    queueItemId: string | null;
    queuePosition: number;
    sessionId: string;
    runId: string;
    seq: number;
  }>;
}

export interface ExecuteNeeds {
  inputs: InputSubmitter;
  chat: ChatQueue;
  runs: Runs;
  events: EventStore;
  executeWaitMs: number;
  clock: Clock;
}

type Executes = {
  [Id in 'sessions.execute' | 'sessions.executeInSession']: Handler<Operations[Id], Identity>;
};

export function createExecute(
  { inputs, chat, runs, events, executeWaitMs, clock }: ExecuteNeeds,
  require: (sessionId: string) => Promise<SessionRecord>,
): Executes {
  async function answer({ session, receipt, settled }: AcceptedInput, signal: AbortSignal) {
    const ids = { sessionId: receipt.sessionId, runId: receipt.runId };
    const end =
      settled === null ? await fromTheLog(session, receipt.runId, signal) : await patiently(settled, signal);
    if (end === 'waiting')
      return {
        status: 202 as const,
        body: {
          success: true as const,
          queued: receipt.queued,
          ...ids,
          queueItemId: receipt.queueItemId,
          queuePosition: receipt.queuePosition,
          seq: receipt.seq,
        },
      };
    // Nobody reads this but a caller that was cut off by the end of a drain; the run settles by itself.
    if (end === 'gone')
      throw new Problem('unavailable', 'draining', `The agent is going down. (${ids.runId})`, {
        headers: { 'retry-after': '1' },
      });
    if (end instanceof Problem) throw end;
    return { status: 200 as const, body: { success: true as const, queued: false as const, ...ids, ...end } };
  }

  async function patiently(
    settled: Promise<CompletedRun | Problem>,
    signal: AbortSignal,
  ): Promise<CompletedRun | Problem | 'waiting' | 'gone'> {
    const answered = new AbortController();
    const patience = clock.sleep(executeWaitMs, AbortSignal.any([signal, answered.signal])).then(
      () => 'waiting' as const,
      () => 'gone' as const,
    );
    const end = await Promise.race([settled, patience]);
    answered.abort();
    return end;
  }

  // One that had to wait is not this call's own, so what became of it is read.
  async function fromTheLog(
    session: SessionRecord,
    runId: string,
    signal: AbortSignal,
  ): Promise<CompletedRun | Problem | 'waiting' | 'gone'> {
    const run = await runs.wait(session.key, runId, executeWaitMs, signal);
    if (run === 'waiting') return signal.aborted ? 'gone' : 'waiting';
    if (run === 'gone' || run.status !== 'completed' || run.messageId === null) {
      const { status = 'failed', error = null } = run === 'gone' ? {} : run;
      const kind =
        status === 'cancelled' ? 'conflict' : status === 'interrupted' ? 'unavailable' : 'upstream_failed';
      const code =
        status === 'cancelled'
          ? 'run_cancelled'
          : status === 'interrupted'
            ? 'run_interrupted'
            : 'run_failed';
      return new Problem(kind, code, `${error?.message ?? 'The run did not end well.'} (${runId})`);
    }
    const found = await events.messageEvents(segmentsOf(session, Number.MAX_SAFE_INTEGER), run.messageId);
    const completed = found.findLast(({ type }) => type === 'message.completed');
    const { message } = readEvent(completed as NonNullable<typeof completed>) as Extract<
      SessionEvent,
      { type: 'message.completed' }
    >;
    const last = message.parts.findLastIndex(({ type }) => type === 'step-start');
    const text = message.parts
      .slice(last + 1)
      .flatMap((part) => (part.type === 'text' ? [part.text] : []))
      .join('');
    return {
      messageId: message.id,
      message,
      text,
      usage: run.usage ?? { inputTokens: 0, outputTokens: 0 },
      finishReason: (run.finishReason ?? 'other') as CompletedRun['finishReason'],
    };
  }

  return {
    'sessions.execute': async ({ body, signal }) => {
      const { instructions, chatId, attachments, model } = body;
      if (chatId !== undefined)
        return {
          status: 202,
          body: await chat.send({ chatId, text: instructions, attachments, model, origin: 'execute' }),
        };
      return answer(
        await inputs.submit({
          to: 'own',
          origin: 'execute',
          parts: [{ type: 'text', text: instructions }],
          attachments,
          model,
        }),
        signal,
      );
    },
    'sessions.executeInSession': async ({ path, body, signal }) => {
      const { instructions, attachments } = body;
      const session = await require(path.sessionId);
      if (session.chatId !== null)
        return {
          status: 202,
          body: await chat.send({
            chatId: session.chatId,
            text: instructions,
            attachments,
            origin: 'dashboard',
          }),
        };
      return answer(
        await inputs.submit({
          to: { sessionId: session.id },
          origin: 'dashboard',
          parts: [{ type: 'text', text: instructions }],
          attachments,
        }),
        signal,
      );
    },
  };
}
