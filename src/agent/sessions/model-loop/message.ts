// Builds the assistant's message while it grows: a pure fold over the model's stream or, after a crash, over
// the events of the run.
import type { UiMessagePart } from '../../../contract/agent/types.gen.ts';
import { readEvent, type SessionEvent, type StoredEvent } from '../event-log/events.ts';

type TextPart = Extract<UiMessagePart, { type: 'text' | 'reasoning' }>;
type ToolPart = Extract<UiMessagePart, { type: 'dynamic-tool' }>;

export type ProviderMetadata = Record<string, unknown>;

export interface ToolStart {
  toolCallId: string;
  toolName: string;
  input: unknown;
  providerMetadata?: ProviderMetadata | undefined;
}

/** `outputSeq` is the seq of the event with the output. A denied call was never made. */
export type ToolResult =
  | { output: unknown; outputSeq?: number }
  | { errorText: string }
  | { denial: { approvalId: string | null; reason: string } };

export interface MessageFold {
  /** The parts so far, in the order in which they began. */
  parts(): UiMessagePart[];
  /** The text of the last step. */
  text(): string;
  startStep(): void;
  /**
   * Starts the step again after its stream broke. The text received so far stays, and new text continues it.
   */
  retryStep(): void;
  /** Adds text or reasoning to the block with this id; a new id starts a new part. */
  addText(type: 'text' | 'reasoning', block: string, delta: string): void;
  /** Adds metadata that the provider expects back with the block, which may have no text. */
  addMetadata(type: 'text' | 'reasoning', block: string, metadata: ProviderMetadata): void;
  addSource(source: { id: string; url: string; title?: string | undefined }): void;
  startTool(call: ToolStart): void;
  /** Replaces the input of a tool call without a result, after hooks have changed it. */
  changeInput(toolCallId: string, input: unknown): void;
  endTool(toolCallId: string, result: ToolResult): void;
  /** Replaces the text of the last step. */
  replaceText(text: string): void;
  /** Turns tool calls without a result into failed ones. */
  close(errorText: string): void;
}

export function foldMessage(): MessageFold {
  const parts: UiMessagePart[] = [];
  let blocks = new Map<string, TextPart>();
  /** The text parts of the last step, including those of its broken streams that the model continues. */
  let stepParts: TextPart[] = [];

  function startStep(): void {
    blocks = new Map();
    stepParts = [];
    parts.push({ type: 'step-start' });
  }

  function retryStep(): void {
    const start = parts.findLastIndex((part) => part.type === 'step-start');
    if (start === parts.length - 1) return;
    const hasText = markBroken(parts.slice(start + 1));
    blocks = new Map();
    if (!hasText) stepParts = [];
    parts.push({ type: 'step-start' });
  }

  function blockPart(type: TextPart['type'], block: string): TextPart {
    const key = `${type}:${block}`;
    const existing = blocks.get(key);
    if (existing) return existing;
    const part: TextPart = { type, text: '', state: 'done' };
    blocks.set(key, part);
    parts.push(part);
    if (type === 'text') stepParts.push(part);
    return part;
  }

  /** The last one, because a provider may reuse an id in a later step. */
  function openTool(toolCallId: string): ToolPart | undefined {
    return parts.filter(isOpenTool).findLast((part) => part.toolCallId === toolCallId);
  }

  return {
    parts: () => parts,
    text: () => stepParts.map(({ text }) => text).join(''),
    startStep,
    retryStep,
    addText(type, block, delta) {
      blockPart(type, block).text += delta;
    },
    addMetadata(type, block, metadata) {
      const part = blockPart(type, block);
      part.providerMetadata = { ...part.providerMetadata, ...metadata };
    },
    addSource({ id, url, title }) {
      parts.push({ type: 'source-url', sourceId: id, url, ...(title === undefined ? {} : { title }) });
    },
    startTool: (call) => void parts.push(toToolPart(call)),
    changeInput(toolCallId, input) {
      const part = openTool(toolCallId);
      if (part) part.input = input ?? null;
    },
    endTool(toolCallId, result) {
      const part = openTool(toolCallId);
      if (part) Object.assign(part, toolEnd(toolCallId, result));
    },
    replaceText(text) {
      const lastPart = stepParts.at(-1) ?? blockPart('text', 'replacement');
      for (const part of stepParts) part.text = part === lastPart ? text : '';
    },
    close(errorText) {
      for (const part of parts.filter(isOpenTool))
        Object.assign(part, toolEnd(part.toolCallId, { errorText }));
    },
  };
}

function toToolPart({ toolCallId, toolName, input, providerMetadata }: ToolStart): ToolPart {
  return {
    type: 'dynamic-tool',
    toolName,
    toolCallId,
    state: 'input-available',
    input: input ?? null,
    ...(providerMetadata === undefined ? {} : { callProviderMetadata: providerMetadata }),
  };
}

function isOpenTool(part: UiMessagePart): part is ToolPart {
  return part.type === 'dynamic-tool' && part.state === 'input-available';
}

/** The members of a tool call's part that its result sets. */
function toolEnd(toolCallId: string, result: ToolResult): object {
  if ('output' in result) {
    const { output, outputSeq } = result;
    const seq = outputSeq === undefined ? {} : { outputSeq };
    return { state: 'output-available', output: output ?? null, ...seq };
  }
  if ('errorText' in result) return { state: 'output-error', errorText: result.errorText };
  const { approvalId, reason } = result.denial;
  // The AI SDK requires an approval id, and a call that a rule denies has no approval.
  const approval = { id: approvalId ?? toolCallId, approved: false, reason };
  return { state: 'output-denied', approval };
}

/**
 * Marks the parts that a step's broken stream left unfinished. Depends on the parts alone, so that both folds
 * agree. Returns whether the model has to continue the text. A step that called tools counts as complete.
 */
function markBroken(step: readonly UiMessagePart[]): boolean {
  const lastPart = step.at(-1);
  if (lastPart?.type === 'reasoning') lastPart.state = 'streaming';
  if (step.some((part) => part.type === 'dynamic-tool')) return false;
  let hasText = false;
  for (const part of step) {
    if (part.type !== 'text' && part.type !== 'reasoning') continue;
    part.state = 'streaming';
    if (part.type === 'text' && part.text !== '') hasText = true;
  }
  return hasText;
}

/** The checkpointed text of a part that was open when its process ended. */
export interface OpenText {
  partId: string;
  partType: 'text' | 'reasoning';
  text: string;
}

/** Rebuilds a message from the events of its run and from checkpoints. */
export function foldEvents(
  events: readonly StoredEvent[],
  openTexts: readonly OpenText[] = [],
): UiMessagePart[] {
  const fold = foldMessage();
  const typedEvents = events.map((stored) => ({ seq: stored.seq, event: readEvent(stored) }));
  const texts = new Map(openTexts.map((part) => [part.partId, part.text]));
  for (const { event } of typedEvents) if (event.type === 'part.ended') texts.set(event.partId, event.text);
  let step = 1;
  for (const { seq, event } of typedEvents) {
    if (event.type === 'run.step.started') ({ step } = event);
    // An event for another step comes before that step starts, and belongs to a summary.
    const isRetry = event.type === 'run.retrying' || event.type === 'run.waiting';
    if (isRetry && event.step === step) fold.retryStep();
    else foldEvent(fold, event, { seq, texts });
  }
  fold.close('The agent stopped during this call; whether it took effect is not known.');
  return fold.parts();
}

function foldEvent(
  fold: MessageFold,
  event: SessionEvent,
  { seq, texts }: { seq: number; texts: ReadonlyMap<string, string> },
): void {
  switch (event.type) {
    case 'run.step.started':
      return fold.startStep();
    case 'part.started': {
      // Add the whole text here, so that the part is at the position of its start.
      const text = texts.get(event.partId);
      return text === undefined ? undefined : fold.addText(event.partType, event.partId, text);
    }
    case 'part.ended':
      return event.providerMetadata && fold.addMetadata(event.partType, event.partId, event.providerMetadata);
    case 'tool.started':
      return fold.startTool(event);
    case 'tool.output':
      return fold.endTool(event.toolCallId, { output: event.output, outputSeq: seq });
    case 'tool.failed':
      return fold.endTool(event.toolCallId, { errorText: event.errorText });
    case 'tool.denied':
      return fold.endTool(event.toolCallId, { denial: event });
    default:
      return undefined;
  }
}
