// A session as its events tell it: messages, what runs, what waits, what is asked. Pure folding without a page, so that
// whatever comes twice or late ends in the same picture.
import type { QueueItem, Session, SessionEvent, UiMessage, UiMessagePart } from '@townhall/agent';
import type { RunView } from '../views.ts';
import { orderMessages } from './message-order.ts';

export interface Message {
  id: string;
  role: UiMessage['role'];
  parts: UiMessagePart[];
  runId: string | null;
  metadata: Record<string, unknown>;
  isOpen: boolean;
}

export interface Question {
  approvalId: string;
  toolCallId: string;
  toolName: string;
  input: unknown;
  expiresAt: string | null;
}

export interface Waiting {
  queueItemId: string;
  runId: string;
  queuePosition: number;
  text: string;
}

/** How a run ended that did not complete. */
export interface Outcome {
  status: 'failed' | 'cancelled' | 'interrupted' | 'expired';
  /** Null where the agent gave none. */
  reason: string | null;
  /** A prompt that was taken out of the queue has not. */
  hasStarted: boolean;
}

/** A line between the messages that is nobody's message. */
export interface Remark {
  afterMessageId: string | null;
  tone: 'plain' | 'bad';
  text: string;
}

export interface Thread {
  /** In the order in which they are read. */
  messages(): readonly Message[];
  /** Why the message ended early, or was never answered; undefined for any other. */
  outcome(message: Message): Outcome | undefined;
  /** What was asked in the run of a message. */
  prompt(message: Message): Message | undefined;
  remarks(): Remark[];
  questions(): Question[];
  queue(): Waiting[];
  status(): Session['status'];
  activeRunId(): string | null;
  title(): string | null;
  isArchived(): boolean;
  /** The seq up to which everything is in here. */
  seq(): number;
  /** The messages that look different since the last time this was asked. */
  takeChanged(): Set<string>;
  /** False when the past has to be read anew. */
  take(event: SessionEvent): boolean;
}

interface ThreadStart {
  session: Session;
  messages: readonly UiMessage[];
  seq: number;
  queue: readonly QueueItem[];
  questions: readonly Question[];
  /** Those whose outcome the messages do not tell. */
  runs: readonly RunView[];
}

type TextPart = Extract<UiMessagePart, { type: 'text' | 'reasoning' }>;
type ToolPart = Extract<UiMessagePart, { type: 'dynamic-tool' }>;

export function createThread(start: ThreadStart): Thread {
  const messages = new Map<string, Message>();
  const open = new Map<string, TextPart>();
  const questions = new Map(start.questions.map((question) => [question.approvalId, question]));
  const remarks: Remark[] = [];
  const changed = new Set<string>();
  let queue: Waiting[] = start.queue.map(({ queueItemId, runId, queuePosition, text }) => ({
    queueItemId,
    runId,
    queuePosition,
    text,
  }));
  let { status, activeRunId, title } = start.session;
  let isArchived = start.session.archivedAt !== null;
  let { seq } = start;
  let ordered: Message[] | undefined;
  const outcomes = new Map<string, Outcome>();
  /** Runs that began, or were taken into another one, while the page looked on. */
  const started = new Set<string>();
  for (const message of start.messages) put(message, false);
  for (const { runId, status, reason, startedAt } of start.runs) {
    if (startedAt !== null) started.add(runId);
    if (isEarlyEnd(status)) outcomes.set(runId, { status, reason, hasStarted: startedAt !== null });
  }

  function put({ id, role, parts, metadata = {} }: UiMessage, isOpen: boolean, runId?: string): void {
    const known = messages.get(id);
    // A completed message moves to its place in the log, which is where a reload reads it.
    messages.delete(id);
    ordered = undefined;
    messages.set(id, {
      id,
      role,
      parts,
      runId: runId ?? known?.runId ?? (typeof metadata['runId'] === 'string' ? metadata['runId'] : null),
      metadata,
      isOpen,
    });
    changed.add(id);
  }

  function order(): readonly Message[] {
    ordered ??= orderMessages({ messages: [...messages.values()], queue, activeRunId });
    return ordered;
  }

  function outcome(message: Message): Outcome | undefined {
    const { role, runId, metadata } = message;
    const ofRun = runId === null ? undefined : outcomes.get(runId);
    // The prompt says it where no answer does.
    if (role === 'user') return ofRun?.hasStarted === false ? ofRun : undefined;
    const { status } = metadata;
    if (!isEarlyEnd(status)) return undefined;
    return { status, reason: ofRun?.reason ?? null, hasStarted: true };
  }

  // Tools tell their run; the message is the one that the run writes now.
  const writing = (runId: string): Message | undefined =>
    [...messages.values()].findLast((message) => message.runId === runId && message.role === 'assistant');

  function textPart(messageId: string, partId: string, type: 'text' | 'reasoning'): TextPart | undefined {
    const known = open.get(partId);
    if (known !== undefined) return known;
    const message = messages.get(messageId);
    // What is complete holds this part already.
    if (message === undefined || !message.isOpen) return undefined;
    const part: TextPart = { type, text: '', state: 'streaming' };
    open.set(partId, part);
    message.parts.push(part);
    return part;
  }

  function endTool(event: { runId: string; toolCallId: string }, end: Partial<ToolPart>): void {
    const message = writing(event.runId);
    const part = message?.parts.findLast(
      (one): one is ToolPart => one.type === 'dynamic-tool' && one.toolCallId === event.toolCallId,
    );
    if (message === undefined || part === undefined || part.state !== 'input-available') return;
    Object.assign(part, end);
    changed.add(message.id);
  }

  function remark(runId: string | undefined, text: string, tone: Remark['tone'] = 'plain'): void {
    const own = runId === undefined ? undefined : writing(runId);
    const last = order().findLast((message) => !queue.some((item) => item.runId === message.runId));
    remarks.push({ afterMessageId: own?.id ?? last?.id ?? null, text, tone });
  }

  // A compaction has no message, so its failure is a line of its own.
  function settle({ runId, outcome: status, error }: Extract<SessionEvent, { type: 'run.settled' }>): void {
    queue = queue.filter((item) => item.runId !== runId);
    for (const question of questions.values())
      if (isOf(question, runId)) questions.delete(question.approvalId);
    if (isEarlyEnd(status)) {
      const reason = error?.message ?? null;
      outcomes.set(runId, { status, reason, hasStarted: started.has(runId) || writing(runId) !== undefined });
      if (status !== 'cancelled' && ![...messages.values()].some((message) => message.runId === runId))
        remark(runId, reason ?? `The run ended as ${status}.`, 'bad');
    }
    changedRun(runId);
  }

  // Of a run whose place in the queue, or whose question, is another one now.
  function changedRun(runId: string | undefined): void {
    for (const message of messages.values()) if (message.runId === runId) changed.add(message.id);
  }

  function take(event: SessionEvent): boolean {
    // Text and tools change no order; queue, runs and messages do.
    if (!/^(?:part|tool)\./.test(event.type)) ordered = undefined;
    if ('seq' in event) {
      if (event.seq <= seq) return true;
      ({ seq } = event);
    }
    switch (event.type) {
      case 'stream.reset':
        return false;
      case 'stream.ready':
        ({ status, activeRunId } = event);
        break;
      case 'status.changed':
        ({ status, activeRunId } = event);
        break;
      case 'session.updated':
        if (event.title !== undefined) ({ title } = event);
        if (event.archived !== undefined) isArchived = event.archived;
        break;
      case 'session.archived':
        isArchived = true;
        break;
      case 'message.created':
        put({ id: event.messageId, role: event.role, parts: [] }, true, event.runId);
        break;
      case 'message.completed':
        put(event.message, false, event.runId);
        break;
      case 'message.updated': {
        const message = messages.get(event.messageId);
        if (message !== undefined) Object.assign(message.metadata, event.metadata);
        changed.add(event.messageId);
        break;
      }
      case 'part.started':
        textPart(event.messageId, event.partId, event.partType);
        break;
      case 'part.snapshot': {
        const part = textPart(event.messageId, event.partId, event.partType);
        if (part !== undefined) part.text = event.text;
        changed.add(event.messageId);
        break;
      }
      case 'part.delta': {
        const part = open.get(event.partId);
        // The offset says where the text belongs, whatever came before.
        if (part !== undefined) part.text = part.text.slice(0, event.offset) + event.delta;
        changed.add(event.messageId);
        break;
      }
      case 'part.ended': {
        const part = textPart(event.messageId, event.partId, event.partType);
        if (part !== undefined) Object.assign(part, { text: event.text, state: 'done' });
        open.delete(event.partId);
        changed.add(event.messageId);
        break;
      }
      case 'tool.started': {
        const message = writing(event.runId);
        if (message === undefined || !message.isOpen) break;
        message.parts.push({
          type: 'dynamic-tool',
          toolName: event.toolName,
          toolCallId: event.toolCallId,
          state: 'input-available',
          input: event.input,
        });
        changed.add(message.id);
        break;
      }
      case 'tool.output':
        endTool(event, { state: 'output-available', output: event.output });
        break;
      case 'tool.failed':
        endTool(event, { state: 'output-error', errorText: event.errorText });
        break;
      case 'tool.denied':
        endTool(event, { state: 'output-error', errorText: event.reason });
        break;
      case 'approval.requested':
        // Without a time until which it stands it was decided at once.
        if (event.expiresAt !== null) questions.set(event.approvalId, event);
        changedRun(event.runId);
        break;
      case 'approval.resolved':
        questions.delete(event.approvalId);
        changedRun(event.runId);
        break;
      case 'queue.added':
        // The list at the start may be younger than the messages.
        if (!queue.some(({ queueItemId }) => queueItemId === event.queueItemId))
          queue.push({
            queueItemId: event.queueItemId,
            runId: event.runId,
            queuePosition: event.queuePosition,
            text: textOf(messages.get(event.messageId ?? '')),
          });
        changedRun(event.runId);
        break;
      case 'queue.updated': {
        const places = new Map(event.items.map((item) => [item.queueItemId, item.queuePosition]));
        for (const item of queue) {
          item.queuePosition = places.get(item.queueItemId) ?? item.queuePosition;
          changedRun(item.runId);
        }
        break;
      }
      case 'queue.removed':
        queue = queue.filter(({ queueItemId }) => queueItemId !== event.queueItemId);
        if (event.reason === 'started' || event.reason === 'steered') started.add(event.runId);
        changedRun(event.runId);
        break;
      case 'run.started':
        started.add(event.runId);
        break;
      case 'run.settled':
        settle(event);
        break;
      case 'run.retrying':
        remark(event.runId, `The model did not answer (${event.code}); it is asked again.`);
        break;
      case 'compaction.ended':
        remark(
          event.runId,
          event.outcome === 'completed'
            ? `The conversation so far was summed up: ${event.tokensBefore} tokens became ${event.tokensAfter}.`
            : 'The conversation could not be summed up.',
          event.outcome === 'completed' ? 'plain' : 'bad',
        );
        break;
      default:
        break;
    }
    return true;
  }

  return {
    messages: order,
    outcome,
    prompt: ({ runId }) =>
      runId === null
        ? undefined
        : [...messages.values()].find((message) => message.role === 'user' && message.runId === runId),
    remarks: () => remarks,
    questions: () => [...questions.values()],
    queue: () => queue.toSorted((a, b) => a.queuePosition - b.queuePosition),
    status: () => status,
    activeRunId: () => activeRunId,
    title: () => title,
    isArchived: () => isArchived,
    seq: () => seq,
    takeChanged() {
      const taken = new Set(changed);
      changed.clear();
      return taken;
    },
    take,
  };
}

function isOf(question: Question & { runId?: string }, runId: string): boolean {
  return question.runId === runId;
}

function isEarlyEnd(status: unknown): status is Outcome['status'] {
  return status === 'failed' || status === 'cancelled' || status === 'interrupted' || status === 'expired';
}

/** The runs whose outcome the messages and the queue do not tell, newest first. */
export function unexplainedRuns({
  messages,
  queue,
  activeRunId,
}: {
  messages: readonly UiMessage[];
  queue: readonly QueueItem[];
  activeRunId: string | null;
}): string[] {
  const runOf = ({ metadata }: UiMessage): string | undefined =>
    typeof metadata?.['runId'] === 'string' ? metadata['runId'] : undefined;
  const answered = new Set(messages.filter(({ role }) => role === 'assistant').map(runOf));
  const open = new Set([...queue.map(({ runId }) => runId), activeRunId]);
  const runs = messages.flatMap((message) => {
    const runId = runOf(message);
    if (runId === undefined) return [];
    const isUnexplained =
      message.role === 'assistant'
        ? isEarlyEnd(message.metadata?.['status'])
        : !answered.has(runId) && !open.has(runId);
    return isUnexplained ? [runId] : [];
  });
  return [...new Set(runs)].reverse();
}

/** All of a message that is text. */
export function textOf(message: Pick<Message, 'parts'> | undefined): string {
  return message?.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n\n') ?? '';
}
