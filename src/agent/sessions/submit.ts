// Prepares an input for admission, whichever route it comes from: builds its message and its hash, and
// stores its attachments. Plugins can change or refuse the input here, before anything is written.
import { createHash } from 'node:crypto';
import type { UiMessage, UiMessagePart } from '../../contract/agent/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import { requireStorable } from '../../kernel/contract/storable.ts';
import { id } from '../../kernel/ids.ts';
import { Problem } from '../../kernel/problem.ts';
import { startOfText } from '../../kernel/start-of-text.ts';
import type { Hooks } from '../plugins/index.ts';
import {
  decodeAttachments,
  requireDataUrl,
  type AttachmentFiles,
  type AttachmentInput,
  type DecodedAttachment,
} from './attachments/files.ts';
import type { EventLog } from './event-log/log.ts';
import type { NewSession, SessionKind, SessionLocator, SessionStore } from './event-log/session-store.ts';
import type { CompletedRun } from './runs/active-run.ts';
import type { Runs } from './runs/runs.ts';
import type { Delivery } from './runs/store.ts';
import { sessionNotFound } from './runs/problems.ts';
import type { Admission, Submission } from './runs/submission.ts';

export type InputPart =
  | { type: 'text'; text: string }
  | { type: 'file'; mediaType: string; filename?: string; url: string };

export interface Input {
  /** An existing session, a chat (created with its first input), or a new session for this input. */
  to: { sessionId: string } | { chatId: string } | 'own';
  origin: SessionKind | 'service';
  parts: readonly InputPart[];
  attachments?: readonly AttachmentInput[] | undefined;
  /** Idempotency key of the caller; it becomes the id of the message. */
  id?: string | undefined;
  delivery?: Delivery | undefined;
  model?: string | undefined;
  reasoningEffort?: string | undefined;
  /** Whether a person can decide approvals; applies to a session that the input creates. */
  attended?: boolean | undefined;
  metadata?: Record<string, unknown> | undefined;
  /** How long the input may wait in the queue before it expires. */
  expiresInMs?: number | undefined;
  /** Request id of a call with an Idempotency-Key; finds the run after a crash. */
  requestId?: string | undefined;
}

export type AcceptedInput = Admission & { settled: Promise<CompletedRun | Problem> | null };

export interface InputSubmitter {
  /** Resolves once the input is durable; throws a Problem when it is refused. */
  submit(input: Input): Promise<AcceptedInput>;
  compact(sessionId: string, requestId?: string): Promise<AcceptedInput>;
}

export interface SubmitOptions {
  agentId: string;
  runs: Runs;
  eventLog: EventLog;
  store: SessionStore;
  files: AttachmentFiles;
  hooks: Hooks;
  clock: Clock;
}

// The event, the row and the model request of an input each encode its whole text as JSON, which takes
// 20 ms at this length. Longer text can be sent as an attachment of up to 8 MiB.
const maxTextLength = 2 * 1024 * 1024;
// Characters of the preview that lists show.
const previewLength = 200;

export function createInputSubmitter(options: SubmitOptions): InputSubmitter {
  return {
    submit: (input) => submit(options, input),
    compact: (sessionId, requestId) =>
      options.runs.submit({
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
        requestId: requestId ?? null,
      }),
  };
}

async function submit(options: SubmitOptions, input: Input): Promise<AcceptedInput> {
  const { hooks, files, runs } = options;
  requireValid(input);
  const attachments = decodeAttachments(input.attachments ?? []);
  const target = await findTarget(options, input, attachments.length > 0);
  const { text, parts } = await applyHooks(hooks, input, target.id);
  const submission = toSubmission(options, input, { target, text, parts, attachments });
  if (attachments.length > 0) await files.write(target.key, attachments);
  try {
    const admission = await runs.submit(submission);
    if (admission.isRepeated) await files.discard(target.key, attachments);
    else
      hooks.effect(
        'enqueue.after',
        { text, origin: input.origin },
        { sessionId: admission.session.id, runId: submission.runId },
      );
    return admission;
  } catch (error) {
    // After a lost connection (`unavailable`) the input may have been accepted, and then needs its files.
    // `draining` is `unavailable` too, but refuses the input before anything is written.
    const isRefused = error instanceof Problem && (error.kind !== 'unavailable' || error.code === 'draining');
    if (isRefused) await files.discard(target.key, attachments);
    throw error;
  }
}

function requireValid(input: Input): void {
  for (const [index, part] of input.parts.entries())
    if (part.type === 'file') requireDataUrl(part.url, `parts[${index}].url`);
  requireTextLength(input);
  if (input.metadata !== undefined) requireStorable(input.metadata, 'metadata');
}

/** The session that an input goes to, as far as it is known before the admission. */
interface Target {
  /** The key under which attachments are stored; empty for an existing session without any. */
  key: string;
  id: string;
}

async function findTarget(options: SubmitOptions, input: Input, hasFiles: boolean): Promise<Target> {
  const { eventLog, store, agentId } = options;
  const { to: recipient } = input;
  if (recipient === 'own') return newIds();
  if ('sessionId' in recipient) {
    if (!hasFiles) return { key: '', id: recipient.sessionId };
    const session = await store.session(agentId, { id: recipient.sessionId });
    if (!session) throw sessionNotFound();
    return session;
  }
  const session = hasFiles
    ? await store.session(agentId, { chatId: recipient.chatId })
    : await eventLog.find({ chatId: recipient.chatId });
  if (session) return session;
  if (!hasFiles) return newIds();
  // Attachments are stored under the key of the session before the input is
  // admitted, so the chat has to exist by then.
  const newSession = await eventLog.create({
    ...newChat(agentId, recipient.chatId),
    attended: input.attended ?? false,
    events: [{ type: 'session.created', kind: 'chat', title: null, chatId: recipient.chatId }],
  });
  // Undefined: another request has created the chat in the meantime.
  return newSession ?? findTarget(options, input, hasFiles);
}

/** Applies the hooks of plugins, which may replace the text of the input or refuse it. */
async function applyHooks(
  hooks: Hooks,
  { parts, origin }: Input,
  sessionId: string,
): Promise<{ text: string; parts: readonly InputPart[] }> {
  const context = { sessionId };
  const inputText = parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
  const payload = await hooks.pipeline('enqueue.before', { text: inputText, origin }, context);
  await hooks.guard('enqueue.before', payload, context);
  const { text } = payload;
  if (text === inputText) return { text, parts };
  return { text, parts: [{ type: 'text', text }, ...parts.filter(({ type }) => type !== 'text')] };
}

interface PreparedInput {
  target: Target;
  text: string;
  parts: readonly InputPart[];
  attachments: readonly DecodedAttachment[];
}

function toSubmission(
  { agentId, clock }: SubmitOptions,
  input: Input,
  { target, text, parts, attachments }: PreparedInput,
): Submission {
  const { to: recipient, origin, metadata } = input;
  const runId = id('run');
  const messageId = input.id ?? id('msg');
  const message: UiMessage = {
    id: messageId,
    role: 'user',
    parts: [...attachments.map(attachmentPart), ...(parts as UiMessagePart[])],
    metadata: {
      ...(metadata === undefined ? {} : { custom: metadata }),
      runId,
      createdAt: clock.now().toISOString(),
      origin,
    },
  };
  return {
    session: locatorOf(recipient, target),
    create: newSessionOf(agentId, input, target),
    runId,
    queueItemId: id('qit'),
    delivery: input.delivery ?? 'queue',
    origin,
    input: { messageId, message, preview: startOfText(text, previewLength), files: attachments },
    messageId: id('msg'),
    model: input.model ?? null,
    reasoningEffort: input.reasoningEffort ?? null,
    promptId: input.id ?? null,
    promptHash: input.id === undefined ? null : hashOf(input),
    expiresInMs: input.expiresInMs ?? null,
    requestId: input.requestId ?? null,
  };
}

function attachmentPart({ attachmentId, fileName, contentType, bytes }: DecodedAttachment): UiMessagePart {
  return {
    type: 'data-attachment',
    id: attachmentId,
    data: { attachmentId, fileName, contentType, size: bytes.length },
  };
}

function locatorOf(recipient: Input['to'], { key }: Target): SessionLocator {
  if (recipient === 'own') return { key };
  return 'chatId' in recipient ? { chatId: recipient.chatId } : { id: recipient.sessionId };
}

/** The session that is created when the input has none; null when the session has to exist. */
function newSessionOf(
  agentId: string,
  { to, attended: isAttended = false }: Input,
  { key }: Target,
): NewSession | null {
  if (to === 'own') return { key, id: key, agentId, kind: 'execute', attended: isAttended };
  return 'chatId' in to ? { ...newChat(agentId, to.chatId), attended: isAttended } : null;
}

function newChat(agentId: string, chatId: string): NewSession {
  return { ...newIds(), agentId, kind: 'chat', chatId };
}

function newIds(): { key: string; id: string } {
  const key = id('ses');
  return { key, id: key };
}

function requireTextLength({ parts, origin }: Input): void {
  const length = parts.reduce((sum, part) => sum + (part.type === 'text' ? part.text.length : 0), 0);
  if (length <= maxTextLength) return;
  const textParam = parts.length === 1 ? 'text' : 'parts';
  const param = origin === 'execute' || origin === 'dashboard' ? 'instructions' : textParam;
  const message = `may have at most ${maxTextLength} characters; send longer text as an attachment`;
  throw new Problem('too_large', 'request_too_large', `\`${param}\` ${message}.`, {
    param,
    details: [{ path: param, message }],
  });
}

// Hashes the content and not its encoding: an absent member equals its default, and the order of members does
// not matter.
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
    .update(JSON.stringify(withSortedKeys(content)))
    .digest('hex');
}

function withSortedKeys(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(withSortedKeys);
  if (typeof json !== 'object' || json === null) return json;
  return Object.fromEntries(
    Object.entries(json)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => [key, withSortedKeys(member)]),
  );
}
