// The room's handlers: sessions as records, what is said in them, what runs and waits, and their events.
import { createHash } from 'node:crypto';
import type { Clock } from '../../kernel/clock.ts';
import { id as makeId } from '../../kernel/ids.ts';
import { requireStorable } from '../../kernel/contract/storable.ts';
import {
  decodeCursor,
  encodeCursor,
  isCursorText,
  isTimeAndId,
  pageLimit,
  pageOf,
} from '../../kernel/contract/page.ts';
import { Problem } from '../../kernel/problem.ts';
import type { PluginRegistry } from '../plugins/index.ts';
import type { Service } from '../service.ts';
import { sessionNotFound } from './runs/admission.ts';
import type { Approvals } from './approvals/approvals.ts';
import type { ApprovalStore } from './approvals/store.ts';
import type { AttachmentFiles } from './attachments/files.ts';
import { readEvent, type SessionEvent } from './event-log/events.ts';
import { createExecute, type ChatQueue } from './execute.ts';
import { findForkPoint, makeFork } from './fork.ts';
import type { Heads } from './event-log/session-cache.ts';
import { estimateTokens } from './event-log/conversation.ts';
import type { InputSubmitter } from './submit.ts';
import { hashOf, systemSections } from './model-loop/system-prompt.ts';
import type { Bus } from './event-log/bus.ts';
import type { Committer } from './event-log/committer.ts';
import { follow, type FollowLimits } from './event-log/follow.ts';
import { mediaTypes, type StreamForm } from './event-log/frames.ts';
import { append, type EventStore } from './event-log/store.ts';
import { statusOf, toApproval, toRun, toSession } from './records.ts';
import type { Runs } from './runs/runs.ts';
import type { RunRecord, RunStore } from './runs/store.ts';
import type { Talks } from './event-log/conversation-cache.ts';
import {
  copyAncestors,
  lockSession,
  patchSession,
  removeSession,
  segmentsOf,
  type SessionRecord,
  type SessionStore,
} from './event-log/session-store.ts';

export interface SessionsNeeds {
  agentId: string;
  name: string;
  runs: Runs;
  inputs: InputSubmitter;
  chat: ChatQueue;
  store: SessionStore;
  runStore: RunStore;
  events: EventStore;
  approvals: Approvals;
  approvalStore: ApprovalStore;
  files: AttachmentFiles;
  committer: Committer;
  heads: Heads;
  talks: Talks;
  bus: Bus;
  registry: PluginRegistry;
  /** The model of inputs and sessions that name none. */
  defaultModel: string;
  contextTokens(modelId: string): Promise<number | null>;
  /** After this a waiting caller gets a receipt, and the run goes on. */
  executeWaitMs: number;
  follow: FollowLimits;
  clock: Clock;
}

// More ancestors than this and a fork gets a past of its own, in the background.
const deepestLineage = 32;
const longestWaitSeconds = 300;

export function sessions(needs: SessionsNeeds): Service<'sessions'> {
  const { agentId, runs, inputs, store, runStore, events, committer, bus, clock } = needs;

  async function require(sessionId: string): Promise<SessionRecord> {
    const session = await store.session(agentId, { id: sessionId });
    if (!session) throw sessionNotFound();
    return session;
  }

  async function showRun(session: SessionRecord, run: RunRecord) {
    const waiting =
      run.status === 'accepted' && run.steeredInto === null ? await runStore.queue(session.key) : [];
    const ahead = waiting.findIndex(({ runId }) => runId === run.runId);
    const position = ahead < 0 ? null : ahead + (session.activeRunId === null ? 0 : 1);
    const written =
      run.messageId === null
        ? []
        : await events.messageEvents(segmentsOf(session, Number.MAX_SAFE_INTEGER), run.messageId);
    return toRun(
      run,
      session.id,
      position,
      written.findLast(({ type }) => type === 'message.completed'),
    );
  }

  return {
    name: 'sessions',
    handlers: {
      ...createExecute(needs, require),

      'sessions.list': async ({ query }) => {
        const limit = pageLimit(query);
        const before = query.cursor === undefined ? undefined : decodeCursor(query.cursor, isTimeAndId);
        const rows = await store.list({
          agentId,
          limit: limit + 1,
          ...(before ? { before: { createdAt: before[0], key: before[1] } } : {}),
          ...(query.kind === undefined ? {} : { kind: query.kind }),
          ...(query.status === undefined ? {} : { status: query.status }),
          ...(query.archived === undefined ? {} : { archived: query.archived }),
        });
        const { items, next_cursor: nextCursor } = pageOf(rows, limit, ({ createdAt, key }) => [
          createdAt,
          key,
        ]);
        return { status: 200, body: { items: items.map(toSession), nextCursor } };
      },

      'sessions.create': async ({ body }) => {
        if (body.metadata !== undefined) requireStorable(body.metadata, 'metadata');
        const key = makeId('ses');
        const wanted = body.id ?? key;
        const title = body.title ?? null;
        const made = await store.create({
          ...body,
          title,
          key,
          id: wanted,
          agentId,
          kind: 'sdk',
          events: [{ type: 'session.created', kind: 'sdk', title, chatId: null }],
        });
        if (made) {
          needs.heads.keep(made);
          return { status: 201, body: toSession(made) };
        }
        if (body.ifExists !== 'return')
          throw new Problem('conflict', 'session_exists', 'There is a session of this id already.', {
            param: 'id',
          });
        return { status: 200, body: toSession(await require(wanted)) };
      },

      'sessions.get': async ({ path }) => ({ status: 200, body: toSession(await require(path.sessionId)) }),

      'sessions.update': async ({ path, body }) => {
        if (body.metadata !== undefined) requireStorable(body.metadata, 'metadata');
        const session = await require(path.sessionId);
        await committer.commit(async (unit) => {
          const locked = await lockSession(unit, agentId, { key: session.key });
          if (!locked) return sessionNotFound();
          await patchSession(unit, session.key, body as never);
          const { archived: _archived, ...changes } = body;
          const happened: SessionEvent[] = [];
          if (Object.keys(changes).length > 0 || body.archived === false)
            happened.push({
              type: 'session.updated',
              ...changes,
              ...(body.archived === false ? { archived: false } : {}),
            });
          if (body.archived === true && locked.archivedAt === null)
            happened.push({ type: 'session.archived' });
          if (happened.length > 0) await append(unit, { sessionKey: session.key, events: happened });
          return undefined;
        });
        return { status: 200, body: toSession(await require(path.sessionId)) };
      },

      'sessions.remove': async ({ path }) => {
        const session = await require(path.sessionId);
        await forgetSession(needs, session);
        return { status: 204 };
      },

      'sessions.prompt': async ({ path, body, headers, signal }) => {
        const waitSeconds = readWait(headers.prefer);
        const parts = body.parts ?? [{ type: 'text' as const, text: body.text ?? '' }];
        const { receipt, session } = await inputs.submit({
          ...body,
          parts: parts as never,
          to: { sessionId: path.sessionId },
          origin: 'sdk',
        });
        if (waitSeconds === null) return { status: 202, body: receipt };
        const applied = { 'preference-applied': `wait=${waitSeconds}` };
        const run = await runs.wait(session.key, receipt.runId, waitSeconds * 1_000, signal);
        if (run === 'waiting') return { status: 202, body: receipt, headers: applied };
        if (run === 'gone') throw sessionNotFound();
        return {
          status: 200,
          body: { ...receipt, status: run.status, run: await showRun(session, run) },
          headers: applied,
        };
      },

      'sessions.listMessages': async ({ path, query }) => {
        const session = await require(path.sessionId);
        const limit = pageLimit(query);
        const after = query.cursor === undefined ? 0 : readSeq(query.cursor);
        const { events: items, hasMore } = await events.messagePage(segmentsOf(session), after, limit);
        const nextCursor = hasMore ? encodeCursor(String(items.at(-1)?.seq)) : null;
        // From before the message that is being written, of which nothing is in the items.
        const begun =
          session.activeRunId === null
            ? undefined
            : await events.openMessageSeq(session.key, session.activeRunId);
        return {
          status: 200,
          body: {
            items: items.map(
              (event) => (readEvent(event) as Extract<SessionEvent, { type: 'message.completed' }>).message,
            ),
            nextCursor,
            seq: begun === undefined ? session.headSeq : begun - 1,
          },
        };
      },

      'sessions.getSystem': async ({ path }) => {
        const session = await require(path.sessionId);
        const talk = await needs.talks.read(session, session.headSeq, null);
        const summary =
          talk.summary === null
            ? []
            : [
                {
                  id: 'compaction',
                  title: 'The conversation before',
                  source: 'compaction',
                  text: talk.summary,
                },
              ];
        const sections = [...systemSections(needs.name, needs.registry, session), ...summary].map(
          (section) => ({ ...section, hash: hashOf(section.text), tokens: estimateTokens(section.text) }),
        );
        const tools = needs.registry.tools.map(({ name, plugin, action, definition }) => {
          const tool = {
            name,
            description: definition.description,
            plugin,
            action,
            inputSchema: definition.input as Record<string, unknown>,
            needsApproval: definition.needsApproval !== undefined && definition.needsApproval !== false,
          };
          return { ...tool, hash: hashOf(JSON.stringify(tool)) };
        });
        const model = session.model ?? needs.defaultModel;
        const used =
          estimateTokens(sections.map(({ text }) => text).join('')) +
          estimateTokens(tools) +
          estimateTokens(talk.spoken.map(({ message }) => message.parts));
        const hash = createHash('sha256')
          .update([...sections, ...tools].map((one) => one.hash).join('\n'))
          .digest('hex');
        return {
          status: 200,
          body: {
            sessionId: session.id,
            sections,
            tools,
            contextWindow: { model, tokens: await needs.contextTokens(model), used },
            hash,
          },
        };
      },

      'sessions.follow': async ({ path, query, headers, request, signal }) => {
        const session = await require(path.sessionId);
        const after =
          headers['last-event-id'] === undefined ? (query.after ?? 0) : Number(headers['last-event-id']);
        if (after > session.headSeq) {
          throw new Problem(
            'bad_request',
            'cursor_ahead',
            `The newest event of this session is ${session.headSeq}.`,
            { param: headers['last-event-id'] === undefined ? 'after' : 'Last-Event-ID' },
          );
        }
        const form: StreamForm = prefersLines(request.headers['accept']) ? 'ndjson' : 'sse';
        const { key, id, headSeq, activeRunId, queueLength } = session;
        const content = follow(
          {
            key,
            after,
            untilIdle: query.until === 'idle',
            form,
            signal: AbortSignal.any([signal, runs.closed]),
          },
          {
            bus,
            session: { key, id, headSeq, status: statusOf(session), activeRunId, queueLength },
            read: (_session, from, limit) =>
              events.read(segmentsOf(session, Number.MAX_SAFE_INTEGER), from, limit),
            clock,
            limits: needs.follow,
          },
        );
        return {
          status: 200,
          content,
          mediaType: `${mediaTypes[form]}; charset=utf-8`,
          headers: { 'x-accel-buffering': 'no' },
        };
      },

      'sessions.cancel': async ({ path, body }) => {
        const session = await require(path.sessionId);
        return {
          status: 200,
          body: { sessionId: session.id, cancelled: await runs.cancel(session, body ?? {}) },
        };
      },

      'sessions.compact': async ({ path }) => ({
        status: 202,
        body: (await inputs.compact(path.sessionId)).receipt,
      }),

      'sessions.getRun': async ({ path }) => {
        const session = await require(path.sessionId);
        const run = await runStore.run(session.key, path.runId);
        if (!run)
          throw new Problem('not_found', 'run_not_found', 'There is no run of this id in the session.', {
            param: 'runId',
          });
        return { status: 200, body: await showRun(session, run) };
      },

      'sessions.listQueue': async ({ path, query }) => {
        const session = await require(path.sessionId);
        const limit = pageLimit(query);
        const all = await runStore.queue(session.key);
        const running = session.activeRunId === null ? 0 : 1;
        const placed = all.map((run, index) => ({ run, queuePosition: index + running }));
        const last = query.cursor === undefined ? undefined : decodeCursor(query.cursor, isPlace);
        // What the cursor names may have begun meanwhile; then all that is left is behind it.
        const from = last === undefined ? 0 : placed.findIndex(({ run }) => run.place > BigInt(last)) >>> 0;
        const { items, next_cursor: nextCursor } = pageOf(
          placed.slice(from, from + limit + 1),
          limit,
          ({ run }) => String(run.place),
        );
        return {
          status: 200,
          body: {
            items: items.map(({ run, queuePosition }) => ({
              queueItemId: run.queueItemId ?? run.runId,
              runId: run.runId,
              messageId: run.inputMessageId,
              delivery: run.delivery,
              queuePosition,
              text: run.preview,
              origin: run.origin,
              acceptedAt: run.acceptedAt,
            })),
            nextCursor,
            activeRunId: session.activeRunId,
            queueLength: session.queueLength,
            seq: session.headSeq,
          },
        };
      },

      'sessions.removeQueueItem': async ({ path }) => {
        const session = await require(path.sessionId);
        const run = await runStore.queueItem(session.key, path.queueItemId);
        if (!run)
          throw new Problem(
            'not_found',
            'queue_item_not_found',
            'Nothing of this id has waited in the session.',
            { param: 'queueItemId' },
          );
        if (run.status === 'cancelled') return { status: 204 };
        const gone =
          run.status === 'accepted' && run.steeredInto === null
            ? await runs.cancelWaiting(session, run.runId)
            : [];
        if (gone.length === 0)
          throw new Problem('conflict', 'run_started', `It has begun; cancel the run ${run.runId} instead.`, {
            param: 'queueItemId',
          });
        return { status: 204 };
      },

      'sessions.listApprovals': async ({ path, query }) => {
        const session = await require(path.sessionId);
        const limit = pageLimit(query);
        const after = query.cursor === undefined ? undefined : decodeCursor(query.cursor, isCursorText);
        const { approvals, hasMore } = await needs.approvalStore.list(session.key, {
          limit,
          ...(query.status === undefined ? {} : { status: query.status }),
          ...(after === undefined ? {} : { after }),
        });
        const nextCursor = hasMore ? encodeCursor(approvals.at(-1)?.approvalId ?? null) : null;
        return {
          status: 200,
          body: { items: approvals.map((approval) => toApproval(approval, session.id)), nextCursor },
        };
      },

      'sessions.decideApproval': async ({ path, body, identity }) => {
        const session = await require(path.sessionId);
        const approval = await needs.approvals.decide(session.key, path.approvalId, {
          isApproved: body.decision === 'approve',
          by: identity.tokenId,
          reason: body.reason ?? null,
        });
        return { status: 200, body: toApproval(approval, session.id) };
      },

      'sessions.fork': async ({ path, body = {}, log }) => {
        if (body.metadata !== undefined) requireStorable(body.metadata, 'metadata');
        const session = await require(path.sessionId);
        const point = await findForkPoint(session, body as never, events);
        if (body.dryRun) {
          const isHead = point.seq === session.headSeq;
          const forkedFrom = { sessionId: session.id, seq: point.seq, messageId: point.messageId };
          return {
            status: 200,
            body: {
              dryRun: true,
              forkedFrom,
              messageCount: point.messageCount,
              openRunId: point.openRun?.runId ?? null,
              queueItems: isHead ? session.queueLength : 0,
              approvals: isHead ? session.pendingApprovals : 0,
            },
          };
        }
        const openText = (runId: string) =>
          bus.openParts(session.key).filter((part) => part.runId === runId && part.startedSeq <= point.seq);
        const made = await makeFork(point, body as never, { agentId, store, openText });
        if (!made) throw sessionNotFound();
        if (made.lineage.length > deepestLineage) {
          // A reference that stays long is only slower, so nobody waits for it, and a failure is tried with the next fork.
          committer
            .commit((unit) => copyAncestors(unit, made))
            .catch((error: unknown) => log.warn({ err: error }, 'the past of a fork could not be copied'));
        }
        return { status: 201, body: toSession(made) };
      },
    },
  };
}

/** Ends what goes on in a session and removes it with its files. */
export async function forgetSession(
  {
    runs,
    committer,
    heads,
    talks,
    bus,
    files,
  }: Pick<SessionsNeeds, 'runs' | 'committer' | 'heads' | 'talks' | 'bus' | 'files'>,
  session: SessionRecord,
): Promise<void> {
  await runs.cancel(session, { queue: true });
  const outcome = await committer.commit((unit) => removeSession(unit, session.key));
  heads.forget(session.key);
  talks.forget(session.key);
  bus.gone(session.key);
  // A fork may still show what was attached to a session that is only hidden.
  if (outcome === 'gone') await files.removeAll(session.key);
}

function isPlace(value: unknown): value is string {
  return typeof value === 'string' && /^\d{1,18}$/.test(value);
}

function readSeq(cursor: string): number {
  const seq = Number(decodeCursor(cursor, isCursorText));
  if (!Number.isSafeInteger(seq) || seq < 0 || seq > 2_147_483_647)
    throw new Problem('bad_request', 'invalid_request', '`cursor` is not a cursor of this list.', {
      param: 'cursor',
    });
  return seq;
}

/** Seconds of `Prefer: wait=n`; other preferences are ignored, as they may be. */
function readWait(prefer: string | undefined): number | null {
  const found = prefer === undefined ? undefined : /(?:^|[,;\s])wait\s*=\s*"?(\d{1,6})"?/i.exec(prefer)?.[1];
  return found === undefined ? null : Math.min(Number(found), longestWaitSeconds);
}

function prefersLines(accept: string | string[] | undefined): boolean {
  const text = String(accept ?? '');
  return text.includes('application/x-ndjson') && !text.includes('text/event-stream');
}
