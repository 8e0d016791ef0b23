// The routes that read a session: its messages, its event stream, and its system prompt and tools.
import { createHash } from 'node:crypto';
import { decodeCursor, encodeCursor, isCursorText, pageLimit } from '../../kernel/contract/page.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Conversation } from './event-log/conversation.ts';
import { readMessage } from './event-log/events.ts';
import { follow } from './event-log/follow.ts';
import { mediaTypes, type StreamFormat } from './event-log/frames.ts';
import { openSegmentsOf, segmentsOf, type SessionRecord } from './event-log/session-store.ts';
import { maxSeq } from './event-log/store.ts';
import { withStates } from './message-states.ts';
import { estimateJson, estimateMessages, estimateText } from './model-loop/prompt/estimate.ts';
import { hashOf, systemSections, type Section } from './model-loop/prompt/system-prompt.ts';
import { statusOf } from './records.ts';
import type { HandlerOptions, SessionHandlers } from './session-options.ts';

export function historyHandlers(
  options: HandlerOptions,
): SessionHandlers<'sessions.listMessages' | 'sessions.getSystem' | 'sessions.follow'> {
  const { events, runs, requireSession } = options;
  return {
    'sessions.listMessages': async ({ path, query }) => {
      const session = await requireSession(path.sessionId);
      const { cursor, order = 'asc' } = query;
      const fromSeq = cursor === undefined ? undefined : readSeqCursor(cursor);
      const page = await events.messagePage(segmentsOf(session), {
        from: fromSeq,
        order,
        limit: pageLimit(query),
      });
      const nextCursor = page.hasMore ? encodeCursor(String(page.events.at(-1)?.seq)) : null;
      const items = await withStates(options, session, page.events.map(readMessage));
      return { status: 200, body: { items, nextCursor, seq: await replaySeq(options, session) } };
    },

    'sessions.getSystem': async ({ path }) => ({
      status: 200,
      body: await describeSystem(options, await requireSession(path.sessionId)),
    }),

    'sessions.follow': async ({ path, query, headers, request, signal }) => {
      const session = await requireSession(path.sessionId);
      const lastEventId = headers['last-event-id'];
      const afterSeq = lastEventId === undefined ? (query.after ?? 0) : Number(lastEventId);
      if (afterSeq > session.headSeq)
        throw new Problem(
          'bad_request',
          'cursor_ahead',
          `The newest event of this session is ${session.headSeq}.`,
          { param: lastEventId === undefined ? 'after' : 'Last-Event-ID' },
        );
      const format: StreamFormat = prefersNdjson(request.headers['accept']) ? 'ndjson' : 'sse';
      const endSignal = AbortSignal.any([signal, runs.closed]);
      const untilIdle = query.until === 'idle';
      return {
        status: 200,
        content: followSession(options, session, { after: afterSeq, untilIdle, format, signal: endSignal }),
        mediaType: `${mediaTypes[format]}; charset=utf-8`,
        headers: { 'x-accel-buffering': 'no' },
      };
    },
  };
}

/**
 * The seq from which a client that has loaded the messages follows the session. The replay includes the
 * events of the message in progress, which is not in the list yet.
 */
async function replaySeq({ events }: HandlerOptions, session: SessionRecord): Promise<number> {
  const openMessageSeq =
    session.activeRunId === null ? undefined : await events.openMessageSeq(session.key, session.activeRunId);
  return openMessageSeq === undefined ? session.headSeq : openMessageSeq - 1;
}

function followSession(
  { eventLog, events, clock, follow: limits }: HandlerOptions,
  session: SessionRecord,
  request: Parameters<typeof follow>[0],
): AsyncGenerator<Uint8Array, void, void> {
  const { key, id, headSeq, activeRunId, queueLength } = session;
  return follow(request, {
    feed: eventLog,
    session: { key, id, headSeq, status: statusOf(session), activeRunId, queueLength },
    readHeadSeq: async () => (await events.headSeqs([key]))[0]?.headSeq,
    readEvents: (afterSeq, limit) => events.read(openSegmentsOf(session), afterSeq, limit),
    clock,
    limits,
  });
}

async function describeSystem(options: HandlerOptions, session: SessionRecord) {
  const { eventLog, name, registry, defaultModel, workspaces } = options;
  const conversation = await eventLog.conversation(session, session.headSeq, null);
  const sections = [...systemSections(name, registry, session), ...summarySections(conversation.summary)].map(
    (section) => ({ ...section, hash: hashOf(section.text), tokens: estimateText(section.text) }),
  );
  const tools = describeTools(options);
  const model = session.model ?? defaultModel;
  const hashes = [...sections, ...tools].map(({ hash }) => hash);
  return {
    sessionId: session.id,
    sections,
    tools,
    contextWindow: await describeWindow(options, { model, conversation, sections, tools }),
    workspace: {
      kind: session.workspace,
      folder: workspaces.rootOf(session),
      branch: workspaces.branchOf(session),
    },
    hash: createHash('sha256').update(hashes.join('\n')).digest('hex'),
  };
}

async function describeWindow(
  { modelLimits, render }: HandlerOptions,
  request: { model: string; conversation: Conversation; sections: readonly Section[]; tools: unknown },
) {
  const { model, conversation, sections, tools } = request;
  const { contextTokens, accepts } = await modelLimits.of(model);
  const view = { model, accepts, maxTextTokens: Number.POSITIVE_INFINITY };
  const { messages } = await render({ ...conversation, summary: null }, view);
  const fixedTokens = estimateText(sections.map(({ text }) => text).join('')) + estimateJson(tools);
  return { model, tokens: contextTokens, used: fixedTokens + estimateMessages(messages) };
}

function summarySections(summary: string | null): Section[] {
  if (summary === null) return [];
  return [
    { id: 'compaction', title: 'Summary of the earlier conversation', source: 'compaction', text: summary },
  ];
}

function describeTools({ registry }: HandlerOptions) {
  return registry.tools.map(({ name, plugin, action, definition }) => {
    const { description, input, needsApproval } = definition;
    const tool = {
      name,
      description,
      plugin,
      action,
      inputSchema: input as Record<string, unknown>,
      needsApproval: needsApproval !== undefined && needsApproval !== false,
    };
    return { ...tool, hash: hashOf(JSON.stringify(tool)) };
  });
}

function readSeqCursor(cursor: string): number {
  const seq = Number(decodeCursor(cursor, isCursorText));
  if (!Number.isSafeInteger(seq) || seq < 0 || seq > maxSeq)
    throw new Problem('bad_request', 'invalid_request', '`cursor` is not a cursor of this list.', {
      param: 'cursor',
    });
  return seq;
}

function prefersNdjson(accept: string | string[] | undefined): boolean {
  const text = String(accept ?? '');
  return text.includes('application/x-ndjson') && !text.includes('text/event-stream');
}
