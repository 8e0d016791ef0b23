// An input from whichever way in, made into what can be accepted: its message, its files on the disk, its hash. Plugins
// have their word here, before anything is written.
import { createHash } from 'node:crypto';
import type { UiMessage, UiMessagePart } from '../../contract/agent/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import { id } from '../../kernel/ids.ts';
import { requireStorable } from '../../kernel/contract/storable.ts';
import type { Hooks } from '../plugins/index.ts';
import { sessionNotFound, type Admission } from './runs/admission.ts';
import {
  decodeAttachments,
  requireDataUrl,
  type AttachmentFiles,
  type AttachmentInput,
} from './attachments/files.ts';
import type { CompletedRun } from './runs/runner.ts';
import type { Runs } from './runs/runs.ts';
import type { Delivery } from './runs/store.ts';
import { Problem } from '../../kernel/problem.ts';
import type { NewSession, SessionKind, SessionRecord, SessionStore } from './event-log/session-store.ts';

export type InputPart =
  | { type: 'text'; text: string }
  | { type: 'file'; mediaType: string; filename?: string; url: string };

export interface Input {
  /** Where it goes: a session that is there, a chat, or a session of its own. */
  to: { sessionId: string } | { chatId: string } | 'own';
  origin: SessionKind | 'service';
  parts: readonly InputPart[];
  attachments?: readonly AttachmentInput[] | undefined;
  /** The caller's own id of it; it is the message's too. */
  id?: string | undefined;
  delivery?: Delivery | undefined;
  model?: string | undefined;
  reasoningEffort?: string | undefined;
  /** Of a session that it makes: whether somebody can decide approvals. */
  attended?: boolean | undefined;
  metadata?: Record<string, unknown> | undefined;
  /** How long it may wait. */
  expiresInMs?: number | undefined;
}

export type AcceptedInput = Admission & { settled: Promise<CompletedRun | Problem> | null };

export interface InputSubmitter {
  /** Resolves once it is durable; throws a Problem when it is not accepted. */
  submit(input: Input): Promise<AcceptedInput>;
  compact(sessionId: string): Promise<AcceptedInput>;
}

export interface InputsNeeds {
  agentId: string;
  runs: Runs;
  store: SessionStore;
  files: AttachmentFiles;
  hooks: Hooks;
  clock: Clock;
}

const mostChatsKnown = 10_000;
// Each step of an input (its event, its row, its call of the model) writes the whole text as JSON, which takes 20 ms at
// this length. What is longer fits as an attachment, up to 8 MiB.
const mostTextLength = 2 * 1024 * 1024;
// What a list shows of an input.
const previewLength = 200;

export function createInputSubmitter({
  agentId,
  runs,
  store,
  files,
  hooks,
  clock,
}: InputsNeeds): InputSubmitter {
  // The sessions of chats, for the hooks, which hear of an input before it is accepted. What is written asks anew.
  const chats = new Map<string, Promise<SessionRecord | undefined>>();

  function sessionOfChat(chatId: string): Promise<SessionRecord | undefined> {
    const known = chats.get(chatId);
    if (known) return known;
    const asked = store.session(agentId, { chatId });
    chats.set(chatId, asked);
    asked.then(
      (session) => session ?? chats.delete(chatId),
      () => chats.delete(chatId),
    );
    if (chats.size > mostChatsKnown) chats.delete(chats.keys().next().value as string);
    return asked;
  }

  /** `key` is where its attachments lie. */
  async function find(
    to: Input['to'],
    hasFiles: boolean,
    attended: boolean | undefined,
  ): Promise<{ key: string; id: string; kind: SessionKind }> {
    if (to === 'own') return { ...ofOne(id('ses')), kind: 'execute' };
    if ('sessionId' in to && !hasFiles) return { key: '', id: to.sessionId, kind: 'sdk' };
    const session = await ('sessionId' in to
      ? store.session(agentId, { id: to.sessionId })
      : hasFiles
        ? store.session(agentId, { chatId: to.chatId })
        : sessionOfChat(to.chatId));
    if (session) return { key: session.key, id: session.id, kind: session.kind };
    if ('sessionId' in to) throw sessionNotFound();
    // Attachments are written before the input is accepted, so the chat they lie with must not be made by somebody else meanwhile.
    const made = hasFiles
      ? await store.create({
          ...newChat(to.chatId),
          attended: attended ?? false,
          events: [{ type: 'session.created', kind: 'chat', title: null, chatId: to.chatId }],
        })
      : undefined;
    if (hasFiles && made === undefined) return find(to, hasFiles, attended);
    return { ...(made ?? ofOne(id('ses'))), kind: 'chat' };
  }

  const newChat = (chatId: string): NewSession => ({ ...ofOne(id('ses')), agentId, kind: 'chat', chatId });

  /** What is made when there is none of that name, by whoever comes first. */
  function newSession({ to, attended = false }: Input, { key }: { key: string }): NewSession | null {
    if (to === 'own') return { ...ofOne(key), agentId, kind: 'execute', attended };
    return 'chatId' in to ? { ...newChat(to.chatId), attended } : null;
  }

  return {
    async submit(input) {
      for (const [index, part] of input.parts.entries())
        if (part.type === 'file') requireDataUrl(part.url, `parts[${index}].url`);
      requireTextLength(input);
      const ready = decodeAttachments(input.attachments ?? []);
      if (input.metadata !== undefined) requireStorable(input.metadata, 'metadata');
      const { to, origin } = input;
      const session = await find(to, ready.length > 0, input.attended);
      const context = { sessionId: session.id };
      const said = input.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
      const given = await hooks.pipeline('enqueue.before', { text: said, origin }, context);
      await hooks.guard('enqueue.before', given, context);
      const parts =
        given.text === said
          ? input.parts
          : [
              { type: 'text' as const, text: given.text },
              ...input.parts.filter(({ type }) => type !== 'text'),
            ];

      const runId = id('run');
      const messageId = input.id ?? id('msg');
      const message: UiMessage = {
        id: messageId,
        role: 'user',
        parts: [
          ...ready.map(({ attachmentId, fileName, contentType, bytes }): UiMessagePart => ({
            type: 'data-attachment',
            id: attachmentId,
            data: { attachmentId, fileName, contentType, size: bytes.length },
          })),
          ...(parts as UiMessagePart[]),
        ],
        metadata: {
          ...(input.metadata === undefined ? {} : { custom: input.metadata }),
          runId,
          createdAt: clock.now().toISOString(),
          origin,
        },
      };
      if (ready.length > 0) await files.write(session.key, ready);
      try {
        const accepted = await runs.submit({
          agentId,
          session:
            to === 'own'
              ? { key: session.key }
              : 'chatId' in to
                ? { chatId: to.chatId }
                : { id: to.sessionId },
          create: newSession(input, session),
          runId,
          queueItemId: id('qit'),
          delivery: input.delivery ?? 'queue',
          origin,
          input: { messageId, message, preview: given.text.slice(0, previewLength), files: ready },
          messageId: id('msg'),
          model: input.model ?? null,
          reasoningEffort: input.reasoningEffort ?? null,
          promptId: input.id ?? null,
          promptHash: input.id === undefined ? null : hashOf(input),
          expiresInMs: input.expiresInMs ?? null,
        });
        if (accepted.isRepeated) await files.discard(session.key, ready);
        else hooks.effect('enqueue.after', given, { sessionId: accepted.session.id, runId });
        return accepted;
      } catch (error) {
        // Not where it may have been accepted all the same.
        if (error instanceof Error && 'kind' in error && error.kind !== 'unavailable')
          await files.discard(session.key, ready);
        throw error;
      }
    },
    compact: (sessionId) =>
      runs.submit({
        agentId,
        session: { id: sessionId },
        create: null,
        runId: id('run'),
        queueItemId: id('qit'),
        delivery: 'compact',
        origin: 'sdk',
        input: null,
        messageId: null,
        model: null,
        reasoningEffort: null,
        promptId: null,
        promptHash: null,
        expiresInMs: null,
      }),
  };
}

function requireTextLength({ parts, origin }: Input): void {
  const length = parts.reduce((sum, part) => sum + (part.type === 'text' ? part.text.length : 0), 0);
  if (length <= mostTextLength) return;
  const param =
    origin === 'execute' || origin === 'dashboard' ? 'instructions' : parts.length === 1 ? 'text' : 'parts';
  const message = `may have ${mostTextLength} characters at most; attach what is longer`;
  throw new Problem('too_large', 'request_too_large', `\`${param}\` ${message}.`, {
    param,
    details: [{ path: param, message }],
  });
}

function ofOne(key: string): { key: string; id: string } {
  return { key, id: key };
}

// The content and not its spelling: what the caller left out counts as its default.
function hashOf({
  parts,
  attachments = [],
  delivery = 'queue',
  model,
  reasoningEffort,
  metadata,
  expiresInMs,
}: Input): string {
  const content = [
    parts,
    attachments.map(({ fileName, contentType, content: body, encoding = 'utf-8' }) => [
      fileName,
      contentType,
      encoding,
      body,
    ]),
    delivery,
    model ?? null,
    reasoningEffort ?? null,
    metadata ?? null,
    ...(expiresInMs === undefined ? [] : [expiresInMs]),
  ];
  return createHash('sha256')
    .update(JSON.stringify(sorted(content)))
    .digest('hex');
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, inner]) => [key, sorted(inner)]),
  );
}
