// An input from whichever way in, made into what can be accepted: its message, its files on the disk, its hash. Plugins
// have their word here, before anything is written.
import { createHash } from 'node:crypto';
import type { UiMessage, UiMessagePart } from '../../contract/agent/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import { id } from '../../kernel/ids.ts';
import { requireStorable } from '../../kernel/metadata.ts';
import type { Hooks } from '../plugins/index.ts';
import { notFound, type Admitted } from './admission.ts';
import { readAttachments, type AttachmentFiles, type GivenAttachment } from './attachments/files.ts';
import type { CompletedRun, Runs } from './runs.ts';
import type { Problem } from '../../kernel/problem.ts';
import type { Delivery, SessionKind, SessionStore } from './store.ts';

export type InputPart = { type: 'text'; text: string } | { type: 'file'; mediaType: string; filename?: string; url: string };

export interface Input {
  /** Where it goes: a session that is there, a chat, or a session of its own. */
  to: { sessionId: string } | { chatId: string } | 'own';
  origin: SessionKind | 'service';
  parts: readonly InputPart[];
  attachments?: readonly GivenAttachment[] | undefined;
  /** The caller's own id of it; it is the message's too. */
  id?: string | undefined;
  delivery?: Delivery | undefined;
  model?: string | undefined;
  reasoningEffort?: string | undefined;
  metadata?: Record<string, unknown> | undefined;
}

export type Accepted = Admitted & { settled: Promise<CompletedRun | Problem> | null };

export interface Inputs {
  /** Resolves once it is durable; throws a Problem when it is not accepted. */
  submit(input: Input): Promise<Accepted>;
  compact(sessionId: string): Promise<Accepted>;
}

export interface InputsNeeds {
  agentId: string;
  runs: Runs;
  store: SessionStore;
  files: AttachmentFiles;
  hooks: Hooks;
  clock: Clock;
}

// What a list shows of an input.
const previewLength = 200;

export function createInputs({ agentId, runs, store, files, hooks, clock }: InputsNeeds): Inputs {
  async function find(to: Input['to']): Promise<{ key: string; id: string; isNew: boolean; kind: SessionKind }> {
    if (to === 'own') return { ...ofOne(id('ses')), isNew: true, kind: 'execute' };
    const session = await store.session(agentId, 'chatId' in to ? { chatId: to.chatId } : { id: to.sessionId });
    if (session) return { key: session.key, id: session.id, isNew: false, kind: session.kind };
    if ('sessionId' in to) throw notFound();
    return { ...ofOne(id('ses')), isNew: true, kind: 'chat' };
  }

  return {
    async submit(input) {
      const ready = readAttachments(input.attachments ?? []);
      if (input.metadata !== undefined) requireStorable(input.metadata, 'metadata');
      const { to, origin } = input;
      const session = await find(to);
      const context = { sessionId: session.id };
      const said = input.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
      const given = await hooks.pipeline('enqueue.before', { text: said, origin }, context);
      await hooks.guard('enqueue.before', given, context);
      const parts = given.text === said ? input.parts : [{ type: 'text' as const, text: given.text }, ...input.parts.filter(({ type }) => type !== 'text')];

      const runId = id('run');
      const messageId = input.id ?? id('msg');
      const message: UiMessage = {
        id: messageId,
        role: 'user',
        parts: [
          ...ready.map(({ attachmentId, fileName, contentType, bytes }): UiMessagePart => ({ type: 'data-attachment', id: attachmentId, data: { attachmentId, fileName, contentType, size: bytes.length } })),
          ...(parts as UiMessagePart[]),
        ],
        metadata: { ...(input.metadata === undefined ? {} : { custom: input.metadata }), runId, createdAt: clock.now().toISOString(), origin },
      };
      await files.write(session.key, ready);
      try {
        const accepted = await runs.submit({
          agentId,
          session: to === 'own' ? { key: session.key } : 'chatId' in to ? { chatId: to.chatId } : { id: to.sessionId },
          create: session.isNew ? { key: session.key, id: session.id, agentId, kind: session.kind, chatId: to !== 'own' && 'chatId' in to ? to.chatId : null } : null,
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
        });
        if (accepted.isRepeated) await files.discard(session.key, ready);
        else hooks.effect('enqueue.after', given, { sessionId: accepted.session.id, runId });
        return accepted;
      } catch (error) {
        // Not where it may have been accepted all the same.
        if (error instanceof Error && 'kind' in error && error.kind !== 'unavailable') await files.discard(session.key, ready);
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
      }),
  };
}

function ofOne(key: string): { key: string; id: string } {
  return { key, id: key };
}

// The content and not its spelling: what the caller left out counts as its default.
function hashOf({ parts, attachments = [], delivery = 'queue', model, reasoningEffort, metadata }: Input): string {
  const content = [parts, attachments.map(({ fileName, contentType, content: body, encoding = 'utf-8' }) => [fileName, contentType, encoding, body]), delivery, model ?? null, reasoningEffort ?? null, metadata ?? null];
  return createHash('sha256').update(JSON.stringify(sorted(content))).digest('hex');
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, inner]) => [key, sorted(inner)]));
}
